"""A25 to A28: images that an import unpacks. The controls unpack the same ones as root, with tar, and as they
are."""
import gzip
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from pathlib import Path

from places import harness
from table import row

FILE, FOLDER, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
# name → entries (name, type, content or target); {out} is the victim's folder, without its first slash.
OUTSIDE = {
    "absolute": [("/{out}/made", FILE, b"x")],
    "dots": [("a/" + "../" * 30 + "{out}/made", FILE, b"x")],
    "through a link": [("a", LINK, "/{out}"), ("a/made", FILE, b"x")],
    "through two": [("d", FOLDER, ""), ("d/a", LINK, "/tmp"), ("b", LINK, "d/a/{name}"), ("b/made", FILE, b"x")],
    "implied folders": [("a/b", LINK, "/{out}"), ("a/b/made/f", FILE, b"x")],
    "hard link": [("a", HARD, "/{out}/file"), ("a", FILE, b"x")],
}
REASONS = {
    "absolute": "a name is absolute", "dots": "a name is absolute", "through a link": "a path goes through a link",
    "through two": "a path goes through a link", "implied folders": "a path goes through a link",
    "hard link": "a hard link leads to what is no file",
}


def image(entries, out="", **fields):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, data in entries:
            info = tarfile.TarInfo(name.replace("{out}", out[1:]))
            info.type = kind
            info.mode = fields.get("mode", 0o755)
            info.devmajor, info.devminor = 1, 3
            if kind == FILE:
                info.size = len(data)
                info.pax_headers = fields.get("pax", {})
                archive.addfile(info, io.BytesIO(data))
            else:
                info.linkname = str(data).replace("{out}", out[1:]).replace("{name}", os.path.basename(out))
                archive.addfile(info)
    return made.getvalue()


class Place:
    """A state directory of nobody's, and a folder beside it that images aim at."""

    def __init__(self):
        self.top = Path(tempfile.mkdtemp(prefix="escape-image-", dir="/tmp"))
        self.state = self.top / "state"
        self.state.mkdir(mode=0o700)

    def victim(self):
        made = Path(tempfile.mkdtemp(prefix="escape-victim-", dir="/tmp"))
        (made / "file").write_text("as it was")
        return made

    def take(self, name, source, *words):
        """What an import says, its notes apart; "ok"."""
        done = subprocess.run([harness.BIN / "sandboxctl", "template", "import", "--state-dir", self.state, *words, name,
                               source if isinstance(source, Path) else "-"],
                              input=None if isinstance(source, Path) else source, capture_output=True, timeout=120,
                              check=False)
        text = done.stderr.decode().removeprefix("sandboxctl: template: ").strip()
        return "ok" if done.returncode == 0 else text

    def root(self, name):
        return self.state / "templates" / name / "root"

    def left(self):
        folder = self.state / "templates"
        return sorted(os.listdir(folder)) if folder.exists() else []

    def done(self):
        shutil.rmtree(self.top)


def untar(data, folder):
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xpP", "--overwrite", "--keep-directory-symlink", "--xattrs", "--xattrs-include=*", "-C",
                    folder], input=data, capture_output=True, check=False)


def is_as_it_was(victim):
    return os.listdir(victim) == ["file"] and (victim / "file").read_text() == "as it was" and \
        (victim / "file").stat().st_nlink == 1


@row("A25", "write outside with an image", "names, one by one", "an empty root", "tar as root")
def outside_of_the_image(t):
    place = Place()
    got, reached = {}, {}
    for trick, entries in OUTSIDE.items():
        victim = place.victim()
        data = image(entries, str(victim))
        said = place.take("x", data)
        got[trick] = "refused" if said.startswith(REASONS[trick]) else said
        t.check(is_as_it_was(victim) and not place.left(), f"{trick}: something is left, or outside")
        if t.controls:
            untar(data, place.top / "there")
            reached[trick] = "ok" if not is_as_it_was(victim) else "nothing happened"
            shutil.rmtree(place.top / "there")
        shutil.rmtree(victim)
    t.refused(got, "refused")
    if t.controls:
        t.succeeds(reached)
    place.done()


