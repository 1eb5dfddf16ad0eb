"""A17, E6: archives that somebody else made, where the service puts back what it has kept."""
import contextlib
import hashlib
import io
import json
import os
import signal
import sqlite3
import tarfile
import tempfile
from pathlib import Path

from places import harness
from table import row

RUNTIME = harness.RUNTIME
FILE, FOLDER, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
MARK = b"escaped"
# name → entries (name, type, content or target); {out} lies outside of the workspace.
HOSTILE = {
    "absolute": [("/{out}/made", FILE, MARK)],
    "dots": [("session/w/../../{out}/made", FILE, MARK)],
    "outside": [("{out}/made", FILE, MARK)],
    "through a link": [("session/w/l", LINK, "/{out}"), ("session/w/l/made", FILE, MARK)],
    "folder, then a link": [("session/w/d", FOLDER, ""), ("session/w/d", LINK, "/{out}"), ("session/w/d/made", FILE, MARK)],
    "hard link out": [("session/w/h", HARD, "{out}/secret"), ("session/w/h", FILE, MARK)],
    "hard link through a link": [("session/w/l", LINK, "/{out}/secret"), ("session/w/h", HARD, "session/w/l")],
    "twice": [("session/w/f", FILE, b"1"), ("session/w/f", FILE, MARK)],
    "device": [("session/w/null", tarfile.CHRTYPE, "")],
    "fifo": [("session/w/fifo", tarfile.FIFOTYPE, "")],
    "huge name": [("session/w/" + "a/" * 3000 + "f", FILE, MARK)],
}


def stream(entries, out):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, data in entries:
            info = tarfile.TarInfo(name.replace("{out}", out))
            info.type = kind
            if kind == FILE:
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            else:
                info.linkname = data.replace("{out}", out)
                info.devmajor, info.devminor = 1, 3
                archive.addfile(info)
    return made.getvalue()


def post(session, what, body=None):
    answer = session.client.post(f"{RUNTIME}/{session.id}/{what}", body, timeout=120)
    return answer.json if answer.status in (200, 201) else answer.json.get("code", str(answer.status))


def planted(daemon, session, streams):
    """Whoever may write to the store: each stream as a snapshot of the session, with its right digest. name → id."""
    first = post(session, "snapshots")
    (text,), = daemon.sql("SELECT runtime_json FROM dagster_sandbox_sessions WHERE id = ?", session.id)
    document = json.loads(text)
    row_of = document["snapshots"][0]
    ids = {}
    document["snapshots"] = []
    for number, (name, data) in enumerate(streams.items()):
        ids[name] = f"{number:08x}{first['snapshot_id'][8:]}"
        file = f"{session.id}-{ids[name]}.tar.zst"
        path = daemon.state / "api" / "snapshots" / file
        path.write_bytes(data)
        worker = harness.status_of(daemon.worker_pid("sandboxd-api"))["Uid"].split()[0]
        os.chown(path, int(worker), int(worker))
        reference = {**row_of["ref"], "name": file, "bytes": len(data),
                     "digest": hashlib.blake2b(data, digest_size=32).hexdigest()}
        document["snapshots"].append({**row_of, "id": ids[name], "ref": reference})
    # Rows are read by the next worker.
    daemon.deaths_expected = True
    worker = daemon.worker_pid("sandboxd-api")

    def written():
        """While the worker stands still; where it does so in the middle of a write of its own, it goes on first."""
        with harness.stopped(worker), contextlib.suppress(sqlite3.OperationalError):
            daemon.sql("UPDATE dagster_sandbox_sessions SET runtime_json = ? WHERE id = ?", json.dumps(document), session.id)
            os.kill(worker, signal.SIGKILL)
            return True

    harness.wait_until(written, 60, "its rows are written")
    harness.wait_until(lambda: daemon.worker_pid("sandboxd-api") != worker and daemon.ready(), 30)
    return ids


