"""The units, read as text and by systemd's own tools: what no run on this host can show."""
import re
import shutil
import subprocess

import pytest

from harness import BIN, PATIENCE, ROOT

UNITS = ROOT / "systemd"
SERVICE = (UNITS / "sandboxd.service.in").read_text()
SESSIONS = (UNITS / "sandboxd-sessions.service").read_text()

# Each would put a seccomp filter or a BPF program on everything below the service, or set a flag
# that is inherited like one: every session would get it beside the one filter of its policy.
# How systemd 252 does it stands behind each.
INHERITED = {
    "DeviceAllow": "BPF program on the group",
    "DevicePolicy": "BPF program on the group",
    "IPAddressAllow": "BPF program on the group",
    "IPAddressDeny": "BPF program on the group",
    "IPEgressFilterPath": "BPF program on the group",
    "IPIngressFilterPath": "BPF program on the group",
    "LockPersonality": "seccomp filter",
    "MemoryDenyWriteExecute": "seccomp filter, and the end of every just-in-time compiler",
    "PrivateDevices": "BPF program on the group and a seccomp filter",
    "ProtectClock": "BPF program on the group and a seccomp filter",
    "ProtectHostname": "seccomp filter",
    "ProtectKernelLogs": "seccomp filter",
    "ProtectKernelModules": "seccomp filter",
    "ProtectKernelTunables": "seccomp filter",
    "RestrictAddressFamilies": "seccomp filter",
    "RestrictFileSystems": "BPF program of the LSM",
    "RestrictNamespaces": "seccomp filter",
    "RestrictNetworkInterfaces": "BPF program on the group",
    "RestrictRealtime": "seccomp filter",
    "RestrictSUIDSGID": "seccomp filter",
    "SecureBits": "inherited through exec, the shim sets and locks its own",
    "SocketBindAllow": "BPF program on the group",
    "SocketBindDeny": "BPF program on the group",
    "SystemCallArchitectures": "seccomp filter",
    "SystemCallFilter": "seccomp filter",
    "SystemCallLog": "seccomp filter",
}
# Of `systemd-analyze security`, in tenths. What would lower it is in the list above, or takes from
# root what starting a session needs.
EXPOSURE_TENTHS = 78


def values(name, text=SERVICE):
    text = text.replace("\\\n", " ")
    return [word for line in re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
            for word in line.split()]


@pytest.mark.parametrize("text", [SERVICE, SESSIONS], ids=["service", "sessions"])
def test_no_option_is_inherited_by_sessions(text):
    for name, how in INHERITED.items():
        assert values(name, text) == [], (name, how)


def test_bounding_set_is_the_table_of_the_supervisor():
    source = (ROOT / "supervisor/privileges.c").read_text()
    table = set(re.findall(r"^\t\{(CAP_\w+),", source, re.MULTILINE))
    assert len(table) > 10
    assert set(values("CapabilityBoundingSet")) == table


def test_restart_and_stop_are_told_apart():
    assert values("KillMode") == ["process"]
    assert values("KillSignal") == ["SIGTERM"]
    assert values("RestartKillSignal") == ["SIGUSR2"]
    assert values("StopWhenUnneeded", SESSIONS) == ["yes"]
    assert "sandboxd-sessions.service" in values("BindsTo")
    assert "sandboxd-sessions.service" in values("After")


def test_sessions_group_is_the_one_that_the_service_is_told():
    command = values("ExecStart")
    assert values("Slice") == values("Slice", SESSIONS) == ["sandboxd.slice"]
    told = command[command.index("--cgroup-parent") + 1]
    assert told == "/sandboxd.slice/sandboxd-sessions.service"
    assert {"cpu", "memory", "pids"} <= set(values("Delegate", SESSIONS))


def test_service_is_notified_and_watched():
    assert values("Type") == ["notify"] and values("NotifyAccess") == ["main"]
    assert values("WatchdogSec") and values("Restart") == ["on-failure"]


@pytest.fixture(scope="module")
def unit_dir(tmp_path_factory):
    """The units as they would be installed, with the program of this build."""
    folder = tmp_path_factory.mktemp("units")
    for name in ("sandboxd-control.socket", "sandboxd-operator.socket", "sandboxd.slice",
                 "sandboxd-sessions.service"):
        shutil.copy(UNITS / name, folder)
    programs = tmp_path_factory.mktemp("programs") / "sbin"
    programs.symlink_to(BIN)  # whose own path may have spaces
    (folder / "sandboxd.service").write_text(
        SERVICE.replace("@CMAKE_INSTALL_FULL_SBINDIR@", str(programs)))
    return folder


def analyze(*words):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze")
    return subprocess.run(["systemd-analyze", "--no-pager", *words], capture_output=True,
                          text=True, timeout=60 * PATIENCE, check=False)


def test_systemd_has_nothing_to_say_about_the_units(unit_dir):
    for path in sorted(unit_dir.iterdir()):
        result = analyze("verify", str(path))
        # The page is not installed here.
        said = [line for line in result.stderr.splitlines() if "Command 'man " not in line]
        assert said == [], path.name


def test_exposure_is_the_value_that_was_reached(unit_dir):
    result = analyze("security", "--offline=true", str(unit_dir / "sandboxd.service"))
    last = result.stdout.strip().splitlines()[-1]
    print(last)
    found = re.search(r"exposure level for sandboxd.service: (\d+)\.(\d)", last)
    assert found, result.stdout + result.stderr
    assert int(found[1]) * 10 + int(found[2]) <= EXPOSURE_TENTHS, last
