"""The first installation: earlier releases, upgraded while they run."""
import os

import pytest

from harness import SESSIONS, Client, wait_until
from installed import *


@pytest.mark.parametrize("release,keeps", [("v0.3.0", False), ("v0.4.0", True)])
def test_upgrade_from(release, keeps):
    """The shims of one speak our version of the wire: its trees go on. Those of the other are ended."""
    old = DISK / f"old-{release}.deb"
    if not old.exists():
        pytest.skip(f"no {release} to build in this checkout")
    alice = Client(CONTROL, user="alice", scopes="data:read data:write", workspace="blue")
    call("dpkg", "-i", old)
    call("systemctl", "enable", "--now", "sandboxd.service")
    made = alice.create()
    alice.write(made, "one", "type: a.B\n")
    before = main_pid()
    members = {int(pid) for path in group_of(made).rglob("cgroup.procs") for pid in path.read_text().split()}
    tree, = members.intersection(shims())
    call("dpkg", "-i", PACKAGE)
    assert is_active("sandboxd.service") and is_active("sandboxd-sessions.service")
    assert main_pid() not in (0, before)
    wait_until(lambda: (tree in shims()) == keeps, 30, "its tree is as it should be")
    assert alice.get(f"{SESSIONS}/{made}").json["components"] == ["one.yaml"]
    assert alice.run(made, "/bin/cat", "/session/one.yaml").out == b"type: a.B\n"
    assert instance_group().parent.name == "sandboxd-sessions.service"
    assert not list((TOP / "sandboxd.slice/sandboxd.service").rglob("sandboxd-*"))
    alice.remove(made)
    call("dpkg", "--purge", "sandboxd")


def test_install():
    before = json.loads(BEFORE.read_text())
    assert before["groups"] == [] and before["processes"] == []
    call("dpkg", "-i", PACKAGE)
    assert not is_active("sandboxd.service")


def test_enable_and_start():
    call("systemctl", "enable", "--now", "sandboxd.service")
    service = state("sandboxd.service", "ActiveState", "SubState", "Type", "UnitFileState")
    assert service == {"ActiveState": "active", "SubState": "running", "Type": "notify",
                       "UnitFileState": "enabled"}
    for unit in UNITS[1:3]:
        assert state(unit, "ActiveState", "UnitFileState") == {"ActiveState": "active",
                                                               "UnitFileState": "enabled"}
    assert is_active("sandboxd-sessions.service")
    assert os.stat(CONTROL).st_mode & 0o777 == 0o660
    assert os.stat(OPERATOR).st_mode & 0o777 == 0o600
