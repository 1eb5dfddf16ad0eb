"""/healthz, /readyz and /metrics: the form that Prometheus takes, and no series that a caller makes."""
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess

import pytest
import time

from harness import PATIENCE, ROOT, SLOW, wait_until

NAME = re.compile(r"^[a-z][a-z0-9_]*$")
SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (-?[0-9.]+|\+Inf|NaN)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"(?:,|$)')
LABELS = {"class", "encrypted", "from", "kind", "le", "part", "result", "side", "state", "step", "what", "worker"}
UNITS_NOT_BASE = ("_ms", "_us", "_minutes", "_kib", "_mib", "_percent")


@pytest.fixture(scope="module")
def daemon(daemon):
    daemon.deaths_expected = True
    return daemon


def parse(text):
    """{family: (type, [(sample name, {label: value}, value)])}; what is not well formed fails."""
    families, helped = {}, set()
    current = None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current, help_text = line[7:].split(" ", 1)
            assert current not in helped, f"{current}: HELP twice"
            assert help_text.strip()
            helped.add(current)
            continue
        if line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == current and name not in families, line
            families[name] = (kind, [])
            continue
        match = SAMPLE.match(line)
        assert match, line
        name, labels, value = match.groups()
        pairs = LABEL.findall(labels or "")
        assert ",".join(f'{k}="{v}"' for k, v in pairs) == (labels or ""), line
        kind, samples = families[current]
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        assert name in [current + suffix for suffix in suffixes], line
        samples.append((name, dict(pairs), float(value)))
    assert helped == set(families)
    return families


def series(families):
    return {
        (name, tuple(sorted(labels.items())))
        for _, samples in families.values()
        for name, labels, _ in samples
    }


def value(daemon, name, **labels):
    families = parse(daemon.root.get("/metrics").body.decode())
    for _, samples in families.values():
        for sample, pairs, number in samples:
            if sample == name and pairs == labels:
                return number
    return None


def test_rules_of_promtool(daemon, alice):
    session = alice.create()
    alice.run(session, "true")
    answer = daemon.root.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = parse(answer.body.decode())
    for name, (kind, samples) in families.items():
        assert NAME.match(name) and name.startswith("sandboxd_"), name
        assert kind in ("counter", "gauge", "histogram"), name
        assert name.endswith("_total") == (kind == "counter"), name
        assert not name.endswith(UNITS_NOT_BASE) and not name.endswith(("_bucket", "_count", "_sum"))
        assert kind not in name.split("_"), name
        assert len(series({name: (kind, samples)})) == len(samples), f"{name}: a series twice"
    for name, (kind, samples) in families.items():
        if kind == "histogram":
            check_histogram(name, samples)
    alice.remove(session)


def check_histogram(name, samples):
    groups = {}
    for sample, labels, number in samples:
        rest = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        groups.setdefault(rest, {}).setdefault(sample[len(name):], []).append(
            (labels.get("le"), number))
    for parts in groups.values():
        buckets = parts["_bucket"]
        bounds = [float(le) for le, _ in buckets]
        counts = [number for _, number in buckets]
        assert bounds == sorted(bounds) and bounds[-1] == float("inf")
        assert counts == sorted(counts) and counts[-1] == parts["_count"][0][1]
        assert len(parts["_sum"]) == len(parts["_count"]) == 1


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool(daemon):
    text = daemon.root.get("/metrics").body
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_series_of_a_caller(daemon):
    """Users, workspaces, sessions, endpoints, commands and errors make no series."""
    first = daemon.client("warm", workspace="up")
    made = first.create()
    first.run(made, "true")
    first.remove(made)
    before = series(parse(daemon.root.get("/metrics").body.decode()))
    sessions = []
    for i in range(8):
        caller = daemon.client(f"tenant-{i}", workspace=f"space-{i}", project=f"project-{i}")
        sessions.append((caller, caller.create(
            env_overrides={"kafka_bootstrap": f"broker-{i}.example:9092"})))
        caller.run(sessions[-1][1], "sh", "-c", f"exit {i}")
        caller.get(f"/no/such/{i}")
    text = daemon.root.get("/metrics").body.decode()
    families = parse(text)
    assert series(families) == before
    assert {k for _, labels in before for k, _ in labels} <= LABELS
    for word in ("tenant-", "space-", "project-", "broker-", *[s for _, s in sessions]):
        assert word not in text
    for caller, session in sessions:
        caller.remove(session)


def test_readyz_names_the_supervisor(daemon, root):
    """Stopped, with a launch that it owes an answer."""
    supervisor = daemon.supervisor_pid()
    os.kill(supervisor, signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            made = pool.submit(root.create)
            wait_until(lambda: root.get("/readyz").json.get("reason") == "supervisor", 20, "noticed")
            os.kill(supervisor, signal.SIGCONT)
            session = made.result(30 * PATIENCE)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: root.get("/readyz").json == {"status": "ready"}, 20, "ready again")
    root.remove(session)


