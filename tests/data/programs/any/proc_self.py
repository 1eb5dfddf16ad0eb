# grants: /proc of the session's own processes, /dev/fd, /dev/null and its like
"""What programs read of themselves under /proc and /dev."""
import os
import sys


def main():
    for name in ("status", "stat", "statm", "maps", "smaps_rollup", "limits", "cgroup", "mountinfo",
                 "environ", "cmdline", "comm", "oom_score", "oom_score_adj", "auxv", "io", "sched"):
        with open(f"/proc/self/{name}", "rb") as file:
            assert file.read(100), name
    assert os.path.realpath("/proc/self/exe") == os.path.realpath(sys.executable)
    assert os.readlink("/proc/self/cwd") == os.getcwd()
    assert os.readlink("/proc/self") == str(os.getpid())
    assert {"0", "1", "2"} <= set(os.listdir("/proc/self/fd"))
    assert str(os.getpid()) in os.listdir("/proc/self/task") and os.listdir("/proc/thread-self")
    with open("/proc/self/comm", "w") as file:
        file.write("renamed")
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    # Only the session's own, and none of the host's (pid 1 is the shim).
    assert len([name for name in os.listdir("/proc") if name.isdigit()]) < 20
    for name, data in (("zero", b"\0" * 8), ("null", b"")):
        with open(f"/dev/{name}", "rb") as file:
            assert file.read(8) == data, name
    for name in ("random", "urandom"):
        with open(f"/dev/{name}", "rb") as file:
            assert len(file.read(8)) == 8, name
    try:
        with open("/dev/full", "wb", buffering=0) as full:
            full.write(b"x")
    except OSError as error:
        assert error.strerror == "No space left on device", error
    read_end, write_end = os.pipe()
    os.write(write_end, b"by name")
    with open(f"/dev/fd/{read_end}", "rb", buffering=0) as again:
        assert again.read(7) == b"by name"
    for name in ("stdin", "stdout", "stderr", "ptmx", "tty"):
        assert os.path.lexists(f"/dev/{name}"), name
    print("ok")


main()
