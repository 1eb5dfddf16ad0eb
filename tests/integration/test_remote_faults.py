"""A service elsewhere whose tokens end, that refuses, is slow, loses its streams and goes away: what is answered, what goes
on, and that nothing is left. Each test looks whether its fault came."""
import threading
import time

import pytest

from conformance_rig import Sandbox, kill_provider, refused, refused_by, runs, tried
from harness import CONFIG, RUNTIME, SLOW, Daemon, Result, wait_until
from remote_standin import Service

# Less than is kept of a command (COMMAND_KEPT_MAX_BYTES): a reader that has caught up may fall behind by all of it.
COUNTED = "".join(f"{n}\n" for n in range(1, 120001)).encode()


@pytest.fixture(name="service", scope="module")
def fixture_service():
    service = Service()
    yield service
    service.done()


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(service):
    daemon = Daemon(CONFIG + "[api]\nprovider = remote\n" + service.config())
    daemon.deaths_expected = True  # a worker whose service is away ends, and is started again
    yield daemon
    daemon.done()


@pytest.fixture(name="caller")
def fixture_caller(daemon, service):
    service.calm()
    wait_until(lambda: daemon.readiness() == 200, 40, "the provider is up")
    yield daemon.client("ana")
    service.calm()


@pytest.fixture(name="sandbox")
def fixture_sandbox(caller, daemon, service):
    made = Sandbox(caller, caller.create_runtime())
    yield made
    service.calm()
    wait_until(lambda: daemon.readiness() == 200, 40, "the provider is up")
    assert made.delete().status == 200


def created(caller):
    return caller.post(RUNTIME, {}, timeout=90 * SLOW)


def nothing_is_left(service):
    wait_until(lambda: service.engine.containers() == {} and service.under_way == {}, 60, "no sandbox is left")


def gone(caller, answer):
    assert answer.status == 201, answer
    assert Sandbox(caller, answer.json["sandbox_uuid"]).delete().status == 200


def reached(sandbox, path):
    answer = tried(lambda: sandbox.caller.get(sandbox.url("/files", path=path)), 200)
    return answer and answer.body


# --- tokens


def test_a_token_that_is_no_longer_good_is_replaced(service, sandbox):
    """In every kind of request; and what runs does not notice."""
    command = sandbox.begin("read x; echo $x", stdin_open=True)
    for ask in (lambda: sandbox.done("/suspend"), lambda: sandbox.done("/resume"), lambda: sandbox.get("/stats"),
                lambda: gone(sandbox.caller, created(sandbox.caller))):
        n_tokens, n_unauthorized = service.n_tokens, service.n_unauthorized
        service.expire()
        ask()
        assert service.n_unauthorized > n_unauthorized, "the fault was met"
        assert service.n_tokens > n_tokens
    sandbox.done(f"/commands/{command}/stdin", {"text": "still here\n", "eof": True})
    assert sandbox.ended(command)["code"] == 0
    assert sandbox.output(command) == b"still here\n"


def test_a_stream_with_an_old_token(service, sandbox):
    n_unauthorized = service.n_unauthorized
    sandbox.put("file", b"kept")
    service.expire()
    service.cut_all()
    assert sandbox.bytes("file") == b"kept"
    assert service.n_unauthorized > n_unauthorized, "the fault was met"


def test_a_token_is_renewed_before_its_end(service, caller):
    """Where its time is nearly over, and nothing was refused for it."""
    service.expires_in = 8 * SLOW  # a quarter of it is ahead of the end
    service.expire()
    gone(caller, created(caller))
    n_tokens, n_unauthorized = service.n_tokens, service.n_unauthorized
    made = Sandbox(caller, caller.create_runtime())
    wait_until(lambda: made.get("/stats").status == 200 and service.n_tokens > n_tokens + 1, 60, "it was renewed")
    assert service.n_unauthorized == n_unauthorized
    assert made.delete().status == 200


@pytest.mark.parametrize("request_line", ["PUT ", "POST .*/stream$"])
def test_a_second_refusal_is_the_answer(caller, service, request_line):
    service.refuse = [[request_line, 401, 2]]
    n_tokens = service.n_tokens
    refused_by(caller, service.refuse)
    assert service.n_tokens > n_tokens
    nothing_is_left(service)
    gone(caller, created(caller))


def test_a_token_that_is_not_given(caller, service):
    """Whoever waited for it is told; nothing was asked with another one."""
    service.expire()
    service.refuse = [["POST .*/token$", 503, 1]]
    refused_by(caller, service.refuse, service.expire)
    nothing_is_left(service)
    gone(caller, created(caller))


