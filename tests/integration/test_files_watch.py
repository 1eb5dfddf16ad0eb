"""What changes in a folder of a session, as a stream."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import pytest

from harness import BIN, PATIENCE, RUNTIME, SLOW, UnixConnection, ctl, sse_events, wait_until
from runtime_rig import fixture_caller, fixture_session  # noqa: F401  pylint: disable=unused-import

WATCHES = 4


def url(session, path, **query):
    return f"{RUNTIME}/{session}/files/watch?{urllib.parse.urlencode({'path': path, **query})}"


class Watch(threading.Thread):
    """Reads until the stream's end. It has begun when this is made."""

    def __init__(self, caller, session, path, recursive=False):
        super().__init__(daemon=True)
        connection = UnixConnection(caller.path, 300)
        connection.request("GET", url(session, path, recursive=str(recursive).lower()), headers=caller.headers)
        self.socket = connection.sock
        self.answer = connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.seen = []
        first = json.loads(self.answer.readline())
        assert first["type"] == "ready" and first["is_folder"], first
        self.path = first["path"]
        self.start()

    def run(self):
        for line in self.answer:
            self.seen.append(json.loads(line))

    def has(self, kind, path, seconds=20, **more):
        wanted = {"type": kind, "path": path, **more}

        def found():
            return any(wanted.items() <= event.items() for event in self.seen)
        wait_until(found, seconds, f"{wanted} in {self.seen[-20:]}")

    def short(self):
        """Types and paths, without repetitions one after the other."""
        found = []
        for event in self.seen:
            one = (event["type"], event["path"].removeprefix(self.path).lstrip("/"))
            if not found or found[-1] != one:
                found.append(one)
        return found

    def stop(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.join(20 * PATIENCE)
        assert not self.is_alive()


def shell(caller, session, script):
    result = caller.shell(session, script)
    assert result.code == 0, result
    return result


def test_a_folder(caller, session):
    shell(caller, session, "mkdir -p w/below; echo old >w/old")
    watch = Watch(caller, session, "w")
    assert watch.path == "/session/w"
    shell(caller, session, "cd w; echo 1 >a; chmod 600 a; mv a b; mkdir d; rm b; rmdir d; mv old ..; mv ../old in;"
                           "echo not told >below/x; : >last")
    watch.has("closed", "/session/w/last")
    assert watch.short() == [
        ("created", "a"), ("modified", "a"), ("closed", "a"), ("changed", "a"), ("moved", "b"), ("created", "d"),
        ("removed", "b"), ("removed", "d"), ("removed", "old"), ("created", "in"), ("created", "last"), ("closed", "last")]
    moved = next(event for event in watch.seen if event["type"] == "moved")
    assert moved == {"type": "moved", "path": "/session/w/b", "from": "/session/w/a", "is_folder": False}
    assert next(event for event in watch.seen if event["path"].endswith("/d"))["is_folder"] is True
    # What comes by the API is a change like any other, and seen under its own name when it is whole.
    assert caller.request("PUT", f"{RUNTIME}/{session}/files?path=w/put", raw_body=b"x" * 100000).status == 200
    watch.has("moved", "/session/w/put")
    shell(caller, session, "rm -r w")
    watch.has("gone", "/session/w")
    watch.join(20 * PATIENCE)
    assert not watch.is_alive(), "the stream has ended"
    assert watch.seen[-1]["type"] == "gone"


def test_below(caller, session):
    shell(caller, session, "mkdir -p w/a/b/c w/x")
    watch = Watch(caller, session, "w", recursive=True)
    shell(caller, session, "cd w; : >a/b/c/deep; mkdir -p n/e/w; : >n/e/w/f; mv a/b x/moved; : >x/moved/c/again;"
                           "mv x ../out; : >../out/not-told; mv ../out back; : >back/moved/c/known; rm -r n")
    watch.has("created", "/session/w/a/b/c/deep")
    watch.has("created", "/session/w/n/e/w/f", is_folder=False)
    watch.has("created", "/session/w/n/e/w", is_folder=True)
    watch.has("moved", "/session/w/x/moved", **{"from": "/session/w/a/b", "is_folder": True})
    watch.has("created", "/session/w/x/moved/c/again")
    watch.has("removed", "/session/w/x", is_folder=True)
    watch.has("created", "/session/w/back")
    watch.has("created", "/session/w/back/moved/c/again")
    watch.has("created", "/session/w/back/moved/c/known")
    watch.has("removed", "/session/w/n", is_folder=True)
    assert not [event for event in watch.seen if event["path"].endswith("not-told") and "/out/" in event["path"]]
    assert not [event for event in watch.seen if event["type"] == "overflow"]
    # Everything is still watched, also where a folder took another one's place.
    shell(caller, session, "cd w; mkdir p q; mv -T p q; : >q/one; mkdir p; : >p/two; mv back/moved/c .; : >c/three")
    for path in ("q/one", "p/two", "c/three"):
        watch.has("closed", f"/session/w/{path}")


def test_links_lead_nowhere(caller, session):
    shell(caller, session, "mkdir w in; ln -s /etc w/etc; ln -s ../in w/in; ln -s /etc out; ln -s in inner; ln -s loop loop;"
                           "mkfifo w/fifo; : >file")
    watch = Watch(caller, session, "w", recursive=True)
    shell(caller, session, ": >in/not-told; ln -s / w/root; ln -s ../in w/again; : >in/neither; : >w/told")
    watch.has("closed", "/session/w/told")
    assert ("created", "root") in watch.short() and ("created", "again") in watch.short()
    assert not [path for _, path in watch.short() if "not-told" in path or "neither" in path or path.startswith("root/")]
    # A link counts where it stays below the folder, as for every file.
    inner = Watch(caller, session, "inner")
    shell(caller, session, ": >in/by-link")
    inner.has("closed", "/session/inner/by-link")
    for path, error in (("out", (403, "leads_out")), ("w/etc", (403, "leads_out")), ("loop", (403, "leads_out")),
                        ("none", (404, "file_not_found")), ("file", (409, "not_folder")), ("w/fifo", (409, "not_folder"))):
        answer = caller.get(url(session, path))
        assert (answer.status, answer.json.get("code")) == error, (path, answer)
    for path in ("..", "/etc", "/proc", "", "a/../.."):
        assert caller.get(url(session, path)).status == 422, path
    assert caller.get(url(session, "w", recursive="maybe")).status == 422
    assert caller.get(f"{RUNTIME}/{session}/files/watch").status == 422


def test_names_of_any_bytes(caller, session):
    watch = Watch(caller, session, "/tmp")
    shell(caller, session, "cd /tmp; : >\"$(printf 'bad\\377')\"; : >'ä b\n\"c'; : >\"$(printf 'x%.0s' $(seq 255))\"")
    watch.has("closed", "/tmp/" + "x" * 255)
    watch.has("closed", "/tmp/ä b\n\"c")
    watch.has("closed", "/tmp/bad�", path_base64="L3RtcC9iYWT/")


def test_forms(caller, session):
    stream = caller.lines("GET", url(session, "/session"), headers={"Accept": "text/event-stream"})
    assert json.loads(next(sse_events(stream))[1])["type"] == "ready"
    shell(caller, session, ": >a")
    assert json.loads(next(sse_events(stream))[1]) == {
        "type": "created", "path": "/session/a", "is_folder": False}
    stream.close()


def helpers(daemon):
    """Processes of the session that are in one of its folders by an inotify descriptor of ours."""
    found = []
    for shim in daemon.shim_pids():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{shim}/ns/pid") and any(
                        os.readlink(f"/proc/{pid}/fd/{fd}") == "anon_inode:inotify" for fd in os.listdir(f"/proc/{pid}/fd")):
                    found.append(pid)
            except OSError:
                pass
    return found


