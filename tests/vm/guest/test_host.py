"""What the guest is."""
import os
from pathlib import Path


def test_kernel_is_6_1():
    assert os.uname().release.startswith("6.1.")


def test_cgroup_v2_alone():
    types = [line.partition(" - ")[2].split()[0]
             for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    assert "cgroup2" in types and "cgroup" not in types


def test_systemd_is_up():
    assert Path("/proc/1/comm").read_text() == "systemd\n"