def test_every_family_is_in_the_manual(daemon):
    page = (ROOT / "docs/man/sandboxd-api.7").read_text(encoding="utf-8")
    told = re.findall(r"^\.It Cm (sandboxd_\S+)", page, re.M)
    assert sorted(told) == sorted(parse(daemon.root.get("/metrics").body.decode()))


def test_counts(daemon, alice):
    created = value(daemon, "sandboxd_create_seconds_count")
    spawned = value(daemon, "sandboxd_exec_seconds_count", step="spawn")
    cloned = value(daemon, "sandboxd_launch_step_seconds_count", side="parent", step="clone")
    open_before = value(daemon, "sandboxd_sessions_by_state", state="open")
    session = alice.create()
    alice.run(session, "true")
    assert value(daemon, "sandboxd_create_seconds_count") == created + 1
    assert value(daemon, "sandboxd_exec_seconds_count", step="spawn") == spawned + 1
    assert value(daemon, "sandboxd_exec_seconds_count", step="run") == spawned + 1
    assert value(daemon, "sandboxd_launch_step_seconds_count", side="parent",
                 step="clone") == cloned + 1
    assert value(daemon, "sandboxd_launch_step_seconds_sum", side="shim", step="ready") > 0
    assert value(daemon, "sandboxd_sessions_by_state", state="open") == open_before + 1
    assert value(daemon, "sandboxd_tasks_waiting") == 0
    alice.remove(session)


def at_rest(daemon, name):
    """What those before this test have left behind them is counted, too."""
    last = value(daemon, name)
    while True:
        time.sleep(1 * SLOW)
        now = value(daemon, name)
        if now == last:
            return now
        last = now


def test_a_secret_that_is_not_there_is_no_failed_launch(daemon, alice):
    ended = at_rest(daemon, "sandboxd_sessions_ended_total")
    failed = value(daemon, "sandboxd_launch_failures_total")
    assert alice.post("/dagster/sandbox/sessions", {"secrets": ["none"]}).status == 422
    assert value(daemon, "sandboxd_launch_failures_total") == failed
    assert value(daemon, "sandboxd_sessions_ended_total") == ended
    audit = (daemon.state / "api" / "audit.jsonl").read_text()
    assert '"reason":"launch"' not in audit.replace(" ", "")
    alice.remove(alice.create())
    wait_until(lambda: value(daemon, "sandboxd_sessions_ended_total") == ended + 1, 10, "one that did end")


def test_a_restart_shows(daemon, alice):
    """The api worker is killed: its successor counts the restart and the session it adopted."""
    session = alice.create()
    before = value(daemon, "sandboxd_worker_restarts_total", worker="api")
    os.kill(daemon.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(daemon.ready, 20, "the next worker serves")
    wait_until(lambda: daemon.root.get("/readyz").status == 200, 20, "ready")
    wait_until(lambda: value(daemon, "sandboxd_worker_restarts_total", worker="api") == before + 1, 10, "it is counted")
    wait_until(lambda: value(daemon, "sandboxd_adoptions_total", result="adopted") == 1, 10, "and what it adopted")
    alice.remove(session)


def test_readyz_names_the_egress_worker(daemon):
    before = value(daemon, "sandboxd_worker_restarts_total", worker="egress")

    def down():
        answer = daemon.root.get("/readyz")
        return answer.status == 503 and answer.json["reason"] == "egress" and answer.json["text"]

    # A worker that is killed again and again is paused longer and longer before its next try.
    seen = None
    for n in range(12):
        pid = daemon.worker_pid("sandboxd-egress")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid not in daemon.processes().get("sandboxd-egress", []), 10, "killed")
        end = time.monotonic() + 2
        while n >= 3 and not seen and time.monotonic() < end:
            seen = down()
        if seen:
            break
    assert seen == "0 of 1 egress workers are up"
    wait_until(lambda: daemon.root.get("/readyz").status == 200, 30, "ready again")
    assert daemon.root.get("/readyz").json == {"status": "ready"}
    assert daemon.root.get("/healthz").json == {"status": "ok"}
    assert value(daemon, "sandboxd_worker_restarts_total", worker="egress") >= before + 1


def test_client_that_leaves_is_no_failure_of_ours(daemon, alice):
    def told():
        families = parse(daemon.root.get("/metrics").body.decode())
        answers = {labels["class"]: n for _, labels, n in families["sandboxd_http_answers_total"][1]}
        return answers["5xx"]

    failed = told()
    headers = {**alice.headers, "Host": "x", "Content-Length": "9"}
    head = "\r\n".join(["POST /dagster/sandbox/sessions HTTP/1.1",
                        *[f"{name}: {text}" for name, text in headers.items()], "", "{"])
    for _ in range(3):
        alice.raw(head.encode(), timeout=0.2, answered=False)
    wait_until(lambda: daemon.log.read_text().count("status=0 ") >= 3, 10, "they left")
    assert told() == failed
