"""Templates as they lie on the disk, made here so that they can also be what an import refuses."""
import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

MAGIC = 0x4C504D54
VERSION = 1
PROGRAMS = ("sh", "base64", "cat", "chmod", "chown", "cp", "dd", "find", "flock", "grep", "gzip", "head", "id",
            "ln", "ls", "mkdir", "mknod", "mv", "rm", "rmdir", "sed", "sha256sum", "sleep", "stat", "tail", "touch")


def libraries(path):
    """The files that the dynamic loader maps for a program, itself too."""
    told = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    words = [word for line in told.splitlines() for word in line.split() if word.startswith("/")]
    return {Path(word) for word in words}


def put(root, path):
    """A file of the host, with what it needs, at the same place."""
    todo = {path, *libraries(path)}
    for one in todo:
        into = root / one.relative_to("/")
        into.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(one.resolve(), into)
        into.chmod(0o755)


def tree(root, programs=PROGRAMS):
    """A small root with a shell and a marker; /bin is a folder of its own, as in older images."""
    root.mkdir(parents=True)
    root.chmod(0o755)
    for name in programs:
        put(root, Path(shutil.which(name)).resolve())
    for folder in ("bin", "etc", "opt", "srv/node", "var/lib"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in programs:
        link = root / "bin" / name
        at = Path(shutil.which(name)).resolve()
        if not link.exists():
            link.symlink_to(at)
    (root / "opt" / "marker").write_text("of the template\n")
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/session/home:/bin/sh\n"
                                         "user:x:1000:1000:user:/session/home:/bin/sh\n"
                                         "www:x:33:33::/:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\nuser:x:1000:\nwww:x:33:\n")
    (root / "etc" / "hosts").write_text("192.0.2.1 of-the-template\n")
    (root / "var" / "lib" / "www").mkdir()
    os.chown(root / "var" / "lib" / "www", 33, 33)
    os.chown(root / "srv" / "node", 1000, 1000)


def record(folder, magic=MAGIC, version=VERSION, id_base=0, size=72):
    text = struct.pack("<IHHIIQQQ32x", magic, version, size, id_base, 0, 1000, 10, int(time.time()))
    path = folder / "record"
    path.write_bytes(text)
    path.chmod(0o600)


def make(daemon, name, change=None, source=None, **fields):
    """STATE/templates/NAME; `change` gets its root before it is finished."""
    folder = daemon.state / "templates"
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / name
    made.mkdir(mode=0o700)
    if source:
        subprocess.run(["cp", "-a", source, made / "root"], check=True)
    else:
        tree(made / "root")
    if change:
        change(made / "root")
    record(made, **fields)
    return made


@contextlib.contextmanager
def removing(folder):
    """As who removes it: a write lock of all of its record. BlockingIOError: it is in use."""
    fd = os.open(folder / "record", os.O_RDWR)
    try:
        # F_OFD_SETLK; struct flock {type, whence, start, len, pid}
        fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        yield
    finally:
        os.close(fd)


def in_use(folder):
    try:
        with removing(folder):
            return False
    except BlockingIOError:
        return True
