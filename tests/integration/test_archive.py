"""sandbox-archive by itself: what comes back is what was there, and hostile streams gain nothing."""
import io
import os
import socket
import stat
import struct
import subprocess
import tarfile

import pytest

from harness import BUILD, PATIENCE

PROGRAM = BUILD / "bin" / "sandbox-archive"
MAX_BYTES = 1 << 30
MAX_ENTRIES = 10000
SUMMARY = struct.Struct("=IIiIQQQQ256s")
MAGIC = 0x41524356
(NONE, SYSTEM, EMPTY, BYTES, ENTRIES, NAME, OUTSIDE, LINK_ON_WAY, TYPE, DUPLICATE, HARD_LINK,
 FORMAT) = range(12)


class Ended:
    def __init__(self, done):
        self.code = done.returncode
        self.stdout = done.stdout
        fields = SUMMARY.unpack(done.stderr[-SUMMARY.size:])
        (magic, self.error, self.error_number, self.n_missing, self.n_entries, self.n_bytes,
         self.n_left_out, self.n_changed, name) = fields
        self.name = name.rstrip(b"\0")
        assert magic == MAGIC
        assert (self.code == 0) == (self.error == NONE)


def run(mode, *paths, stdin=b"", max_bytes=MAX_BYTES, max_entries=MAX_ENTRIES, exclude=()):
    words = [PROGRAM, mode, str(max_bytes), str(max_entries)]
    for pattern in exclude:
        words += ["-x", pattern]
    done = subprocess.run([*words, *paths], input=stdin, capture_output=True, timeout=300 * PATIENCE,
                          check=False)
    return Ended(done)


