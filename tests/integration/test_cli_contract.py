"""What holds for each verb of sandboxctl: its exit statuses, and that no answer reaches the terminal as it is."""
import base64
import http.server
import json
import os
import pty
import re
import signal
import socketserver
import subprocess
import threading

import pytest

from harness import ABSENT_ID, BIN, PATIENCE, ROOT, ctl

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\x7f"
WORDS = {"SESSION": ABSENT_ID, "SESSION...": ABSENT_ID, "TASK": ABSENT_ID, "FILE": "/dev/null", "MINUTES": "5",
         "COMMAND": "/bin/true", "NAME": "name", "LEVEL": "info", "SESSION:PATH": f"{ABSENT_ID}:file", "URL": "https://git.example.com/a.git",
         "BRANCH": "main", "COMMIT": "main", "FILE...": "file", "TEXT": "text", "AUTHOR": "A <a@example.com>"}
# These ask no service.
LOCAL = {"doctor", "completion", "audit", "config check", "config show", "secret put", "secret ls", "secret rm", "migrate",
         "template import", "template ls", "template rm"}
# These would wait for more.
ENDLESS = {"watch": ["--interval", "1"], "top": ["--once"]}


CONNECTIONS = ROOT / "tests/data/connections.json"


def verbs():
    """Each verb with words that fit its usage, from the program itself."""
    shown = subprocess.run([str(BIN / "sandboxctl"), "--help"], capture_output=True, text=True, check=True).stdout
    found = {}
    for verb in re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S", shown.split("Options of")[0], re.M):
        usage = subprocess.run([str(BIN / "sandboxctl"), *verb.split(), "--help"], capture_output=True, text=True,
                               check=True).stdout.splitlines()[0]
        left = re.sub(r"\[[^]]*\]", "", usage.split(verb, 1)[1]).split(" | ", maxsplit=1)[0]
        words = [WORDS.get(word, word) for word in left.split()]
        if verb == "airbyte import":
            words = [str(CONNECTIONS)]
        found[verb] = [*verb.split(), *ENDLESS.get(verb, []), *(["--yes"] if verb == "purge" else []), *words]
    return found


ASKING = {verb: words for verb, words in verbs().items() if verb not in LOCAL}
ABOUT_ONE = {verb: words for verb, words in ASKING.items() if ABSENT_ID in " ".join(words)}


def test_the_table_is_complete():
    assert {"run", "exec", "create", "ls", "show", "watch", "top", "purge", "gc", "quota"} <= set(ASKING)
    assert {"show", "exec", "logs", "cancel", "ttl", "rm", "tasks", "denials", "egress"} <= set(ABOUT_ONE)


@pytest.mark.parametrize("verb", verbs())
def test_unknown_options_are_2(verb):
    # verbs() has seen that --help works for each.
    result = subprocess.run([str(BIN / "sandboxctl"), *verb.split(), "--nonsense"], capture_output=True,
                            timeout=60 * PATIENCE, check=False)
    assert result.returncode == 2 and b"usage: sandboxctl " + verb.encode() in result.stderr


@pytest.mark.parametrize("verb", ["secret", "config", "template"])
def test_help_of_a_verb_with_a_second_word(verb):
    result = subprocess.run([str(BIN / "sandboxctl"), verb, "--help"], capture_output=True, timeout=60 * PATIENCE, check=False)
    assert result.returncode == 0 and b"usage: sandboxctl " + verb.encode() in result.stdout
    result = subprocess.run([str(BIN / "sandboxctl"), verb], capture_output=True, timeout=60 * PATIENCE, check=False)
    assert result.returncode == 2 and not result.stdout and b"usage: sandboxctl " + verb.encode() in result.stderr


def test_a_file_that_is_not_there_is_named(tmp_path):
    path = str(tmp_path / "none.conf")
    result = subprocess.run([str(BIN / "sandboxctl"), "config", "check", path], capture_output=True, timeout=60 * PATIENCE,
                            check=False)
    assert result.returncode == 3 and path.encode() + b" cannot be opened" in result.stderr


@pytest.mark.parametrize("option", ["--user", "--workspace", "--project", "--scopes"])
@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_a_name_makes_no_header_of_its_own(daemon, option, end):
    result = ctl(daemon, "ls", "--user", "alice", option, f"x{end}X-Sandbox-Project: red",
                 socket_path=daemon.control)
    assert result.returncode == 1 and b"control characters" in result.stderr, result


@pytest.mark.parametrize("verb", ABOUT_ONE)
def test_nothing_there_is_3(daemon, verb):
    result = ctl(daemon, *ABOUT_ONE[verb])
    assert result.returncode == 3, result


@pytest.mark.parametrize("verb", ASKING)
def test_without_a_scope_it_is_4(daemon, verb):
    words = ["version"] if verb == "version" else ["--user", "alice", *ASKING[verb]]
    result = ctl(daemon, *words, socket_path=daemon.control)
    assert result.returncode == (0 if verb == "version" else 4), result


@pytest.mark.parametrize("verb", ASKING)
def test_no_service_is_5(daemon, tmp_path, verb):
    result = ctl(daemon, *ASKING[verb], socket_path=tmp_path / "none.sock")
    if verb == "version":
        assert result.returncode == 0 and b"not reachable" in result.stdout
    else:
        assert result.returncode == 5 and b"start it" in result.stderr, result


# A service of another mind: every text of its answers is hostile.