def test_as_many_as_may_be(daemon, caller, session):
    watches = [Watch(caller, session, "/session") for _ in range(WATCHES)]
    answer = caller.get(url(session, "/session"))
    assert (answer.status, answer.json["code"]) == (429, "quota"), answer
    assert len(helpers(daemon)) == WATCHES, "the control: they are seen"
    shell(caller, session, ": >a")
    for watch in watches:
        watch.has("closed", "/session/a")
        watch.stop()
    # The room of those whose clients left is free again, and nothing of them is left.
    wait_until(lambda: not helpers(daemon), 20, "the helpers have ended")

    def another():
        try:
            return Watch(caller, session, "/session")
        except AssertionError:  # that they have ended is not known yet
            return None

    again = wait_until(another, 10, "there is room")
    assert caller.shell(session, "true").code == 0
    again.stop()


def test_a_slow_reader_is_told_of_a_loss(caller, session):
    """It reads nothing while far more happens than anybody keeps; then it hears of that, and of what follows."""
    stream = caller.lines("GET", url(session, "/tmp", recursive="true"), timeout=300 * PATIENCE)
    assert json.loads(next(stream))["type"] == "ready"
    name = "n" * 200
    shell(caller, session, f"python3 - <<'X'\nimport os\nfor n in range(60000):\n"
                           f"    os.close(os.open('/tmp/{name}%d' % (n % 7), os.O_CREAT | os.O_WRONLY))\n"
                           f"    os.unlink('/tmp/{name}%d' % (n % 7))\nos.makedirs('/tmp/after/a/loss')\nX")
    reading = threading.Event()
    seen = {}

    def read():
        for line in stream:
            event = json.loads(line)
            seen[event["type"]] = seen.get(event["type"], 0) + 1
            if event["path"].endswith("/loss/end"):
                break
        reading.set()
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    wait_until(lambda: "overflow" in seen, 120, "it is told")
    deadline = time.monotonic() + 60 * SLOW
    while not reading.is_set() and time.monotonic() < deadline:
        # Made again and again: by when the folder is found again is not known.
        shell(caller, session, "rm -f /tmp/after/a/loss/end; : >/tmp/after/a/loss/end")
        reading.wait(0.5)
    assert reading.is_set(), "folders that came meanwhile are watched"
    stream.close()


