"""The end: the host is as it was before the first installation."""
from installed import *


def test_uninstall_leaves_the_host_as_it_was(alice):
    assert alice.create()
    call("dpkg", "--purge", "sandboxd")
    before, after = json.loads(BEFORE.read_text()), host_state()
    changed = [path for path in {**before["files"], **after["files"]}
               if before["files"].get(path) != after["files"].get(path)]
    assert sorted(changed) == []
    for name in ("groups", "units", "users", "processes", "mounts"):
        assert after[name] == before[name], name
