# grants: a private writable TMPDIR, HOME and /tmp; UTF-8 names; links, locks, xattr errors programs expect
"""Temporary files, the home directory, names in UTF-8, sparse files, locks, O_TMPFILE."""
import fcntl
import mmap
import os
import pathlib
import shutil
import tempfile


def main():
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == "/session/tmp"
    assert pathlib.Path.home() == pathlib.Path("/session/home")
    assert os.path.expanduser("~user") == "/session/home"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        name = root / "größe-数据-🙂.txt"
        name.write_text("naïve ✓\n")
        assert name.read_text() == "naïve ✓\n" and name.name in os.listdir(folder)
        os.link(name, root / "hard")
        os.symlink(name, root / "soft")
        assert os.path.samefile(root / "hard", root / "soft")
        os.replace(root / "hard", root / "moved")
        os.mkfifo(root / "fifo")
        with open(root / "sparse", "wb+") as sparse:
            sparse.truncate(64 << 30)
            sparse.seek(1 << 20)
            sparse.write(b"x")
            fcntl.flock(sparse, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(sparse, fcntl.LOCK_UN)
            sparse.flush()
            with mmap.mmap(sparse.fileno(), 2 << 20) as view:
                assert view[1 << 20] == ord("x")
            os.posix_fallocate(sparse.fileno(), 0, 65536)
            os.fsync(sparse.fileno())
        shutil.copytree(root, root.parent / "copy", ignore=shutil.ignore_patterns("fifo", "sparse"))
        shutil.rmtree(root.parent / "copy")
        anonymous = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        os.write(anonymous, b"x")
        os.close(anonymous)
    for folder in ("/tmp", "/dev/shm", "/session", str(pathlib.Path.home())):
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"x")
    memory = os.memfd_create("test")
    os.write(memory, b"x")
    os.sync()
    print("ok")


main()
