"""Templates: images of every form come in whole or not at all, and nothing they say reaches further."""
import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

import template_rig
from harness import BIN, CONFIG, PATIENCE, RUNTIME, Daemon, wait_until

RECORD = struct.Struct("<IHHIIQQQ32s")
OURS = {"dev", "etc", "proc", "session", "tmp", "usr"}
MEDIA = "application/vnd.oci.image."


def template(state, *words, stdin=None, **more):
    done = subprocess.run([BIN / "sandboxctl", "template", words[0], "--state-dir", str(state), *map(str, words[1:])],
                          input=stdin, capture_output=True, timeout=120 * PATIENCE, check=False, **more)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


def names(state):
    """What lies in the folder of templates, left-overs too."""
    folder = state / "templates"
    return sorted(os.listdir(folder)) if folder.exists() else []


def root_of(state, name):
    return state / "templates" / name / "root"


def record_of(state, name):
    values = RECORD.unpack((state / "templates" / name / "record").read_bytes())
    return dict(zip(("magic", "version", "size", "id_base", "reserved", "bytes", "inodes", "created", "sha256"),
                    values))


def member(name, kind=tarfile.REGTYPE, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data)
    info.mode = 0o755
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def tar(*members, mode="w", form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=form) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def folder(name, **fields):
    return member(name, tarfile.DIRTYPE, **fields)


def link(name, target, **fields):
    return member(name, tarfile.SYMTYPE, linkname=target, **fields)


def hard(name, target):
    return member(name, tarfile.LNKTYPE, linkname=target)


PLAIN = [folder("bin"), member("bin/sh", data=b"#!"), folder("etc"),
         member("etc/passwd", data=b"root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh"),
         member("etc/shadow", data=b"secret", mode=0o640, gid=42), folder("home/node", uid=1000, gid=1000),
         link("sh", "bin/sh"), hard("bin/bash", "bin/sh")]


def check_plain(state, name):
    root = root_of(state, name)
    assert OURS <= set(os.listdir(root)) and stat.S_IMODE(root.stat().st_mode) == 0o755
    assert (root / "bin/sh").read_bytes() == b"#!"
    assert (root / "bin/sh").stat().st_ino == (root / "bin/bash").stat().st_ino
    assert os.readlink(root / "sh") == "bin/sh"
    shadow = (root / "etc/shadow").stat()
    assert (shadow.st_uid, shadow.st_gid, stat.S_IMODE(shadow.st_mode)) == (0, 42, 0o640)
    assert (root / "home/node").stat().st_uid == 1000
    assert (root / "etc/passwd").read_text().splitlines() == [
        "root:x:0:0:root:/session/home:/bin/sh", "user:x:1000:1000:user:/session/home:/bin/sh",
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin", "node:x:1000:1000::/home/node:/bin/sh"]
    record = record_of(state, name)
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    sizes = {path.stat().st_ino: path.stat().st_size for path in files}
    assert record["bytes"] == sum(sizes.values())
    assert record["inodes"] == len({path.lstat().st_ino for path in root.rglob("*")}) + 1
    assert record["id_base"] == 0 and abs(record["created"] - time.time()) < 600
    assert stat.S_IMODE((state / "templates").stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "templates" / name / "record").stat().st_mode) == 0o600
    return record


# --- sources -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["tar", "gz", "bz2", "xz", "zst"])
def test_archives(state, tmp_path, form):
    data = tar(*PLAIN)
    if form == "zst":
        data = subprocess.run(["zstd", "-q"], input=data, capture_output=True, check=True).stdout
    elif form != "tar":
        data = tar(*PLAIN, mode=f"w:{form}")
    (tmp_path / "image").write_bytes(data)
    assert template(state, "import", "one", tmp_path / "image") == (0, "one\n", "")
    assert check_plain(state, "one")["sha256"] == hashlib.sha256(data).digest()
    assert template(state, "import", "two", "-", stdin=data) == (0, "two\n", "")
    assert check_plain(state, "two")["sha256"] == hashlib.sha256(data).digest()
    assert names(state) == ["one", "two"]


def unpacked(folder_path, members):
    subprocess.run(["tar", "-xp", "-C", folder_path], input=tar(*members), check=True)


