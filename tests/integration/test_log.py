"""The log: its forms, its level at run time, and the request that each line belongs to."""
import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from harness import CONFIG, PATIENCE, SESSIONS, Daemon, ctl, wait_until

JOURNAL = Path("/run/systemd/journal/socket")
JOURNALD = "/lib/systemd/systemd-journald"


@pytest.fixture(scope="module")
def daemon(daemon):
    daemon.deaths_expected = True
    return daemon


def test_lines_of_a_request_carry_its_id(daemon, alice):
    answer = alice.post(SESSIONS, {}, headers={"Sandbox-Request-Id": "look-for-me"})
    assert answer.status == 201
    session = answer.json["id"]
    alice.post(f"{SESSIONS}/{session}/components", {"name": "a/b", "body": "x"},
               headers={"Sandbox-Request-Id": "refused-name"})
    task = alice.post(f"{SESSIONS}/{session}/execute", headers={"Sandbox-Request-Id": "the-task"})
    frames = alice.frames(task.json["task_id"])
    assert {frame["request_id"] for frame in frames} == {"the-task"}
    alice.delete(f"{SESSIONS}/{session}", headers={"Sandbox-Request-Id": "the-end"})

    def lines(word):
        return [line for line in daemon.log.read_text().splitlines() if f"request={word}" in line]
    for word, text in (("look-for-me", "request"), ("refused-name", "component name refused"), ("the-task", "task ended"),
                       ("the-end", "session ends"), ("the-end", "request")):
        wait_until(lambda w=word, t=text: any(f'msg="{t}"' in line for line in lines(w)), 10, f"{text} of {word}")
    assert all(line.startswith("from=sandboxd-api time=") for line in lines("the-end"))


def test_level_at_run_time(daemon, alice):
    def has(text):
        return text in daemon.log.read_text()
    assert ctl(daemon, "log-level").stdout == b"info\n"
    assert not has("level=debug")
    changed = ctl(daemon, "log-level", "debug")
    assert (changed.returncode, changed.stdout) == (0, b"debug\n")
    wait_until(lambda: has("from=sandboxd-egress") and has('msg="log level taken"'), 10,
               "the egress worker has it too")
    assert ctl(daemon, "log-level").stdout == b"debug\n"
    # A worker that starts later begins with it.
    os.kill(daemon.worker_pid("sandboxd-api"), 9)
    wait_until(daemon.ready, 20, "the next worker serves")
    wait_until(lambda: ctl(daemon, "log-level").stdout == b"debug\n", 10, "it knows the level")
    assert ctl(daemon, "log-level", "error").returncode == 0
    alice.get(SESSIONS, headers={"Sandbox-Request-Id": "below-the-level"})
    assert ctl(daemon, "log-level", "info").returncode == 0
    alice.get(SESSIONS, headers={"Sandbox-Request-Id": "told-again"})
    wait_until(lambda: has("request=told-again"), 10, "a line again")
    assert not has("request=below-the-level")


def test_level_is_the_operators(daemon, admin):
    assert admin.post("/v1/log-level", {"level": "debug"}).status == 403
    assert daemon.root.post("/v1/log-level", {"level": "loud"}).status == 422
    assert daemon.root.post("/v1/log-level", {"level": "info", "x": 1}).status == 422
    assert ctl(daemon, "log-level", "loud").returncode == 4


def test_json_lines():
    daemon = Daemon(config=CONFIG + "[supervisor]\nlog_format = json\n")
    try:
        answer = daemon.client("alice").get(SESSIONS)
        wanted = answer.headers["Sandbox-Request-Id"]
        text = wait_until(lambda: wanted in daemon.log.read_text() and daemon.log.read_text(), 10,
                          "the line")
        lines = text.splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("{"))
        # Before the configuration was read, and of the keeper, they are logfmt.
        docs = [json.loads(line) for line in lines[first:] if line.startswith("{")]
        line, = [doc for doc in docs if doc.get("request") == wanted]
        assert line["program"] == "sandboxd-api" and line["level"] == "info"
        assert line["fields"]["status"] == "200" and line["fields"]["user"] == "alice"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"])
        assert {"sandboxd"} < {doc["program"] for doc in docs}
    finally:
        daemon.done()