@row("A17", "hostile archives, put back by the service", "names, types, links", "–")
def archives(t):
    session = t.session(agent=True, workspace={"include": ["w"]})
    t.check(session.shell("mkdir w; echo 1 > w/a").code == 0, "there is a workspace")
    outside = "session/out"
    t.check(session.shell("mkdir out; echo secret > out/secret").code == 0, "there is something outside")
    ids = planted(t.daemon, session, {name: stream(entries, outside) for name, entries in HOSTILE.items()})
    t.refused({name: post(session, "restore", {"snapshot_id": ids[name], "replace": True}) for name in ids},
              "snapshot_damaged|exists|changed")
    seen = session.shell("ls out; cat out/secret; stat -c %h out/secret; find w -type c -o -type p | wc -l")
    t.check(seen.text.split() == ["secret", "secret", "1", "0"], f"outside the workspace: {seen.text}")
    if t.controls:
        with tempfile.TemporaryDirectory() as place:
            t.succeeds({name: unpacked(Path(place) / str(n), HOSTILE[name])
                        for n, name in enumerate(("absolute", "dots", "outside", "through a link", "twice", "device", "fifo"))})


def unpacked(place, entries):
    """What a program that believes the archive makes."""
    (place / "root" / "session" / "w").mkdir(parents=True)
    out = place / "out"
    out.mkdir()
    text = str(out)[1:]
    dots = os.path.relpath(out, place / "root" / "session")
    entries = [(name.replace("../../{out}", f"../{dots}"), kind, data) for name, kind, data in entries]
    with tarfile.open(fileobj=io.BytesIO(stream(entries, text))) as archive:
        for info in archive:
            if info.name.startswith(text):
                info.name = f"/{info.name}"
            archive.extract(info, place / "root")
    if (out / "made").exists() and (out / "made").read_bytes() == MARK:
        return "ok"
    made = [path for path in (place / "root").rglob("*") if path.name in ("null", "fifo", "f")]
    return "ok" if made and not (made[0].is_file() and made[0].read_bytes() != MARK) else "nothing"


@row("E6", "a snapshot that is not what was written", "digest, before anything is touched", "–")
def damaged(t):
    session = t.session(agent=True, workspace={"include": ["w"]})
    t.check(session.shell("mkdir w; echo first > w/a").code == 0, "there is a workspace")
    made = post(session, "snapshots")
    path = t.daemon.state / "api" / "snapshots" / f"{session.id}-{made['snapshot_id']}.tar.zst"
    good = path.read_bytes()
    t.check(session.shell("echo second > w/a").code == 0, "it goes on")
    got = {}
    forms = {"another archive": stream([("session/w/a", FILE, MARK)], ""), "cut": good[:-1], "longer": good + b"\0",
             "a byte": good[:20] + bytes([good[20] ^ 1]) + good[21:]}
    forms["of the same size"] = forms["another archive"][:len(good)].ljust(len(good), b"\0")
    for name, data in forms.items():
        path.write_bytes(data)
        got[name] = post(session, "restore", {"snapshot_id": made["snapshot_id"], "replace": True})
    path.unlink()
    path.symlink_to("/etc/passwd")
    got["a link"] = post(session, "restore", {"snapshot_id": made["snapshot_id"], "replace": True})
    path.unlink()
    t.refused(got, {"*": "snapshot_damaged", "a link": "snapshot_damaged"})
    t.check(session.shell("cat w/a").text == "second\n", "nothing was touched")
    if t.controls:
        path.write_bytes(good)
        back = post(session, "restore", {"snapshot_id": made["snapshot_id"], "replace": True})
        t.worked(session.shell("cat w/a").text == "first\n", f"the right one goes back: {back}")
        with tarfile.open(fileobj=io.BytesIO(forms["another archive"])) as archive:
            t.worked(archive.extractfile("session/w/a").read() == MARK, "another archive can be read")
