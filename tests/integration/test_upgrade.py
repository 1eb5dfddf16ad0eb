"""The release before this one, this one over it on the same directories, and back."""
import os
import signal
import subprocess
import threading
import time

import pytest

from harness import BIN, BUILD, PATIENCE, ROOT, RUNTIME, SESSIONS, Daemon, wait_until
from test_adoption import end_both, shims_of
from test_commands import begin, commands, ended
from test_files import get as get_file

# The tag, and its commit for clones that have no tags.
PREVIOUS = ("v0.4.0", "450b3f295845b717c61903bdefbe4cde5bd73b80")


def git(*words, **more):
    return subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *words],
                          check=False, capture_output=True, **more)


def find_previous():
    for name in PREVIOUS:
        found = git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", text=True)
        if found.returncode == 0:
            return found.stdout.strip()
    return None


@pytest.fixture(scope="module")
def previous():
    """Its programs, built once and kept in the build directory."""
    commit = find_previous()
    if commit is None:
        pytest.skip("neither the tag v0.4.0 nor its commit is in this clone")
    source = BUILD / "previous" / commit[:12]
    if not (source / "built").exists():
        source.mkdir(parents=True, exist_ok=True)
        archive = git("archive", commit)
        assert archive.returncode == 0, archive.stderr
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
        with open(source / "log", "wb") as log:
            for command in (["cmake", "--preset", "debug"],
                            ["ninja", "-C", "build/debug", "product"]):
                done = subprocess.run(command, cwd=source, stdout=log, stderr=log, check=False)
                assert done.returncode == 0, (source / "log").read_text()[-3000:]
        (source / "built").touch()
    return source / "build" / "debug" / "bin"


class Load:
    """Requests all the time; those that meet a restart may fail, nothing else may."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.stopping = threading.Event()
        self.surprises = []
        self.n_answers = 0
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(3)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def work(self, number):
        caller = self.daemon.client(f"load{number}", workspace="load")
        while not self.stopping.is_set():
            try:
                answer = caller.get(SESSIONS, timeout=20 * PATIENCE)
                if answer.status not in (200, 503):  # the worker leaves
                    self.surprises.append(answer)
                made = caller.post(SESSIONS, {}, timeout=20 * PATIENCE)
                if made.status == 201:
                    caller.delete(f"{SESSIONS}/{made.json['id']}", timeout=20 * PATIENCE)
                elif made.status not in (429, 500, 503):
                    self.surprises.append(made)
                self.n_answers += 1
            except (OSError, ValueError):
                time.sleep(0.02)
            except Exception as error:  # pylint: disable=broad-except
                if "RemoteDisconnected" not in repr(error) and "Incomplete" not in repr(error):
                    self.surprises.append(error)


def terminal(frames):
    return [frame for frame in frames if frame["stage"] in ("done", "error")]


@pytest.mark.slow
def test_upgrade_under_load_and_back(previous):
    daemon = Daemon(programs=previous)
    daemon.deaths_expected = True
    try:
        caller = daemon.client("alice", workspace="blue")
        sessions = [caller.create(env_overrides={"kafka_bootstrap": "broker.example:9092"})
                    for _ in range(4)]
        agent = daemon.client("zoe")
        sandbox = agent.create_runtime()
        for session in sessions:
            assert caller.write(session, "one", "type: a.B\n").status == 200
        done = caller.execute(sessions[0])
        frames = caller.frames(done)
        assert terminal(frames)[0]["stage"] == "done"
        busy = daemon.client("bob").create()
        for i in range(60):
            daemon.client("bob").write(busy, f"c{i}", "attributes: [" + "1, " * 150000 + "1]\n")
        reader = begin(caller, sessions[0], "cat", stdin_open=True)
        # That release's own session, just after its start, is one more.
        shims = wait_until(lambda: (found := shims_of(daemon)) and len(found) == 6 and found, 20, "its sessions")
        with Load(daemon) as load:
            time.sleep(0.5)
            running = daemon.client("bob").execute(busy)
            time.sleep(0.2)
            end_both(daemon)
            daemon.programs = BIN
            daemon.start()
            time.sleep(0.5)
        assert not load.surprises, load.surprises[:3]
        assert load.n_answers > 0

        # Its shims speak this version: the same trees, and what ran in them goes on.
        assert "made by another release" not in daemon.log.read_text()
        wait_until(lambda: set(shims) <= set(shims_of(daemon)), 5, "the same processes")
        assert {row["id"] for row in caller.get(SESSIONS).json} == set(sessions)
        assert caller.frames(done) == frames
        told = daemon.client("bob").frames(running)
        assert [frame["stage"] for frame in terminal(told)] == ["done"], told[-3:]
        assert [frame["seq"] for frame in told] == sorted({frame["seq"] for frame in told})
        assert caller.post(commands(sessions[0], reader, "/stdin"), {"text": "on", "eof": True}).status == 200
        assert ended(caller, sessions[0], reader)["exit"]["code"] == 0
        assert get_file(caller, sessions[0], "/session/one.yaml").body == b"type: a.B\n"
        for session in sessions:
            assert caller.run(session, "/bin/cat", "/session/one.yaml").out == b"type: a.B\n"
            assert caller.get(f"{SESSIONS}/{session}").json["components"] == ["one.yaml"]
        assert terminal(caller.frames(caller.execute(sessions[0])))[0]["stage"] == "done"

        # What its tree has not is a typed error, and nothing happens to it.
        before = set(shims_of(daemon))
        for answer in (agent.post(f"{RUNTIME}/{sandbox}/git/clone", {"path": "w", "url": "https://git.example.com/r.git"}),
                       agent.post(f"{RUNTIME}/{sandbox}/snapshots"),
                       agent.get(f"{RUNTIME}/{sandbox}/files/watch?path=/session")):
            assert (answer.status, answer.json["code"], answer.json["retryable"]) == (409, "older_tree", False), answer
        assert agent.get(f"{RUNTIME}/{sandbox}/stats").json["disk"] is None
        assert agent.run(sandbox, "/bin/true").code == 0 and set(shims_of(daemon)) == before
        assert agent.delete(f"{RUNTIME}/{sandbox}").status == 200

        # This release over itself, under load: the same trees.
        shims = shims_of(daemon)
        with Load(daemon) as load:
            time.sleep(0.3)
            assert daemon.stop(signal.SIGUSR2) == 0
            daemon.start()
            time.sleep(0.3)
        assert not load.surprises, load.surprises[:3]
        wait_until(lambda: set(shims) <= set(shims_of(daemon)), 5, "the same processes")
        assert all(caller.run(s, "/bin/true").code == 0 for s in sessions)

        # And back: the older release starts on the newer schema and has the trees, too.
        assert daemon.stop(signal.SIGUSR2) == 0
        daemon.programs = previous
        daemon.start()
        assert caller.run(sessions[0], "/bin/cat", "/session/one.yaml").out == b"type: a.B\n"
        assert set(shims) <= set(shims_of(daemon))
        assert caller.frames(done) == frames
        old = caller.create()
        assert caller.write(old, "two", "type: a.B\n").status == 200
        assert terminal(caller.frames(caller.execute(old)))[0]["stage"] == "done"

        # Forward once more, over a clean stop: every row is there.
        assert daemon.stop() == 0
        daemon.programs = BIN
        daemon.start()
        assert caller.run(old, "/bin/cat", "/session/two.yaml").out == b"type: a.B\n"
        assert caller.run(caller.create(), "/bin/true").code == 0
        assert not [name for name in os.listdir(daemon.runtime / "private" / "sessions")
                    if name.startswith(tuple(sessions))]
    finally:
        daemon.done()