def test_the_credential_is_exchanged(daemon, caller, service, sandbox):
    """It is read where it is not taken any more; nothing of what lives is lost."""
    sandbox.put("file", b"kept")
    former = service.credential
    service.credential = "another-one"
    try:
        service.expire()
        service.cut_all()
        wait_until(lambda: daemon.readiness() == 503, 40, "it is not taken")
        refused(wait_until(lambda: tried(lambda: caller.post(RUNTIME, {}), 503), 30), 503, "provider_unavailable", True)
        service.write_credential("another-one")
        wait_until(lambda: daemon.readiness() == 200, 60, "it is read again")
        wait_until(lambda: reached(sandbox, "file") == b"kept", 30, "what it has")
    finally:
        service.write_credential(former)
        service.credential = former


# --- refusals


@pytest.mark.parametrize("status", [403, 500, 503])
@pytest.mark.parametrize("request_line", ["PUT ", "POST .*/stream$"])
def test_a_refusal_is_a_typed_error_and_leaves_nothing(caller, service, request_line, status):
    service.refuse = [[request_line, status, 1]]
    refused_by(caller, service.refuse)
    nothing_is_left(service)
    gone(caller, created(caller))


def test_a_question_that_fails_is_asked_again(caller, service):
    """Whether it runs, and whether it has gone."""
    service.refuse = [["GET .*/sandboxd-", 500, 2]]
    answer = created(caller)
    assert service.refuse[0][2] == 0, "the fault was met"
    service.refuse = [["GET .*/sandboxd-", 500, 2]]
    gone(caller, answer)
    nothing_is_left(service)


def test_a_conflict_is_what_an_earlier_try_left(caller, service, sandbox):
    """The real one: a sandbox that was said to be deleted is there when its row is used again."""
    sandbox.put("file", b"lost")
    n_asked = len(service.asked)
    n_conflicts = service.n_conflicts
    name = service.engine.inspect(sandbox.name)["Name"].lstrip("/")
    service.kept.add(name)
    service.engine.podman("kill", name)
    wait_until(lambda: runs(sandbox), 60, "another one")
    refused(sandbox.read("file"), 404, "file_not_found")
    assert service.n_conflicts > n_conflicts, "the fault was met"
    assert {one["id"] for one in service.asked[n_asked:]} == {sandbox.name}
    service.refuse = [["PUT ", 409, 2]]
    refused_by(caller, service.refuse)


def test_an_answer_that_is_lost_on_the_way(caller, service):
    """A gateway says 502 of what was made: it is not left."""
    service.lose = [["PUT ", 502, 1]]
    n_asked = len(service.asked)
    refused_by(caller, service.lose)
    assert len(service.asked) > n_asked, "it was made"
    nothing_is_left(service)


def test_a_create_that_comes_later(caller, service):
    """Than its answer was waited for, and than its end was asked for: it is not left."""
    service.delay = [["PUT ", 12, 1]]
    n_asked = len(service.asked)
    refused_by(caller, service.delay)
    wait_until(lambda: len(service.asked) > n_asked, 60, "it is made")
    nothing_is_left(service)


# --- lists


def test_a_list_that_does_not_end(daemon, service, sandbox):
    """Nobody waits for it for ever: the worker ends and asks again."""
    sandbox.put("file", b"kept")
    n_seen, n_ends = len(service.seen), daemon.log.read_text().count("provider ends")
    service.is_endless = True
    kill_provider(daemon)
    wait_until(lambda: daemon.log.read_text().count("provider ends") > n_ends, 60, "it gives up")
    assert len([line for line in service.seen[n_seen:] if "&after=" in line]) > 1, "the fault was met"
    service.is_endless = False
    wait_until(lambda: daemon.readiness() == 200, 60, "it is told")
    wait_until(lambda: reached(sandbox, "file") == b"kept", 30, "what it has")


def test_a_list_that_is_late(daemon, service, sandbox):
    """Later than the api worker waits for it."""
    sandbox.put("file", b"kept")
    service.delay = [["GET .*/sandboxes[?]", 12, 1]]
    kill_provider(daemon)
    wait_until(lambda: service.delay[0][2] == 0, 60, "the fault was met")
    wait_until(lambda: daemon.readiness() == 200, 90, "it is told")
    wait_until(lambda: reached(sandbox, "file") == b"kept", 30, "what it has")


# --- slow


def test_a_pause_that_is_slow(service, sandbox):
    """It is told when it is so."""
    service.slow_pause = 2
    sandbox.begin("while :; do echo x >> beat; sleep 0.05; done")
    wait_until(lambda: sandbox.size("beat") > 0, 20, "it runs")
    assert service.engine.containers()[sandbox.name] == "running"
    sandbox.done("/suspend")
    assert service.engine.containers()[sandbox.name] == "paused"
    sandbox.done("/resume")
    assert service.engine.containers()[sandbox.name] == "running"
    size = sandbox.size("beat")
    wait_until(lambda: sandbox.size("beat") > size, 20, "it goes on")