def test_folder(state, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    unpacked(source, PLAIN)
    (source / "etc/shadow").chmod(0o600)
    (source / "etc/shadow").chmod(0o640)
    os.setxattr(source / "bin/sh", "user.note", b"kept")
    os.setxattr(source / "bin/sh", "security.note", b"not")
    os.mkfifo(source / "fifo")
    status, out, notes = template(state, "import", "one", source)
    assert (status, out) == (0, "one\n")
    assert notes.splitlines() == ["note: 1 devices, fifos and sockets were left out",
                                  "note: 1 extended attributes were left out"]
    assert check_plain(state, "one")["sha256"] == bytes(32)
    assert os.listxattr(root_of(state, "one") / "bin/sh") == ["user.note"]
    assert not (root_of(state, "one") / "fifo").exists()


def test_times_are_kept(state):
    data = tar(folder("a", mtime=1000), member("a/f", data=b"1", mtime=2000), link("a/l", "f", mtime=3000),
               folder("a/b", mtime=4000), member("a/b/f", data=b"1", mtime=5000))
    assert template(state, "import", "one", "-", stdin=data)[0] == 0
    root = root_of(state, "one")
    assert [int((root / path).lstat().st_mtime) for path in ("a", "a/f", "a/l", "a/b", "a/b/f")] == [
        1000, 2000, 3000, 4000, 5000]


# --- what is stripped --------------------------------------------------------------------------


def test_stripped(state):
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    data = tar(member("null", tarfile.CHRTYPE, devmajor=1, devminor=3), member("sda", tarfile.BLKTYPE, devmajor=8),
               member("fifo", tarfile.FIFOTYPE), member("su", data=b"x", mode=0o6755), folder("g", mode=0o3777),
               member("ping", data=b"x", pax_headers={
                   "SCHILY.xattr.security.capability": capability.decode("latin1"),
                   "SCHILY.xattr.trusted.overlay.redirect": "/etc", "SCHILY.xattr.user.note": "kept"}),
               folder("opaque", pax_headers={"SCHILY.xattr.trusted.overlay.opaque": "y"}),
               member("layers", data=b"x", pax_headers={"SCHILY.xattr.user.overlay.metacopy": ""}),
               member("high", data=b"x", uid=4000000, gid=100000))
    status, _, notes = template(state, "import", "one", "-", stdin=data)
    assert status == 0
    assert notes.splitlines() == ["note: 3 devices, fifos and sockets were left out",
                                  "note: 2 setuid and setgid bits were taken off",
                                  "note: 4 extended attributes were left out", "note: it has no bin/sh"]
    root = root_of(state, "one")
    kinds = {stat.S_IFMT(path.lstat().st_mode) for path in root.rglob("*")}
    assert kinds <= {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}
    assert not any(path.lstat().st_mode & 0o6000 for path in root.rglob("*"))
    assert stat.S_IMODE((root / "g").stat().st_mode) == 0o1777
    assert os.listxattr(root / "ping") == ["user.note"] and os.listxattr(root / "opaque") == []
    assert os.listxattr(root / "layers") == []
    assert ((root / "high").stat().st_uid, (root / "high").stat().st_gid) == (65533, 65533)


@pytest.mark.parametrize("name", ["dev", "proc", "tmp", "session"])
@pytest.mark.parametrize("made", [lambda name: link(name, "/etc"), lambda name: member(name, data=b"file")])
def test_what_is_covered_becomes_a_folder(state, name, made):
    status, _, notes = template(state, "import", "one", "-", stdin=tar(made(name)))
    assert status == 0 and "1 links or files became the folder" in notes
    assert stat.S_ISDIR((root_of(state, "one") / name).lstat().st_mode)


@pytest.mark.parametrize("name", ["etc", "usr"])
def test_what_is_needed_must_be_a_folder(state, name):
    status, _, text = template(state, "import", "one", "-", stdin=tar(link(name, "/session")))
    assert status == 1 and f"what a session needs as a folder is none in the image: {name}" in text
    assert names(state) == []


def test_accounts_are_not_read_through_links(state):
    assert template(state, "import", "one", "-", stdin=tar(
        link("etc/passwd", "/etc/shadow"), link("etc/group", "../../../../record")))[0] == 0
    passwd = root_of(state, "one") / "etc/passwd"
    assert not passwd.is_symlink() and len(passwd.read_text().splitlines()) == 3
    assert len((root_of(state, "one") / "etc/group").read_text().splitlines()) == 4


# --- hostile archives --------------------------------------------------------------------------


def outside(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("as it was")
    return victim


def hostile(victim):
    """Each writes `made`, or over `file`, in the victim's folder where it is unpacked without care."""
    up = "../" * 40 + str(victim)[1:]
    return {
        "absolute": [member(f"{victim}/made", data=b"x")],
        "dotdot": [member(f"{up}/made", data=b"x")],
        "dotdot-inside": [folder("a"), member(f"a/../{up}/made", data=b"x")],
        "link-on-way": [link("a", str(victim)), member("a/made", data=b"x")],
        "link-up": [link("a", up), member("a/made", data=b"x")],
        "links-two": [folder("d"), link("d/a", str(victim.parent)), link("b", f"d/a/{victim.name}"),
                      member("b/made", data=b"x")],
        "file-over-link": [link("made", f"{victim}/made"), member("made", data=b"x")],
        "hard-link-absolute": [hard("a", f"{victim}/file"), member("a", data=b"x")],
        "hard-link-up": [hard("a", f"{up}/file")],
        "hard-link-by-link": [link("l", str(victim)), hard("a", "l/file")],
        "folder-over-link": [link("a", str(victim)), folder("a"), member("a/made", data=b"x")],
        "implied-folders": [link("a/b", str(victim)), member("a/b/c/made", data=b"x")],
        "hard-link-to-link": [link("l", f"{victim}/made"), hard("h", "l"), member("h", data=b"x")],
    }


# What a template may have of them: the link goes, and something else is at its name.
HARMLESS = {"file-over-link", "folder-over-link", "hard-link-to-link"}


@pytest.mark.parametrize("trick", sorted(hostile(Path("/x"))))
def test_nothing_is_written_outside(state, tmp_path, trick):
    victim = outside(tmp_path)
    before = (victim / "file").stat()
    status, _, text = template(state, "import", "one", "-", stdin=tar(*hostile(victim)[trick]))
    assert sorted(os.listdir(victim)) == ["file"] and (victim / "file").read_text() == "as it was"
    after = (victim / "file").stat()
    assert (after.st_nlink, after.st_mtime_ns, after.st_ctime_ns) == (1, before.st_mtime_ns, before.st_ctime_ns)
    if trick in HARMLESS:
        assert (status, names(state)) == (0, ["one"])
    else:
        assert (status, names(state)) == (1, []) and text.startswith("sandboxctl: template: ")


@pytest.mark.parametrize("trick", ["absolute", "dotdot", "dotdot-inside", "link-on-way", "link-up", "links-two",
                                   "implied-folders", "folder-over-link", "hard-link-absolute"])
def test_control_unpacked_without_care_they_reach_out(tmp_path, trick):
    victim = outside(tmp_path)
    there = tmp_path / "there"
    there.mkdir()
    subprocess.run(["tar", "-xP", "--overwrite", "--keep-directory-symlink", "-C", there],
                   input=tar(*hostile(victim)[trick]), check=False)
    assert os.listdir(victim) != ["file"] or (victim / "file").read_text() != "as it was"


def bomb_bytes():
    info, _ = member("zeros")
    info.size = 3 << 30
    return info


@pytest.mark.parametrize("what, data, words, text", [
    ("bytes", lambda: tar(*[member(f"f{i}", data=bytes(300 << 10)) for i in range(4)]), ["--max-mib", "1"],
     "larger than --max-mib"),
    ("announced", lambda: bomb_bytes().tobuf() + bytes(1024), ["--max-mib", "1"], "larger than --max-mib"),
    ("files", lambda: tar(*[member(f"f{i}") for i in range(50)]), ["--max-files", "20"], "more entries"),
    ("folders", lambda: tar(member("/".join("a" * 60), data=b"x")), ["--max-files", "20"], "more entries"),
    ("folders-of-a-link", lambda: tar(member("f"), hard("a/" * 60 + "h", "f")), ["--max-files", "20"], "more entries"),
    ("again", lambda: tar(*[member("f", data=b"x")] * 200), ["--max-files", "20"], "more entries"),
    ("xattrs", lambda: tar(*[member(f"f{n}", pax_headers={"SCHILY.xattr.user.a": "v" * 3000}) for n in range(400)]),
     ["--max-mib", "1"], "larger than --max-mib"),
    ("long", lambda: tar(member("a" * 300, data=b"x")), [], "a name is absolute, too long"),
    ("path", lambda: tar(member("a/" * 2100 + "f", data=b"x")), [], "a name is absolute, too long"),
    ("cut", lambda: tar(*PLAIN)[:2100], [], "cut off"),
    ("cut-gzip", lambda: tar(*PLAIN, member("r", data=os.urandom(90000)), mode="w:gz")[:50000], [], "cut off"),
    ("noise", lambda: b"\x7fELF" + bytes(range(256)) * 99, [], "no tar"),
    ("nothing", lambda: b"", [], ""),
    ("empty", lambda: tar(), [], "the image is empty"),
])
def test_bounds(state, what, data, words, text):
    status, out, said = template(state, "import", *words, "one", "-", stdin=data())
    assert (status, out) == (1, "") and text in said, said
    assert names(state) == []


def test_a_bomb_of_compression_ends(state):
    """A gigabyte of zeros in a gzip: announced as one file, or as what no file announces."""
    one = io.BytesIO()
    with gzip.GzipFile(fileobj=one, mode="wb", compresslevel=1) as out:
        info, _ = member("zeros")
        info.size = 1 << 30
        out.write(info.tobuf())
        for _ in range(1024):
            out.write(bytes(1 << 20))
    status, _, said = template(state, "import", "--max-mib", "100", "one", "-", stdin=one.getvalue())
    assert status == 1 and "larger than --max-mib" in said and names(state) == []
    info.type = tarfile.CHRTYPE
    status, _, said = template(state, "import", "--max-mib", "1", "--max-files", "10", "one", "-",
                               stdin=info.tobuf() + bytes(64 << 20) + tar(member("f")))
    assert names(state) == [] and status == 1


# --- OCI images --------------------------------------------------------------------------------


class Layout:
    def __init__(self, path):
        self.path = path
        (path / "blobs/sha256").mkdir(parents=True)
        (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, data, media, **more):
        digest = hashlib.sha256(data).hexdigest()
        (self.path / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data), **more}

    def document(self, value, media, **more):
        return self.blob(json.dumps(value).encode(), media, **more)

    def image(self, *layers, architecture="amd64", changed=None, **more):
        """layers: bytes of tar. changed: a function on the manifest."""
        config = self.document({"os": "linux", "architecture": architecture, "rootfs": {
            "type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers]}},
            MEDIA + "config.v1+json")
        blobs = [self.blob(gzip.compress(data), MEDIA + "layer.v1.tar+gzip") if i % 2 else
                 self.blob(data, MEDIA + "layer.v1.tar") for i, data in enumerate(layers)]
        manifest = {"schemaVersion": 2, "config": config, "layers": blobs}
        if changed:
            changed(manifest)
        return self.document(manifest, MEDIA + "manifest.v1+json", **more)

    def index(self, *manifests):
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": list(manifests)}))

    def file_of(self, descriptor):
        return self.path / "blobs/sha256" / descriptor["digest"].split(":")[1]


@pytest.fixture
def layout(tmp_path):
    made = tmp_path / "layout"
    made.mkdir()
    return Layout(made)


LOWER = tar(folder("a"), member("a/gone", data=b"1"), member("a/stays", data=b"1"), folder("b"),
            member("b/old", data=b"1"), folder("b/deep"), member("b/deep/er", data=b"1"), member("c", data=b"low"),
            folder("d"), member("d/in", data=b"1"), link("e", "a"), member("f/x", data=b"1"))
UPPER = tar(member("b/new", data=b"2"), member("b/.wh..wh..opq"), member("a/.wh.gone"), member("c", data=b"up"),
            member("d", data=b"file"), member(".wh.f"), member("f/y", data=b"2"), member("a/.wh.never"),
            member(".wh..wh.plnk"), member("e", data=b"file"))


def check_layers(state, name):
    root = root_of(state, name)
    found = {str(path.relative_to(root)) for path in root.rglob("*")} - OURS - {"etc/passwd", "etc/group"}
    assert found == {"a", "a/stays", "b", "b/new", "c", "d", "e", "f", "f/y"}
    assert [(root / path).read_text() for path in ("c", "d", "e")] == ["up", "file", "file"]
    record = record_of(state, name)
    assert record["inodes"] == len(list(root.rglob("*"))) + 1
    assert record["bytes"] == sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def test_layers_and_whiteouts(state, layout):
    manifest = layout.image(LOWER, UPPER)
    layout.index(manifest)
    assert template(state, "import", "one", layout.path)[:2] == (0, "one\n")
    check_layers(state, "one")
    assert record_of(state, "one")["sha256"].hex() == manifest["digest"].split(":")[1]
    packed = subprocess.run(["tar", "-C", layout.path, "-cz", "."], capture_output=True, check=True).stdout
    assert template(state, "import", "two", "-", stdin=packed)[:2] == (0, "two\n")
    check_layers(state, "two")
    assert record_of(state, "two")["sha256"] == record_of(state, "one")["sha256"]
    assert sorted(os.listdir(state / "templates/two")) == ["record", "root"]


def test_a_layer_through_a_link_is_refused(state, layout, tmp_path):
    victim = outside(tmp_path)
    layout.index(layout.image(tar(link("way", str(victim))), tar(member("way/.wh.file"))))
    status, _, text = template(state, "import", "one", layout.path)
    assert status == 1 and "through a link" in text and (victim / "file").exists()
    layout.index(layout.image(tar(link("way", str(victim))), tar(member("way/made", data=b"x"))))
    assert template(state, "import", "one", layout.path)[0] == 1
    assert os.listdir(victim) == ["file"] and names(state) == []


@pytest.mark.parametrize("whiteout", [".wh...", ".wh..", ".wh."])
def test_a_whiteout_names_a_name(state, layout, whiteout):
    layout.index(layout.image(LOWER, tar(member(f"a/{whiteout}"))))
    status, _, text = template(state, "import", "one", layout.path)
    assert status == 1 and "no name" in text and names(state) == []


def replaced(layout, descriptor, change):
    path = layout.file_of(descriptor)
    path.write_bytes(change(path.read_bytes()))


def flip(data):
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


@pytest.mark.parametrize("change", [flip, lambda data: data[:-1], lambda data: data + b"\n", lambda data: b""])
@pytest.mark.parametrize("which", ["manifest", "config", "plain", "gzip"])
def test_every_blob_is_what_was_named(state, layout, which, change):
    seen = {}
    manifest = layout.image(LOWER, UPPER, changed=seen.update)
    layout.index(manifest)
    blob = {"manifest": manifest, "config": seen["config"], "plain": seen["layers"][0], "gzip": seen["layers"][1]}
    replaced(layout, blob[which], change)
    status, _, text = template(state, "import", "one", layout.path)
    assert status == 1 and "other bytes than its digest says" in text and blob[which]["digest"][7:] in text
    assert names(state) == []


def test_blobs_are_no_links_and_are_there(state, layout, tmp_path):
    seen = {}
    layout.index(layout.image(LOWER, changed=seen.update))
    path = layout.file_of(seen["layers"][0])
    path.rename(tmp_path / "elsewhere")
    assert "a part of the image is missing" in template(state, "import", "one", layout.path)[2]
    path.symlink_to(tmp_path / "elsewhere")
    assert "a part of the image is missing" in template(state, "import", "one", layout.path)[2]


def test_choice_of_platform_and_tag(state, layout):
    amd = layout.image(tar(member("amd", data=b"1")), platform={"os": "linux", "architecture": "amd64"})
    arm = layout.image(tar(member("arm", data=b"1")), architecture="arm64",
                       platform={"os": "linux", "architecture": "arm64", "variant": "v8"})
    proof = layout.document({}, MEDIA + "manifest.v1+json", platform={"os": "unknown", "architecture": "unknown"})
    inner = layout.document({"schemaVersion": 2, "manifests": [amd, arm, proof]}, MEDIA + "index.v1+json",
                            annotations={"org.opencontainers.image.ref.name": "1.0"})
    other = layout.image(tar(member("other", data=b"1")), annotations={"org.opencontainers.image.ref.name": "2.0"})
    layout.index(inner, other)
    assert "several images" in template(state, "import", "one", layout.path)[2]
    assert "no image has this --ref" in template(state, "import", "--ref", "3.0", "one", layout.path)[2]
    assert "not for this --platform" in template(state, "import", "--ref", "1.0", "--platform", "linux/riscv64", "one",
                                                 layout.path)[2]
    assert "not for this --platform" in template(state, "import", "--ref", "2.0", "--platform", "linux/arm64", "one",
                                                 layout.path)[2]
    for words, name in ([["--ref", "1.0"], "amd"], [["--ref", "1.0", "--platform", "linux/arm64/v8"], "arm"],
                        [["--ref", "2.0"], "other"]):
        assert template(state, "import", *words, name, layout.path)[0] == 0
        assert (root_of(state, name) / name).exists()


@pytest.mark.parametrize("change, text", [
    (lambda m: m.update(schemaVersion=1), "not as the format has it"),
    (lambda m: m.pop("layers"), "not as the format has it"),
    (lambda m: m["layers"].append(m["config"]), "of an unknown kind"),
    (lambda m: m["layers"][0].update(mediaType="application/x-brotli"), "of an unknown kind"),
    (lambda m: m["layers"][0].update(digest="sha256:" + "../" * 21 + "x"), "not as the format has it"),
    (lambda m: m["layers"][0].update(digest="md5:abc"), "not as the format has it"),
    (lambda m: m["layers"][0].update(size=-1), "not as the format has it"),
    (lambda m: m["layers"].pop(), "not as the format has it"),
    (lambda m: m.update(layers=m["layers"] * 600), "not as the format has it"),
])
def test_documents(state, layout, change, text):
    layout.index(layout.image(LOWER, UPPER, changed=change))
    status, _, said = template(state, "import", "one", layout.path)
    assert status == 1 and text in said and names(state) == []


# --- the store ---------------------------------------------------------------------------------


def test_ls_and_rm(state):
    assert template(state, "ls", "-o", "name") == (0, "base\n", "")
    data = tar(*PLAIN)
    assert template(state, "import", "one", "-", stdin=data)[0] == 0
    assert template(state, "import", "a.b_c-9", "-", stdin=data)[0] == 0
    status, _, text = template(state, "import", "one", "-", stdin=data)
    assert status == 4 and "there is one of this name" in text
    assert template(state, "ls", "-o", "name")[1].split() == ["base", "a.b_c-9", "one"]
    shown = json.loads(template(state, "ls", "-o", "json")[1])
    assert shown[0] == {"name": "base"} and shown[2]["name"] == "one" and shown[2]["sessions"] == 0
    assert shown[2]["sha256"] == hashlib.sha256(data).hexdigest()
    assert shown[2]["inodes"] == record_of(state, "one")["inodes"]
    table = template(state, "ls")[1].splitlines()
    assert table[0].split() == ["NAME", "MIB", "FILES", "CREATED", "SOURCE", "SESSIONS"]
    assert hashlib.sha256(data).hexdigest()[:12] in table[3]
    assert template(state, "rm", "one") == (0, "", "")
    assert names(state) == ["a.b_c-9"]
    assert template(state, "rm", "one")[0] == 3 and template(state, "rm", "base")[0] == 4


@pytest.mark.parametrize("name", ["", "base", "A", "-a", ".a", "a/b", "a b", "a" * 64, "ä", "..", "a\n"])
def test_names(state, name):
    status, _, text = template(state, "import", "--", name, "-", stdin=tar(*PLAIN))
    assert status == 2 and "a name is" in text and names(state) == []


def held(state, name, user):
    """As a session's process holds it: a read lock of an open file description on one byte."""
    import fcntl
    fd = os.open(state / "templates" / name / "record", os.O_RDONLY)
    fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, user, 1, 0))
    return fd


def test_one_in_use_stays(state):
    assert template(state, "import", "one", "-", stdin=tar(*PLAIN))[0] == 0
    fds = [held(state, "one", user) for user in (8, 9, 28670)]
    assert json.loads(template(state, "ls", "-o", "json")[1])[1]["sessions"] == 3
    status, _, text = template(state, "rm", "one")
    assert status == 4 and "sessions use it" in text
    check_plain(state, "one")
    for fd in fds:
        os.close(fd)
    assert template(state, "rm", "one")[0] == 0 and names(state) == []


def started(state, *words):
    return subprocess.Popen([BIN / "sandboxctl", "template", words[0], "--state-dir", str(state), *words[1:]],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def half(state):
    """An import that has begun and waits for the rest."""
    running = started(state, "import", "one", "-")
    data = tar(*PLAIN, folder("deep/er/" * 30), member("last", data=os.urandom(1 << 20)))
    running.stdin.write(data[:len(data) - 300000])
    running.stdin.flush()
    deadline = time.monotonic() + 20 * PATIENCE
    while not (state / "templates/.import/tree/root/last").exists():
        assert time.monotonic() < deadline, "the import did not begin"
        time.sleep(0.01)
    return running


def jails():
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"sandbox-template\0unpack\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_import_leaves_nothing(state, number):
    running = half(state)
    assert template(state, "import", "two", "-", stdin=tar(*PLAIN))[0] == 4
    assert jails()
    running.send_signal(number)
    assert running.wait(20 * PATIENCE) == 1 and b"interrupted" in running.stderr.read()
    running.stdin.close()
    wait_until(lambda: not jails(), 10, "the jail is gone")
    assert names(state) == []


def test_a_killed_jail_is_an_error(state):
    running = half(state)
    os.kill(jails()[0], signal.SIGKILL)
    assert running.wait(20 * PATIENCE) == 1 and b"ended without a word" in running.stderr.read()
    running.stdin.close()
    assert names(state) == []


@pytest.mark.parametrize("options, data", [
    ("size=2m", lambda: tar(member("big", data=bytes(4 << 20)))),
    ("nr_inodes=40", lambda: tar(*[member(f"f{i}") for i in range(60)])),
])
def test_a_full_disk(state, options, data):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", state], check=True)
    try:
        status, _, text = template(state, "import", "one", "-", stdin=data())
        assert status == 1 and "the system refused a step" in text and "No space left" in text
        assert names(state) == []
        assert template(state, "import", "one", "-", stdin=tar(*PLAIN))[0] == 0
    finally:
        subprocess.run(["umount", state], check=True)


def test_a_killed_import_is_removed_by_the_next(state):
    running = half(state)
    assert jails()
    running.kill()
    running.wait()
    assert names(state) == [".import"]
    wait_until(lambda: not jails(), 10, "the jail is gone")
    running.stdin.close()
    assert template(state, "ls", "-o", "name")[1] == "base\n"
    assert template(state, "import", "two", "-", stdin=tar(*PLAIN))[0] == 0
    assert names(state) == ["two"]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def held_in_setgroups():
    """A process that its tracer holds there."""
    for path in Path("/proc").glob("[0-9]*/syscall"):
        with contextlib.suppress(OSError):
            if path.read_text().startswith("116 "):
                return int(path.parent.name)
    return None


def test_a_killed_removal_is_finished_by_the_next(state):
    assert template(state, "import", "one", "-", stdin=tar(*PLAIN))[0] == 0
    (state / "templates/one").rename(state / "templates/.removed")
    (state / "templates/.removed/trash/0/1").mkdir(parents=True)
    assert template(state, "rm", "one")[0] == 3
    assert names(state) == []


def test_what_a_killed_removal_left_stays_while_it_is_used(state):
    """A launch that had found the template by its name holds it once the removal is dead."""
    assert template(state, "import", "one", "-", stdin=tar(*PLAIN))[0] == 0
    (state / "templates/one").rename(state / "templates/.removed")
    fd = held(state, ".removed", 8)
    for words in (("import", "two", "-"), ("rm", "one")):
        status, _, text = template(state, *words, stdin=tar(*PLAIN))
        assert status == 4 and "sessions use it" in text, text
        check_plain(state, ".removed")
    os.close(fd)
    assert template(state, "import", "two", "-", stdin=tar(*PLAIN))[0] == 0 and names(state) == ["two"]


def test_a_jail_whose_starter_died_before_it_asked_to_hear_of_that(state):
    """Held at the call before; let go when its parent is dead."""
    tracer = subprocess.Popen(["strace", "-qq", "-f", "-o", "/dev/null", "-e", "trace=setgroups", "-e",
                               "inject=setgroups:delay_enter=3600s", BIN / "sandboxctl", "template", "import",
                               "--state-dir", str(state), "one", "-"],
                              stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        tracer.stdin.write(tar(*PLAIN))
        tracer.stdin.close()
        jail = wait_until(held_in_setgroups, 20, "the jail is held")
        parent = int(Path(f"/proc/{jail}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(parent, signal.SIGKILL)
        wait_until(lambda: not alive(parent), 20, "its parent is dead")
        assert alive(jail)
    finally:
        tracer.kill()
        tracer.wait()
    wait_until(lambda: not alive(jail), 20, "the jail ends")
    assert os.listdir(state / "templates/.import/tree") == []
    assert template(state, "import", "one", "-", stdin=tar(*PLAIN))[0] == 0 and names(state) == ["one"]


def test_the_jail_has_nothing(state):
    running = half(state)
    pids = jails()
    assert len(pids) == 1
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pids[0]}/status").read_text().splitlines()
                  if ":\t" in line)
    assert status["Uid"].split() == [str(0x6fff0000)] * 4 and status["Groups"].split() == []
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert status["CapEff"] == status["CapBnd"] == status["CapPrm"] == f"{0b1011:016x}"
    ours = {name: os.readlink(f"/proc/self/ns/{name}") for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")}
    assert not any(os.readlink(f"/proc/{pids[0]}/ns/{name}") == value for name, value in ours.items())
    assert os.listdir(f"/proc/{pids[0]}/root") == []
    fds = {int(name): os.readlink(f"/proc/{pids[0]}/fd/{name}") for name in os.listdir(f"/proc/{pids[0]}/fd")}
    assert fds[2] == "/dev/null" and fds[0].startswith("pipe:") and fds[1].startswith("pipe:")
    assert all(path.startswith("/") for number, path in fds.items() if number > 2)
    running.kill()
    running.communicate()


@pytest.mark.parametrize("mount", [["-t", "tmpfs", "-o", "mode=700", "none"], ["--bind"]])
def test_a_mount_that_the_service_does_not_see_is_refused(state, tmp_path, mount):
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    folder_of = state / "templates"
    folder_of.mkdir(mode=0o700)
    subprocess.run(["mount", *mount, *([other] if "--bind" in mount else []), folder_of], check=True)
    try:
        for words in (("import", "one", "-"), ("ls",), ("rm", "one")):
            status, out, text = template(state, *words, stdin=tar(*PLAIN))
            assert (status, out) == (1, "") and "which is a mount of its own" in text, text
        assert names(state) == []
    finally:
        subprocess.run(["umount", folder_of], check=True)
    assert template(state, "import", "one", "-", stdin=tar(*PLAIN))[0] == 0


def test_only_root(state):
    done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", BIN / "sandboxctl", "template", "ls"],
                          capture_output=True, check=False)
    assert done.returncode == 4 and b"only root" in done.stderr


def test_a_record_of_another_kind_is_not_used(state):
    assert template(state, "import", "one", "-", stdin=tar(*PLAIN))[0] == 0
    record = state / "templates/one/record"
    good = record.read_bytes()
    for bad in (b"", good + b"x", b"\0" * len(good), good[:4] + b"\2" + good[5:], good[:8] + b"\1" + good[9:]):
        record.write_bytes(bad)
        status, out, text = template(state, "ls", "-o", "name")
        assert (status, out) == (0, "base\n") and "one cannot be used" in text
    record.chmod(0o644)
    assert "one cannot be used" in template(state, "ls")[2]
    assert template(state, "rm", "one")[0] == 0 and names(state) == []


@pytest.fixture
def unmappable(tmp_path):
    """A state directory on a file system whose mounts cannot be mapped."""
    mounted = tmp_path / "mounted"
    for name in ("mounted", "lower", "upper", "work"):
        (tmp_path / name).mkdir(mode=0o700)
    done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                           f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work", mounted],
                          check=False)
    if done.returncode != 0:
        pytest.skip("no overlay can be mounted here")
    yield mounted
    subprocess.run(["umount", mounted], check=True)
    shutil.rmtree(tmp_path / "work", ignore_errors=True)


def test_a_file_system_that_cannot_be_mapped(unmappable):
    """Then all is of the block's ids, and says so."""
    assert template(unmappable, "import", "one", "-", stdin=tar(*PLAIN)) == (0, "one\n", "")
    assert record_of(unmappable, "one")["id_base"] == 0x6fff0000
    assert (root_of(unmappable, "one") / "etc/shadow").stat().st_gid == 0x6fff0000 + 42
    assert template(unmappable, "rm", "one") == (0, "", "") and names(unmappable) == []


def move_owners(state, name, distance):
    """As a copy to another file system leaves one that was made with those owners."""
    made = state / "templates" / name
    # By inode: a file with two names moves once.
    for path in {path.lstat().st_ino: path for path in (made / "root", *(made / "root").rglob("*"))}.values():
        owner = path.lstat()
        os.chown(path, owner.st_uid + distance, owner.st_gid + distance, follow_symlinks=False)
    record = (made / "record").read_bytes()
    (made / "record").write_bytes(record[:8] + struct.pack("<I", record_of(state, name)["id_base"] + distance) + record[12:])


def test_one_that_was_made_where_nothing_could_be_mapped_goes(state):
    """Copied since, it is the block's still, and holds nothing up."""
    assert template(state, "import", "one", "-", stdin=tar(*PLAIN))[0] == 0
    move_owners(state, "one", 0x6fff0000)
    assert template(state, "rm", "one") == (0, "", "") and names(state) == []


def test_one_that_was_made_where_all_could_be_mapped_goes(unmappable):
    """The other way round: it is of plain users, whom the block's ids cannot act for."""
    assert template(unmappable, "import", "one", "-", stdin=tar(*PLAIN))[0] == 0
    move_owners(unmappable, "one", -0x6fff0000)
    (root_of(unmappable, "one") / "etc").chmod(0)
    assert template(unmappable, "rm", "one") == (0, "", "") and names(unmappable) == []


# --- with the service --------------------------------------------------------------------------


def test_what_was_imported_is_a_session(tmp_path, layout):
    """An image of two layers, while the service runs; the second has a user, and takes something away."""
    template_rig.tree(tmp_path / "root")
    lower = subprocess.run(["tar", "-C", tmp_path / "root", "-c", "."], capture_output=True, check=True).stdout
    upper = tar(member("opt/.wh.marker"), member("opt/other", data=b"of the second layer\n", mode=0o600),
                member("etc/passwd", data=b"root:x:0:0::/root:/bin/bash\nnode:x:1001:1001::/:/bin/sh\n"),
                member("srv/node/own", data=b"x", mode=0o600, uid=1000, gid=1000))
    layout.index(layout.image(lower, upper))
    daemon = Daemon(config=CONFIG + "[limits]\nmemory = 1024GiB\n")
    try:
        assert template(daemon.state, "import", "two-layers", layout.path)[:2] == (0, "two-layers\n")
        client = daemon.client("ana")
        session = client.create_runtime(template="two-layers")
        assert client.shell(session, "ls /opt; cat /opt/other; stat -c %u:%g /opt/other /srv/node/own; grep node /etc/passwd",
                            user="root").text.splitlines() == [
            "other", "of the second layer", "0:0", "1000:1000", "node:x:1001:1001::/:/bin/sh"]
        assert client.shell(session, "cat /srv/node/own; id -un; cat /opt/other 2>/dev/null || echo refused"
                            ).text.splitlines() == ["xuser", "refused"]
        assert json.loads(template(daemon.state, "ls", "-o", "json")[1])[1]["sessions"] == 1
        status, _, text = template(daemon.state, "rm", "two-layers")
        assert status == 4 and "sessions use it" in text
        assert client.shell(session, "cat /opt/other", user="root").text == "of the second layer\n"
        client.delete(f"{RUNTIME}/{session}")
        wait_until(lambda: template(daemon.state, "rm", "two-layers")[0] == 0, 10, "nobody uses it")
        assert client.post(RUNTIME, {"template": "two-layers"}).status == 422
    finally:
        daemon.done()
