"""Bad bodies: a clear answer each, and the service goes on."""
import json

import pytest

from harness import SESSIONS


@pytest.fixture(autouse=True)
def still_alive(alice, session):
    yield
    assert alice.run(session, "/bin/echo", "alive").out == b"alive\n"


def items(answer):
    assert answer.status == 422, answer
    detail = answer.json["detail"]
    assert detail and all(set(item) == {"type", "loc", "msg"} for item in detail), detail
    return detail


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense",
        b"{",
        b'{"ttl_minutes":',
        b'{"ttl_minutes": 5,}',
        b"\x00",
        b'{"ttl_minutes": 5}\x00',
        b'{"ttl_minutes": 5} {}',
        b"\xff\xfe{\x00}\x00",
        b'{"ttl_minutes": 5, "ttl_minutes": 6}',
        b'{"\xc3\x28": 1}',
        b"[" * 5000,
        b'{"a":' * 3000,
    ],
)
def test_not_json_is_422_at_body(alice, raw):
    detail = items(alice.request("POST", SESSIONS, raw_body=raw))
    assert detail[0]["loc"][0] == "body"


@pytest.mark.parametrize(
    "body,field",
    [
        ({"ttl_minutes": 0}, "ttl_minutes"),
        ({"ttl_minutes": 721}, "ttl_minutes"),
        ({"ttl_minutes": -1}, "ttl_minutes"),
        ({"ttl_minutes": "sixty"}, "ttl_minutes"),
        ({"ttl_minutes": 1.5}, "ttl_minutes"),
        ({"ttl_minutes": []}, "ttl_minutes"),
        ({"ttl_minutes": 10 ** 18}, "ttl_minutes"),
        ({"unknown": 1}, "unknown"),
        ({"env_overrides": {"postgres_dsn": "x"}}, "postgres_dsn"),
        ({"env_overrides": {"kafka_bootstrap": 1}}, "kafka_bootstrap"),
        ({"env_overrides": {"kafka_bootstrap": "a\nb"}}, "kafka_bootstrap"),
        ({"env_overrides": {"kafka_bootstrap": "a\u0000b"}}, "kafka_bootstrap"),
        ({"env_overrides": {"kafka_bootstrap": "x" * 5000}}, "kafka_bootstrap"),
        ({"env_overrides": "x"}, "env_overrides"),
    ],
)
def test_wrong_values_name_the_field(alice, body, field):
    answer = alice.post(SESSIONS, body)
    assert field in [part for item in items(answer) for part in item["loc"]]


def test_endpoint_values_are_not_echoed(alice):
    secret = "https://user:hunter2@lake.example/path"
    answer = alice.post(SESSIONS, {"env_overrides": {"iceberg_rest_uri": secret}})
    items(answer)
    assert b"hunter2" not in answer.body and b"lake.example" not in answer.body


def test_body_is_no_object(alice):
    for value in (1, "x", [], True):
        items(alice.post(SESSIONS, value))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "x"},
        {"body": "x"},
        {"name": "x", "body": 1},
        {"name": "x", "body": None},
        {"name": "x", "body": "a\u0000b"},
        {"name": "x", "body": "y", "more": 1},
    ],
)
def test_component_bodies(alice, session, body):
    items(alice.post(f"{SESSIONS}/{session}/components", body))


def test_component_over_the_limit_is_refused(alice, session):
    answer = alice.write(session, "big", "#" + "x" * (1024 * 1024))
    assert items(answer)[0]["loc"] == ["body", "body"]
    assert alice.write(session, "fits", "#" + "x" * (1024 * 1024 - 1)).status == 200


def test_components_at_once_do_not_pass_the_bound_together(alice, session):
    from concurrent.futures import ThreadPoolExecutor

    for i in range(196):
        assert alice.write(session, f"c{i}", "type: a.B\n").status == 200
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda i: alice.write(session, f"d{i}", "x: " + "y" * 500000),
                                range(12)))
    statuses = sorted(answer.status for answer in answers)
    assert statuses == [200] * 4 + [429] * 8, statuses
    assert len(alice.get(f"{SESSIONS}/{session}").json["components"]) == 200


def test_body_over_the_limit_is_413(alice):
    answer = alice.request("POST", SESSIONS, raw_body=b" " * (3 * 1024 * 1024))
    assert answer.status == 413, answer


def head(*lines):
    return "\r\n".join(
        [f"POST {SESSIONS} HTTP/1.1", "Host: x", "X-Sandbox-User: alice",
         "X-Sandbox-Scopes: data:read data:write", *lines, "", ""]).encode()


def test_huge_content_length_is_413_at_once(alice):
    answer = alice.raw(head("Content-Length: 2147483648"), timeout=5)
    assert answer.startswith(b"HTTP/1.1 413"), answer[:100]


def test_chunks_without_end_are_cut(alice):
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    answer = alice.raw(head("Transfer-Encoding: chunked") + chunk * 60, timeout=5)
    assert answer.startswith(b"HTTP/1.1 413"), answer[:100]


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 2", "Content-Length: 3"],
        ["Content-Length: -1"],
        ["Content-Length: 0x10"],
        ["Content-Length: 18446744073709551616"],
        ["Transfer-Encoding: nonsense", "Content-Length: 2"],
    ],
)
def test_broken_framing_gets_no_session(alice, lines):
    answer = alice.raw(head(*lines, "Connection: close") + b"{}", timeout=5, answered=False)
    assert not answer.startswith(b"HTTP/1.1 201"), answer[:100]


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"\x00" * 1000,
                                  b"A" * 70000, b"GET / HTTP/9.9\r\n\r\n"])
def test_garbage_ends_the_connection(alice, data):
    answer = alice.raw(data, timeout=3, answered=False)
    assert b" 200 " not in answer[:20]


def test_routes_without_body_refuse_one(alice, session):
    answer = alice.request("POST", f"{SESSIONS}/{session}/load", raw_body=b'{"x":1}')
    assert answer.status == 422
    for raw in (None, b"{}", b"null"):
        assert alice.request("POST", f"{SESSIONS}/{session}/load", raw_body=raw).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"argv": []},
        {"argv": "ls"},
        {"argv": [1]},
        {"argv": ["a\u0000b"]},
        {"argv": ["x"] * 2000},
        {"argv": ["ls"], "timeout_ms": -1},
        {"argv": ["ls"], "cwd": 7},
        {"argv": ["ls"], "envs": {"LD_PRELOAD": "x"}},
        {"argv": ["ls"], "envs": {"A=B": "x"}},
        {"argv": ["ls"], "envs": {"A": "x\u0000"}},
        {"argv": ["ls"], "nonsense": True},
    ],
)
def test_command_bodies(alice, session, body):
    items(alice.post(f"/v1/sandboxes/{session}/commands", body))


def test_unclosed_connections_do_not_stop_others(alice):
    import socket

    held = []
    for _ in range(100):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(alice.path)
        sock.sendall(b"POST /dagster/sandbox/sessions HTTP/1.1\r\nHost:")
        held.append(sock)
    assert alice.get(SESSIONS).status == 200
    for sock in held:
        sock.close()


def test_json_is_compact_ascii_or_utf8(alice, session):
    text = alice.get(f"{SESSIONS}/{session}").body
    json.loads(text.decode("utf-8"))
