# needs: strace
# grants: nothing: what is here is refused on purpose, each with the errno that programs expect
"""Programs that cannot work in a session say why and end; none hangs or is killed."""
import ctypes
import errno
import os
import socket
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)
CALLS = {
    # Debuggers and strace; the leak checker of the sanitizers (B10).
    "ptrace": ((101, 0, 0, 0, 0), errno.EPERM),
    "process_vm_readv": ((310, os.getpid(), 0, 0, 0, 0, 0), errno.EPERM),
    # bubblewrap, podman, Chromium's own sandbox (B1).
    "unshare(user)": ((272, 0x10000000), errno.EPERM),
    "mount": ((165, 0, 0, 0, 0, 0), errno.EPERM),
    # libuv and databases fall back on epoll and pread (B3).
    "io_uring_setup": ((425, 1, 0), errno.ENOSYS),
    # perf and bpftrace (B11).
    "perf_event_open": ((298, 0, 0, 0, 0, 0), errno.EPERM),
    "bpf": ((321, 0, 0, 0), errno.EPERM),
    # Kerberos's credential cache falls back on files (B7).
    "keyctl": ((250, 0, 0, 0, 0, 0), errno.EPERM),
    "userfaultfd": ((323, 0), errno.EPERM),
    "clone3": ((435, 0, 0), errno.ENOSYS),
}


def main():
    for name, (args, wanted) in CALLS.items():
        result = LIBC.syscall(*args)
        assert result == -1 and ctypes.get_errno() == wanted, (name, result, ctypes.get_errno())
    run = subprocess.run(["strace", "-f", "true"], stderr=subprocess.PIPE, check=False, timeout=20)
    assert run.returncode != 0 and b"Operation not permitted" in run.stderr, run
    for family, kind in ((socket.AF_INET, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW),
                         (socket.AF_VSOCK, socket.SOCK_STREAM)):
        try:
            socket.socket(family, kind)
        except OSError as error:
            assert error.errno == errno.EAFNOSUPPORT, (family, error)
        else:
            raise AssertionError(f"family {family} kind {kind}")
    # Files with a setuid or setgid bit are covered, ssh-agent among them.
    for name in ("sudo", "su", "mount", "ping", "ssh-agent"):
        for folder in ("/usr/bin", "/bin"):
            path = f"{folder}/{name}"
            assert not os.path.exists(path) or not os.stat(path).st_mode & 0o6000, path
    print("ok")


main()