def test_it_ends_with_its_session(daemon, caller):
    session = caller.create_runtime()
    watch = Watch(caller, session, "/session")
    assert caller.delete(f"{RUNTIME}/{session}").status == 200
    watch.join(20 * PATIENCE)
    assert not watch.is_alive()
    assert watch.seen[-1]["type"] == "error" and watch.seen[-1]["code"] == "session_closed", watch.seen
    # A tree that dies.
    session = caller.create_runtime()
    watch = Watch(caller, session, "/session")
    for pid in daemon.shim_pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    watch.join(20 * PATIENCE)
    assert not watch.is_alive() and watch.seen[-1]["type"] == "error", watch.seen
    assert caller.delete(f"{RUNTIME}/{session}").status == 200


def test_instances_that_the_session_used_up(caller, session):
    hog = caller.post(f"{RUNTIME}/{session}/commands", {"background": True, "argv": ["python3", "-c", (
        "import ctypes, time\nc = ctypes.CDLL(None)\nwhile c.inotify_init1(0) >= 0: pass\nopen('full', 'w').close()\n"
        "time.sleep(600)\n")]})
    assert hog.status == 201, hog
    wait_until(lambda: caller.get(f"{RUNTIME}/{session}/files/stat?path=full").status == 200, 30, "all are used")
    answer = caller.get(url(session, "/session"))
    assert (answer.status, answer.json["code"]) == (429, "quota"), answer
    killed = caller.post(f"{RUNTIME}/{session}/commands/{hog.json['command_id']}/signal", {"signal": "KILL"})
    assert killed.status == 200, killed
    caller.get(f"{RUNTIME}/{session}/commands/{hog.json['command_id']}/wait")
    Watch(caller, session, "/session").stop()


def test_more_folders_than_are_watched(caller, session):
    shell(caller, session, "python3 - <<'X'\nimport os\nfor n in range(9000):\n    os.makedirs(f'/tmp/w/{n // 100}/{n}')\nX")
    watch = Watch(caller, session, "/tmp/w", recursive=True)
    watch.has("overflow", "/tmp/w")
    shell(caller, session, ": >/tmp/w/told")
    watch.has("closed", "/tmp/w/told")
    watch.stop()


def test_the_verb(daemon, caller, session, tmp_path):
    name = tmp_path / "out"
    shell(caller, session, "mkdir d")
    with open(name, "wb") as out:
        process = subprocess.Popen([str(BIN / "sandboxctl"), "--socket", str(daemon.operator), "changes", "-r",
                                    f"{session}:/session"], stdout=out)
    try:
        def told():
            shell(caller, session, "echo >d/a; mv d/a \"d/b$(printf '\\033')\"; rm d/b*")
            return "moved     /session/d/a -> /session/d/b\\x1b\n" in name.read_text()
        wait_until(told, 30, "lines")
        process.send_signal(signal.SIGINT)
        assert process.wait(20 * PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    assert "\x1b" not in name.read_text()
    assert ctl(daemon, "changes", "/session").returncode == 2
    assert ctl(daemon, "changes", f"{session}:none").returncode == 3


@pytest.mark.parametrize("path", ["/session", "/tmp"])
def test_stats_have_the_disk(caller, session, path):
    stats = caller.get(f"{RUNTIME}/{session}/stats").json
    before = stats["disk"][path]
    assert 0 < before["used_inodes"] < before["max_inodes"] and before["used_bytes"] < before["size_bytes"], stats
    shell(caller, session, f"cd {path}; head -c 3000000 /dev/zero >f; touch 1 2 3 4 5")
    after = caller.get(f"{RUNTIME}/{session}/stats").json["disk"][path]
    assert after["used_bytes"] - before["used_bytes"] >= 3000000
    assert after["used_inodes"] - before["used_inodes"] >= 6
    assert (after["size_bytes"], after["max_inodes"]) == (before["size_bytes"], before["max_inodes"])