def what_lies_there(root):
    found = {"device": "none", "setuid": "none", "capability": "none"}
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode):
            found["device"] = "made"
        if mode & 0o6000:
            found["setuid"] = "made"
        if "security.capability" in os.listxattr(path, follow_symlinks=False):
            found["capability"] = "made"
    return found


@row("A26", "leave a device, a setuid file or a capability in an image", "not made", "no call for it", "tar as root")
def privileges_of_files(t):
    place = Place()
    capability = bytes.fromhex("0100000200040000000000000000000000000000").decode("latin1")
    data = image([("null", tarfile.CHRTYPE, ""), ("fifo", tarfile.FIFOTYPE, ""), ("su", FILE, b"x")], mode=0o6755,
                 pax={"SCHILY.xattr.security.capability": capability})
    t.check(place.take("x", data) == "ok", "the image is not taken")
    t.refused(what_lies_there(place.root("x")), "none")
    if t.controls:
        untar(data, place.top / "there")
        t.succeeds(what_lies_there(place.top / "there"), "made")
    place.done()


@row("A27", "a bomb in an image", "counted before it is made", "memory, time", "tar as root")
def bombs(t):
    place = Place()
    big = io.BytesIO()
    with gzip.GzipFile(fileobj=big, mode="wb", compresslevel=1) as out:
        info = tarfile.TarInfo("zeros")
        info.size = 64 << 20
        out.write(info.tobuf())
        for _ in range(64):
            out.write(bytes(1 << 20))
        out.write(bytes(1024))
    bombs_of = {
        "bytes": big.getvalue(),
        "files": image([(f"f{i}", FILE, b"") for i in range(2000)]),
        "folders": image([("/".join("d" * 1000), FOLDER, "")]),
    }
    got = {name: place.take("x", data, "--max-mib", "16", "--max-files", "500") for name, data in bombs_of.items()}
    t.refused({name: said.split(" than ")[0] for name, said in got.items()},
              {"bytes": "the image is larger", "*": "the image has more entries"})
    t.check(not place.left(), "something is left")
    if t.controls:
        made = {}
        for name, data in bombs_of.items():
            there = place.top / name
            untar(gzip.decompress(data) if name == "bytes" else data, there)
            paths = subprocess.run(["find", there], capture_output=True, check=True).stdout.count(b"\n")
            made[name] = "ok" if paths > 500 or name == "bytes" and (there / "zeros").stat().st_size > 16 << 20 else "small"
            subprocess.run(["rm", "-rf", there], check=True)  # deeper than Python goes
        t.succeeds(made)
    place.done()


def layout(folder, layer, changed=b""):
    """An image of one layer, whose bytes are others than its manifest says."""
    (folder / "blobs/sha256").mkdir(parents=True)
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        (folder / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    config = blob(json.dumps({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": ["x"]}}).encode(),
                  "config.v1+json")
    named = blob(layer, "layer.v1.tar")
    manifest = blob(json.dumps({"schemaVersion": 2, "config": config, "layers": [named]}).encode(), "manifest.v1+json")
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    if changed:
        (folder / "blobs/sha256" / named["digest"].split(":")[1]).write_bytes(changed)


@row("A28", "give other layers than the manifest names", "size and digest as read", "–", "the digest of the same bytes")
def other_layers(t):
    place = Place()
    good = image([("bin/sh", FILE, b"good")])
    evil = image([("bin/sh", FILE, b"evil")])
    layout(place.top / "changed", good, evil)
    t.refused({"layer": place.take("x", place.top / "changed").split(":")[0]},
              "a part of the image has other bytes than its digest says")
    t.check(not place.left(), "something is left")
    if t.controls:
        layout(place.top / "named", evil)
        t.worked(place.take("x", place.top / "named") == "ok" and
                 (place.root("x") / "bin/sh").read_bytes() == b"evil", "the same bytes under their digest are refused")
    place.done()
