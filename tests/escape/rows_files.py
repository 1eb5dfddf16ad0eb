"""A16, A18: what a session leaves in its folders for those who read and write files for others."""
import os
import signal
import tempfile
import time
from pathlib import Path

from places import harness
from table import row

RUNTIME = harness.RUNTIME
LINKS = {
    "shadow": "/etc/shadow", "init": "/proc/1/root/etc/shadow", "self": "/proc/self/root/etc/shadow",
    "magic": "/proc/self/fd/0", "up": "../../../../etc/shadow", "dangling": "/nowhere/at/all",
}
SWAP = """
import os, sys, time
os.makedirs("real", exist_ok=True)
open("real/passwd", "w").write("inside")
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    os.symlink("/etc", "next"); os.rename("next", "swapped")
    os.unlink("swapped"); os.rename("real", "swapped")
    os.rename("swapped", "real")
"""


def call(t, session, method, path, what="", **more):
    """The code of a refusal, "ok", or the status."""
    answer = session.client.request(method, f"{RUNTIME}/{session.id}/files{what}?path={path}", **more)
    if answer.status == 200:
        return "ok"
    return answer.json.get("code", str(answer.status)) if answer.status < 500 else str(answer.status)


def post(session, what, body):
    answer = session.client.post(f"{RUNTIME}/{session.id}/files/{what}", body)
    return "ok" if answer.status == 200 else answer.json.get("code", str(answer.status))


def naive(folder, name):
    """What a runner that opens the path does."""
    try:
        with open(folder / name, "rb") as file:
            return "ok" if file.read(1) else "empty"
    except OSError as error:
        return error.strerror


@row("A16", "files: read, written, copied, moved through links", "openat2 below the folder", "–")
def links(t):
    session = t.session()
    made = "; ".join(f"ln -s {target} {name}; ln -s $(dirname {target}) {name}.d" for name, target in LINKS.items())
    t.check(session.shell(made).code == 0, "the links are there")
    for name in LINKS:
        t.refused({
            "get": call(t, session, "GET", name),
            "get below": call(t, session, "GET", f"{name}.d/shadow"),
            "put below": call(t, session, "PUT", f"{name}.d/made", raw_body=b"x"),
            "list": call(t, session, "GET", f"{name}.d", "/list"),
            "chmod": post(session, "chmod", {"path": name, "mode": "777"}),
            "copy": post(session, "copy", {"from": f"{name}.d/shadow", "to": "copied"}),
            "copy to": post(session, "copy", {"from": "escape", "to": f"{name}.d/made"}),
            "move to": post(session, "move", {"from": "escape", "to": f"{name}.d/made"}),
            "mkdir": post(session, "mkdir", {"path": f"{name}.d/made"}),
            "delete": call(t, session, "DELETE", f"{name}.d/shadow"),
        }, "leads_out|file_not_found|special_file|not_folder")
    # A put replaces the link itself.
    before = Path("/etc/shadow").read_bytes()
    t.check(call(t, session, "PUT", "shadow", raw_body=b"mine") == "ok", "a link is replaced")
    t.check(Path("/etc/shadow").read_bytes() == before, "the host's file is as it was")
    swap(t, session)
    if t.controls:
        with tempfile.TemporaryDirectory() as place:
            for name, target in LINKS.items():
                os.symlink(target, Path(place) / name)
            t.succeeds({name: naive(Path(place), name) for name in ("shadow", "init", "self")})


def swap(t, session):
    """A folder that is now the session's, now a link to /etc, while it is read."""
    url = f"{RUNTIME}/{session.id}"
    begun = session.client.post(f"{url}/commands", {"argv": ["/usr/bin/python3", "-c", SWAP, "3"], "background": True})
    t.check(begun.status == 201, f"the swapping began: {begun}")
    end, seen = time.monotonic() + 3, set()
    while time.monotonic() < end:
        answer = session.client.get(f"{url}/files?path=swapped/passwd")
        seen.add(answer.body if answer.status == 200 else answer.status)
    t.check(seen <= {b"inside", 403, 404, 409}, f"the swapped folder showed {seen}")


@row("A18", "files: a FIFO, an endless one, where a file is read", "regular files only", "–")
def endless(t):
    session, other = t.session(), t.session()
    t.check(session.shell("mkfifo fifo; ln -s /dev/zero zero; mkdir d; mkfifo d/fifo").code == 0, "they are there")
    started = time.monotonic()
    t.refused({
        "get fifo": call(t, session, "GET", "fifo"),
        "copy fifo": post(session, "copy", {"from": "fifo", "to": "copied"}),
        "get zero": call(t, session, "GET", "zero"),
        "copy zero": post(session, "copy", {"from": "zero", "to": "copied"}),
    }, {"get fifo": "special_file", "copy fifo": "special_file", "get zero": "leads_out",
        "copy zero": "ok|leads_out|special_file"})
    t.check(other.shell("true").code == 0, "another session is served")
    t.check(time.monotonic() - started < 30 * harness.PATIENCE, "nobody waited for the other end")
    t.check(session.shell("test ! -f copied").code == 0, "no endless copy")
    if t.controls:
        with tempfile.TemporaryDirectory() as place:
            os.mkfifo(Path(place) / "fifo")
            t.worked(blocks(Path(place) / "fifo"), "who opens a FIFO waits")
            os.symlink("/dev/zero", Path(place) / "zero")
            t.succeeds({"zero": naive(Path(place), "zero")})


def blocks(path):
    child = os.fork()
    if child == 0:
        with open(path, "rb") as file:
            file.read(1)
        os._exit(0)
    time.sleep(0.5)
    ended, _ = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return not ended