def document(depth=0):
    inner = {} if depth > 1 else {"sandbox": document(depth + 1), "metadata": document(depth + 1)}
    problem = {"file": EVIL, "text": EVIL, "line": 1, "column": 2}
    base = {key: EVIL for key in ("owner", "workspace_id", "status", "created_at", "expires_at", "message",
                                  "step", "errno", "detail", "version", "kind", "what", "time", "advice", "code",
                                  "last_run_id", "path", "from", EVIL)}
    return {"id": ABSENT_ID[:-1] + "0" + EVIL, "task_id": ABSENT_ID, **base, **inner,
            "program": {"comm": EVIL, "pid": 1}, "asset_keys": [[EVIL, EVIL]], "components": [EVIL],
            "steps": [{"name": EVIL, "side": EVIL, "us": 1}], "dropped": [EVIL], "problems": [problem],
            "host": {EVIL: {"limit": 1, "used": 1}}, "result": {"ok": False, "problems": [problem]},
            "namespaces": {EVIL: {}}, "in_force": [EVIL], "capabilities": {"shim": EVIL}, "denials": [base], "rules": [base],
            "commands": [{**base, "command_id": EVIL, "cmd": EVIL}], "snapshots": [{**base, "snapshot_id": EVIL}],
            "production_reachable_by_credentials": [EVIL], "snapshot_keys": {EVIL: {"configured": True, "snapshots": 1}},
            "current_branch": EVIL, "upstream": EVIL, "ahead": 1, "files": [{"path": EVIL, "from": EVIL, "index": EVIL, "worktree": "modified"}],
            "commits": [{"commit": EVIL, "subject": EVIL, "author": {"name": EVIL, "date": EVIL}}], "commit": EVIL, "diff": EVIL,
            "stderr": EVIL,
            "memory_bytes": 1, "cpu_us": 1, "pids": 1, "shim_pid": 1, "id_base": 65536, "limits": {EVIL: EVIL}, "limits_effective": {EVIL: EVIL}}


def stream():
    out = base64.b64encode(EVIL.encode()).decode()
    frame = document(1)
    lines = [{"type": "stdout", "data": out}, {"type": "stderr", "data": out}]
    lines += [{**frame, "type": "moved", "stage": stage, "seq": i + 1} for i, stage in enumerate(("start", "materialize", "log", EVIL))]
    lines += [{**frame, "stage": "done", "seq": 5, "type": "exit", "code": 1}]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    status = 200
    detail = EVIL

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if self.status != 200:
            body = json.dumps({"detail": self.detail, "stderr": EVIL, "code": "suspended"}).encode()
        elif "ndjson" in self.headers.get("Accept", ""):
            body = stream()
        elif re.search(r"/(sessions|tasks|denials|airbyte-connections)$", path) and self.command == "GET":
            body = json.dumps([document(), {**document(), "id": ABSENT_ID[:-1] + "1"}]).encode()
        else:
            body = json.dumps(document()).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = answer

    def address_string(self):
        return "client"

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "s"

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    with Server(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def on_terminal(socket, words, seconds=20, until=None):
    """Both outputs of sandboxctl on a terminal, to its end or until it has said this."""
    master, slave = pty.openpty()
    with subprocess.Popen(["timeout", "-s", "INT", str(seconds), str(BIN / "sandboxctl"), "--socket", str(socket), *words],
                          stdin=subprocess.DEVNULL, stdout=slave, stderr=slave) as process:
        os.close(slave)
        got = b""
        try:
            while more := os.read(master, 65536):
                got += more
                if until and until in got:
                    process.send_signal(signal.SIGTERM)  # timeout passes it on
                    until = None
        except OSError:
            pass
        process.wait(30 * PATIENCE)
    os.close(master)
    assert b"Sanitizer" not in got and b"runtime error:" not in got, got
    return got


def is_clean(shown):
    # What sandboxctl itself writes: the bar, the screen of watch and top, colours.
    ours = re.sub(rb"\r\x1b\[K|\x1b\[H\x1b\[2J|\x1b\[(3[123]|0)m", b"", shown)
    return not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]", ours)


@pytest.mark.parametrize("verb", ASKING)
def test_no_answer_reaches_the_terminal_as_it_is(hostile, verb):
    words = ASKING[verb]
    Handler.status = 200
    shown = on_terminal(hostile, words, 20 * PATIENCE, until=b"pwned" if verb == "watch" else None)
    assert is_clean(shown), (words, shown)
    silent = ("run", "create", "write", "rm", "purge", "top", "proof", "airbyte rm", "airbyte write", "shell", "attach", "kill", "cp", "snapshot rm",
              "snapshot create", "snapshot restore", "airbyte import", "git push")
    assert b"pwned" in shown or verb in silent, (words, shown)
    assert is_clean(on_terminal(hostile, ["-o", "json", *words], 2 if verb == "watch" else 20 * PATIENCE)), words
    for Handler.status, Handler.detail in ((404, EVIL), (422, [{"loc": ["body", EVIL], "msg": EVIL}]), (503, EVIL)):
        shown = on_terminal(hostile, words, 2)
        assert is_clean(shown), (words, Handler.status, shown)


def test_a_short_id_that_fits_several_lists_them(hostile):
    Handler.status = 200
    result = subprocess.run([str(BIN / "sandboxctl"), "--socket", str(hostile), "show", ABSENT_ID[:6]],
                            capture_output=True, timeout=30 * PATIENCE, check=False)
    assert result.returncode == 2 and result.stdout == b""
    listed = result.stderr.decode().splitlines()
    assert listed[0] == f"sandboxctl: {ABSENT_ID[:6]} is the beginning of several ids:"
    assert [line.strip()[:36] for line in listed[1:]] == [ABSENT_ID[:-1] + "0", ABSENT_ID[:-1] + "1"]
    assert is_clean(result.stderr)