def test_a_slow_start(caller, service):
    service.slow_start = 4
    n_seen = len(service.seen)
    began = time.monotonic()
    answer = created(caller)
    assert time.monotonic() - began >= 4
    assert len([line for line in service.seen[n_seen:] if line.startswith("GET ")]) > 1, "it was asked for"
    gone(caller, answer)
    service.slow_start = 32
    began = time.monotonic()
    refused(created(caller), 503, "provider_unavailable", True)
    assert time.monotonic() - began > 20, "it was waited for"
    service.slow_start = 0
    nothing_is_left(service)


def test_one_that_does_not_start(caller, service):
    """Its engine refuses: what it says then is any other state."""
    n_failed = service.n_failed
    make, service.body_of = service.body_of, lambda wanted: {**type(service).body_of(service, wanted), "Entrypoint": ["/none"]}
    try:
        refused(created(caller), 503, "provider_unavailable", True)
        assert service.n_failed > n_failed, "the fault was met"
    finally:
        service.body_of = make
    nothing_is_left(service)
    gone(caller, created(caller))


# --- streams


@pytest.mark.parametrize("n_bytes", [1, 9, 1000, 100000, 500000])
def test_a_stream_is_lost_in_the_middle(service, sandbox, n_bytes):
    """No byte is lost, and none comes twice."""
    n_cut = service.n_cut
    command = sandbox.begin("read x; seq 1 120000; cat", stdin_open=True, hold_output=True)
    service.lose_after = n_bytes
    sandbox.done(f"/commands/{command}/stdin", {"text": "go\n"})
    got = []
    reader = threading.Thread(target=lambda: got.append(Result(sandbox.stream(command))))
    reader.start()
    wait_until(lambda: service.n_cut > n_cut, 20, "it was lost")
    sandbox.done(f"/commands/{command}/stdin", {"text": "and this\n", "eof": True})
    reader.join(120 * SLOW)
    assert got and got[0].code == 0, got
    assert got[0].out == COUNTED + b"and this\n"


def test_every_stream_is_cut_after_a_while(service, sandbox):
    """As services do that end each after ten minutes: here after half a second."""
    n_cut = service.n_cut
    service.cut_after = 0.5
    said = sandbox.events("i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; sleep 0.05; done; echo err >&2; exit 7")
    got = Result(said)
    assert (got.out, got.err, got.code) == ("".join(f"{n}\n" for n in range(1, 101)).encode(), b"err\n", 7)
    data = bytes(range(256)) * 20000
    for _ in range(3):
        assert sandbox.put("file", data).json["size"] == len(data)
        assert sandbox.bytes("file") == data
    wait_until(lambda: service.n_cut - n_cut >= 2, 20, "the fault was met")


def test_a_stream_that_is_refused_for_a_while(service, sandbox):
    command = sandbox.begin("read x; echo $x", stdin_open=True)
    service.refuse = [["POST .*/stream$", 503, 4]]
    service.cut_all()
    sandbox.done(f"/commands/{command}/stdin", {"text": "after that\n", "eof": True})
    assert sandbox.ended(command)["code"] == 0
    assert service.refuse[0][2] == 0, "the fault was met"
    assert sandbox.output(command) == b"after that\n"


# --- away


def test_a_service_that_is_away_for_a_moment(service, sandbox):
    """Nothing is noticed but the delay."""
    command = sandbox.begin("read x; echo $x", stdin_open=True)
    n_ended = service.n_streams_ended
    service.go_away()
    wait_until(lambda: service.n_streams_ended > n_ended, 20, "it is away")
    time.sleep(1)
    service.come_back()
    sandbox.done(f"/commands/{command}/stdin", {"text": "back\n", "eof": True})
    assert sandbox.ended(command)["code"] == 0
    assert sandbox.output(command) == b"back\n"


def test_a_service_that_is_away(daemon, service, sandbox):
    """What lives is not taken for gone: it is found again."""
    sandbox.put("file", b"kept")
    command = sandbox.begin("while :; do echo x >> beat; sleep 0.05; done")
    native = daemon.client("ana")
    n_made = len(service.asked)
    service.go_away()
    try:
        wait_until(lambda: daemon.readiness() == 503, 90, "it is away")
        refused(wait_until(lambda: tried(lambda: native.post(sandbox.url("/commands"), {"cmd": "true"}), 503), 30), 503,
                "provider_unavailable", True)
        wait_until(lambda: tried(lambda: native.post(RUNTIME, {"provider": "native"}), 201), 30, "others are made")
    finally:
        service.come_back()
    wait_until(lambda: daemon.readiness() == 200, 60, "it is back")
    wait_until(lambda: reached(sandbox, "file") == b"kept", 30, "what it has")
    assert sandbox.state(command)["status"] == "running"
    size = sandbox.size("beat")
    wait_until(lambda: sandbox.size("beat") > size, 20, "it runs")
    assert len(service.asked) == n_made, "nothing was made anew"
