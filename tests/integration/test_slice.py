"""Who moves bytes is woken before who computes, and a command has what the kernel gives everybody."""
import ctypes
import errno
import struct

import pytest

from harness import descendants

SCHED_GETATTR = 315
SHORTEST_NS = 100_000
ASK = f"""
import ctypes, struct
attr = ctypes.create_string_buffer(48)
assert ctypes.CDLL(None).syscall({SCHED_GETATTR}, 0, attr, 48, 0) == 0
print(struct.unpack('IIQiIQQQ', attr.raw)[5])
"""


def slice_of(pid):
    """None: it has ended."""
    attr = ctypes.create_string_buffer(48)
    if ctypes.CDLL(None, use_errno=True).syscall(SCHED_GETATTR, pid, attr, 48, 0) < 0:
        assert ctypes.get_errno() == errno.ESRCH
        return None
    return struct.unpack("IIQiIQQQ", attr.raw)[5]


@pytest.mark.parametrize("profile", ["component", "agent"])
def test_slices(daemon, alice, profile):
    ordinary = slice_of(0)
    if ordinary == 0:
        pytest.skip("a kernel without slices of one's own")
    session = alice.create_runtime(profile=profile)
    try:
        told = alice.run(session, "python3", "-c", ASK)
        assert told.code == 0 and int(told.text) == ordinary, told
        service = sum(daemon.processes().values(), [])
        ours = [pid for pid in service if pid != daemon.process.pid]
        trees = [pid for shim in daemon.shim_pids() for pid in (shim, *descendants(shim))]
        assert len(ours) >= 3 and len(trees) >= 3, (ours, trees)
        assert {slice_of(pid) for pid in (*ours, *trees)} - {None} == {SHORTEST_NS}
    finally:
        alice.remove(session)