@pytest.fixture
def journal():
    """systemd-journald itself, on folders of the tests' own mount namespace; entries by a match."""
    folders = [Path("/run/systemd"), Path("/run/log")]
    made = [folder for folder in folders if not folder.exists()]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
    process = None
    try:
        (folders[0] / "journal").mkdir()
        (folders[1] / "journal").mkdir()
        process = subprocess.Popen([JOURNALD], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(JOURNAL.exists, 10, "the journal listens")

        def entries(match):
            done = subprocess.run(["journalctl", "-D", str(folders[1] / "journal"), "-o", "json",
                                   "--no-pager", "-q", match], capture_output=True, check=False)
            return [json.loads(line) for line in done.stdout.splitlines()]

        yield entries
    finally:
        if process:
            process.terminate()
            process.wait(10 * PATIENCE)
        for folder in folders:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        for folder in made:
            folder.rmdir()


class JournalDaemon(Daemon):
    """Its standard error is a stream of the journal, as JOURNAL_STREAM says."""

    def start(self):
        self.log.touch()
        st = self.log.stat()
        self.env["JOURNAL_STREAM"] = f"{st.st_dev}:{st.st_ino}"
        super().start()


@pytest.mark.skipif(not os.path.exists(JOURNALD), reason="systemd-journald is not installed")
def test_journal_fields(journal):
    daemon = JournalDaemon()
    try:
        answer = daemon.client("alice").get(SESSIONS)
        wanted = answer.headers["Sandbox-Request-Id"]
        entry, = wait_until(lambda: journal(f"SANDBOXD_REQUEST={wanted}"), 20, "an entry")
        assert entry["SYSLOG_IDENTIFIER"] == "sandboxd-api"
        assert entry["PRIORITY"] == "6"
        assert entry["MESSAGE"].startswith("request method=GET")
        assert entry["SANDBOXD_FIELD_STATUS"] == "200"
        # The supervisor sent it, whoever wrote it.
        assert entry["_PID"] == str(daemon.supervisor_pid())
        assert wanted not in daemon.log.read_text()
    finally:
        daemon.done()


def test_no_endpoint_value_anywhere(daemon, alice, root):
    """Six planted values: in the session's own environment, and in nothing that the service says."""
    planted = {
        "iceberg_rest_uri": "http://planted-one.example/rest",
        "iceberg_warehouse": "/session/planted-two",
        "polaris_base_url": "http://planted-three.example",
        "alpha_vantage_base_url": "http://planted-four.example",
        "datahub_gms_url": "http://planted-five.example",
        "kafka_bootstrap": "planted-six.example:9092",
    }
    ctl(daemon, "log-level", "debug")
    said = [alice.post(SESSIONS, {"env_overrides": {"kafka_bootstrap": "planted-bad value\x07"}})]
    made = alice.post(SESSIONS, {"env_overrides": planted})
    session = made.json["id"]
    inside = alice.shell(session, "env").text
    assert all(value in inside for value in planted.values())  # the control: they are there
    said += [made, alice.write(session, "one", "type: demo.Thing\n"),
             alice.post(f"{SESSIONS}/{session}/load"), alice.get(f"{SESSIONS}/{session}"),
             alice.get(SESSIONS), root.get("/metrics"), root.get("/v1/capabilities"),
             root.get(f"/v1/sandboxes/{session}/proof"), root.get(f"/v1/sandboxes/{session}/trace")]
    task = alice.execute(session)
    frames = json.dumps(alice.frames(task))
    alice.remove(session)
    ctl(daemon, "log-level", "info")
    titles = ""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                titles += Path(f"/proc/{entry}/cmdline").read_text(errors="replace")
            except OSError:
                pass
    texts = {"answers": b"".join(answer.body for answer in said).decode(), "frames": frames,
             "log": daemon.log.read_text(), "titles": titles,
             "audit": (daemon.state / "api" / "audit.jsonl").read_text()}
    assert {name for name, text in texts.items() if "planted-" in text} == set()


class Storeless(Daemon):
    """Its store is away, so nobody answers."""

    def ready(self):
        return self.log.exists()


def test_a_worker_whose_store_is_away_has_not_died():
    own = Storeless(f"{CONFIG}\n[store]\ndsn = postgresql://a:b@127.0.0.1:1/x\n")
    try:
        wait_until(lambda: "worker gave up at its start" in own.log.read_text(), 60, "its end")
        text = own.log.read_text()
        assert 'error="the server cannot be reached: connection refused"' in text and "worker died" not in text
    finally:
        own.done()
