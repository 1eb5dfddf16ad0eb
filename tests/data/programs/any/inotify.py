# grants: inotify_init1, inotify_add_watch, a watch limit of the session's own
"""A watch on the session's folder sees what happens in it."""
import ctypes
import os
import struct

IN_CREATE, IN_MOVED_TO, IN_CLOSE_WRITE = 0x100, 0x80, 0x8


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    folder = os.environ["TMPDIR"] + "/watched"
    os.mkdir(folder)
    watch = libc.inotify_add_watch(fd, folder.encode(), IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE)
    assert watch > 0, os.strerror(ctypes.get_errno())
    with open(folder + "/a", "w") as file:
        file.write("x")
    os.rename(folder + "/a", folder + "/b")
    seen, data = [], os.read(fd, 4096)
    while data:
        _, mask, _, length = struct.unpack_from("iIII", data)
        seen.append((mask, data[16:16 + length].rstrip(b"\0")))
        data = data[16 + length:]
    assert seen == [(IN_CREATE, b"a"), (IN_CLOSE_WRITE, b"a"), (IN_MOVED_TO, b"b")], seen
    # A tree of many folders, as a build tool watches it.
    for n in range(500):
        os.mkdir(f"{folder}/{n}")
        assert libc.inotify_add_watch(fd, f"{folder}/{n}".encode(), IN_CREATE) > 0, n
    print("ok")


main()
