"""The units, read as text: what no run on this host can show."""
import re

from harness import ROOT

UNIT = (ROOT / "systemd/sandboxd.service.in").read_text()

# Each would put a seccomp filter or a BPF program on everything below the service: every session
# would inherit it beside the one filter of its policy.
INHERITED = [
    "DeviceAllow", "DevicePolicy", "IPAddressAllow", "IPAddressDeny", "IPEgressFilterPath",
    "IPIngressFilterPath", "LockPersonality", "MemoryDenyWriteExecute", "PrivateDevices",
    "ProtectClock", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules",
    "ProtectKernelTunables", "RestrictAddressFamilies", "RestrictFileSystems",
    "RestrictNamespaces", "RestrictNetworkInterfaces", "RestrictRealtime", "RestrictSUIDSGID",
    "SocketBindAllow", "SocketBindDeny", "SystemCallArchitectures", "SystemCallFilter",
    "SystemCallLog",
]


def values(name):
    return [word for line in re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
            for word in line.split()]


def test_no_option_is_inherited_by_sessions():
    for name in INHERITED:
        assert values(name) == [], name


def test_bounding_set_is_the_table_of_the_supervisor():
    source = (ROOT / "supervisor/privileges.c").read_text()
    table = set(re.findall(r"^\t\{(CAP_\w+),", source, re.MULTILINE))
    assert len(table) > 10
    assert set(values("CapabilityBoundingSet")) == table