def names_of(stream):
    plain = subprocess.run(["zstd", "-dc"], input=stream, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        return archive.getnames()


def tar(*entries, mode="w:gz"):
    """entries: (name, type, content or target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT) as archive:
        for name, kind, data in entries:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            else:
                info.linkname = data
                archive.addfile(info)
    return out.getvalue()


def picture(top):
    """Everything that is to be kept of a tree."""
    seen, found = {}, {}
    for folder, folders, files in os.walk(os.fsencode(top)):
        for name in [b"."] + folders + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            key = os.path.relpath(path, os.fsencode(top))
            content = None
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            elif stat.S_ISLNK(st.st_mode):
                content = os.readlink(path)
            xattrs = {}
            if not stat.S_ISLNK(st.st_mode):
                xattrs = {name: os.getxattr(path, name) for name in os.listxattr(path)
                          if name.startswith("user.")}
            link = seen.setdefault((st.st_dev, st.st_ino), key)
            found[key] = (st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns, content, xattrs, link)
    return found


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def fill(work):
    (work / "plain").write_bytes(os.urandom(300_000))
    (work / "empty").touch()
    (work / "mode").write_text("x")
    os.chmod(work / "mode", 0o4751)
    os.link(work / "plain", work / "second")
    os.symlink("/etc/passwd", work / "out")
    os.symlink("missing", work / "dangling")
    deep = work
    for i in range(60):
        deep = deep / f"level-{i:02}"
        deep.mkdir()
    (deep / ("n" * 255)).write_text("deep")
    with open(os.fsencode(work) + b"/\xff\xc3(", "wb") as file:
        file.write(b"no UTF-8")
    (work / "ünïcode").write_text("ä")
    with open(work / "sparse", "wb") as file:
        file.seek(64 << 20)
        file.write(b"middle")
        file.truncate(200 << 20)
    shut = work / "read-only"
    shut.mkdir()
    (shut / "inside").write_text("x")
    os.chmod(shut, 0o555)
    os.chown(work / "empty", 1234, 4321)
    os.utime(work / "empty", ns=(1, 1_234_567_890_123_456_789))
    os.setxattr(work / "plain", "user.note", b"\0binary\xff")
    os.setxattr(shut, "user.folder", b"of a folder")


def test_round_trip(work):
    fill(work)
    before = picture(work)
    made = run("create", str(work))
    assert made.code == 0, made.name
    assert (made.n_left_out, made.n_changed, made.n_missing) == (0, 0, 0)
    assert made.n_bytes < 10 << 20  # holes are no content
    subprocess.run(["rm", "-rf", work], check=True)
    back = run("extract", str(work), stdin=made.stdout)
    assert back.code == 0, (back.error, back.error_number, back.name)
    assert back.n_entries == made.n_entries
    assert picture(work) == before
    assert os.stat(work / "sparse").st_blocks * 512 < 10 << 20


def test_what_is_left_out_is_said(work):
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(work / "socket"))
        (work / "file").write_text("x")
        (work / "node_modules").mkdir()
        (work / "node_modules" / "big").write_text("x")
        (work / "target").mkdir()
        (work / "sub").mkdir()
        (work / "sub" / "target").mkdir()
        made = run("create", str(work), str(work / "sub"), str(work.parent / "gone"),
                   exclude=["node_modules", f"{work}/target"])
    top = str(work)[1:]
    assert made.code == 0
    assert (made.n_left_out, made.n_missing) == (2, 1)
    assert names_of(made.stdout) == [top, f"{top}/file", f"{top}/sub", f"{top}/sub/target"]


def test_nothing_there_is_no_archive(work):
    made = run("create", str(work / "gone"), str(work / "away"))
    assert (made.code, made.error, made.n_missing) == (1, EMPTY, 2)


def test_bounds(work):
    for i in range(10):
        (work / str(i)).write_bytes(b"x" * 1000)
    assert run("create", str(work), max_bytes=9999).error == BYTES
    assert run("create", str(work), max_entries=10).error == ENTRIES
    made = run("create", str(work), max_bytes=10000, max_entries=11)
    assert made.code == 0
    subprocess.run(["rm", "-rf", work], check=True)
    assert run("extract", str(work), stdin=made.stdout, max_bytes=9999).error == BYTES
    subprocess.run(["rm", "-rf", work], check=True)
    assert run("extract", str(work), stdin=made.stdout, max_entries=10).error == ENTRIES


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_streams_of_others(work, mode):
    top = str(work)[1:]
    stream = tar((f"./{top}/", tarfile.DIRTYPE, ""), (f"{top}/ä/b", tarfile.REGTYPE, b"text"),
                 (f"{top}/l", tarfile.SYMTYPE, "ä"), mode=mode)
    back = run("extract", str(work), stdin=stream)
    assert back.code == 0, (back.error, back.name)
    assert (work / "ä" / "b").read_text() == "text"


FILE, FOLDER, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
HOSTILE = [
    ("absolute", NAME, [("/{outside}/x", FILE, b"x")]),
    ("dots", NAME, [("{top}/../outside/x", FILE, b"x")]),
    ("dots at the end", NAME, [("{top}/..", FOLDER, "")]),
    ("outside", OUTSIDE, [("{outside}/x", FILE, b"x")]),
    ("neighbour", OUTSIDE, [("{top}-not/x", FILE, b"x")]),
    ("through a link", LINK_ON_WAY,
     [("{top}/l", LINK, "/{outside}"), ("{top}/l/x", FILE, b"x")]),
    ("through a relative link", LINK_ON_WAY,
     [("{top}/l", LINK, "../outside"), ("{top}/l/x", FILE, b"x")]),
    ("folder swapped by a link", DUPLICATE,
     [("{top}/d", FOLDER, ""), ("{top}/d", LINK, "../outside"), ("{top}/d/x", FILE, b"x")]),
    ("link, then a folder", DUPLICATE,
     [("{top}/d", LINK, "../outside"), ("{top}/d", FOLDER, "")]),
    ("link, then a file", DUPLICATE,
     [("{top}/f", LINK, "../outside/x"), ("{top}/f", FILE, b"x")]),
    ("twice", DUPLICATE, [("{top}/f", FILE, b"x"), ("{top}/f", FILE, b"y")]),
    ("hard link out", HARD_LINK, [("{top}/h", HARD, "{outside}/secret")]),
    ("hard link with dots", HARD_LINK, [("{top}/h", HARD, "{top}/../outside/secret")]),
    ("hard link to a link", HARD_LINK,
     [("{top}/l", LINK, "../outside/secret"), ("{top}/h", HARD, "{top}/l")]),
    ("device", TYPE, [("{top}/d", tarfile.CHRTYPE, "")]),
    ("block device", TYPE, [("{top}/d", tarfile.BLKTYPE, "")]),
    ("fifo", TYPE, [("{top}/p", tarfile.FIFOTYPE, "")]),
    ("huge name", NAME, [("{top}/" + "a/" * 2100 + "x", FILE, b"x")]),
    ("huge component", NAME, [("{top}/" + "a" * 256, FILE, b"x")]),
]


@pytest.mark.parametrize("error, entries", [row[1:] for row in HOSTILE],
                         ids=[row[0] for row in HOSTILE])
def test_hostile(work, error, entries):
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    words = {"top": str(work)[1:], "outside": str(outside)[1:]}
    stream = tar(*((name.format(**words), kind,
                    data.format(**words) if isinstance(data, str) else data)
                   for name, kind, data in entries))
    back = run("extract", str(work), stdin=stream)
    assert (back.code, back.error) == (1, error), (back.error_number, back.name)
    assert os.listdir(outside) == ["secret"]
    assert os.stat(outside / "secret").st_nlink == 1
    assert sorted(os.listdir(work.parent)) == ["outside", "work"]


def test_bomb(work):
    plain = tar((f"{str(work)[1:]}/zeros", FILE, bytes(256 << 20)))
    assert len(plain) < 1 << 20
    back = run("extract", str(work), stdin=plain, max_bytes=16 << 20)
    assert back.error == BYTES
    assert os.stat(work / "zeros").st_size <= 16 << 20


def test_replace(work):
    fill(work)
    before = picture(work)
    made = run("create", str(work))
    (work / "plain").unlink()
    (work / "new").mkdir()
    os.mkfifo(work / "new" / "fifo")
    os.symlink("/etc", work / "new" / "etc")
    shut = work / "new" / "shut"
    shut.mkdir()
    (shut / "x").write_text("x")
    os.chmod(shut, 0o500)
    back = run("replace", str(work), stdin=made.stdout)
    assert back.code == 0, (back.error, back.error_number, back.name)
    assert picture(work) == before


def test_replace_leaves_what_is_excluded_and_what_links_lead_to(work):
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (work / "a").write_text("x")
    made = run("create", str(work), exclude=["cache"])
    (work / "cache").mkdir()
    (work / "cache" / "c").write_text("c")
    os.symlink(outside, work / "link")
    assert run("replace", str(work), stdin=made.stdout, exclude=["cache"]).code == 0
    assert sorted(os.listdir(work)) == ["a", "cache"]
    assert (work / "cache" / "c").exists() and (outside / "kept").exists()
    # A path that is a link itself: it goes, and nothing behind it.
    subprocess.run(["rm", "-rf", work], check=True)
    os.symlink(outside, work)
    assert run("replace", str(work), stdin=made.stdout).code == 0
    assert (work / "a").read_text() == "x" and (outside / "kept").exists()


@pytest.mark.parametrize("damage", ["cut", "nothing", "noise"])
def test_damaged(work, damage):
    (work / "file").write_bytes(os.urandom(200_000))
    stream = run("create", str(work)).stdout
    subprocess.run(["rm", "-rf", work], check=True)
    damaged = {"cut": stream[:100_000], "nothing": b"", "noise": os.urandom(5000)}[damage]
    back = run("extract", str(work), stdin=damaged)
    assert back.error == FORMAT
