"""What a create of /v1 takes beside the process tree's: project, metadata, life time, idempotency key; lists; the end."""
import concurrent.futures
import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import termios

import pytest

from harness import PATIENCE, RUNTIME, SESSIONS, Daemon, UnixConnection, stopped, wait_until
from runtime_rig import fixture_caller, fixture_session  # noqa: F401  pylint: disable=unused-import


CONFIG = ("[identity]\ntrusted_peers = 0\n[limits]\nmemory = 1024GiB\n[owner]\nmemory = 1024GiB\n"
          "[workspace]\nmemory = 1024GiB\n")


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon():
    """Its own one: a dozen sandboxes at once, each with the memory of its profile."""
    daemon = Daemon(config=CONFIG)
    yield daemon
    daemon.done()


def wrong_fields(answer):
    assert answer.status == 422, answer
    return [item["loc"][1:] for item in answer.json["detail"]]


def n_created(daemon):
    return int(re.search(r"^sandboxd_sessions_created_total (\d+)", daemon.root.get("/metrics").body.decode(), re.M).group(1))


def ends(client, *names):
    for name in names:
        assert client.delete(f"{RUNTIME}/{name}").status == 200


def kill_worker(daemon):
    daemon.deaths_expected = True
    os.kill(daemon.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(daemon.ready, 20, "the worker is back")


def test_what_was_said_is_answered_and_kept(daemon, caller):
    said = {"metadata": {"thread": "t-1", "Kind.x": "Ü"},
            "workspace": {"include": ["/session/repo", "notes"], "exclude": ["*.pyc"]}, "project_uuid": "p9"}
    made = caller.post(RUNTIME, said).json
    assert {key: made[key] for key in said} == said
    kill_worker(daemon)
    wait_until(lambda: caller.get(f"{RUNTIME}/{made['sandbox_uuid']}").status == 200, 20, "adopted")
    again = caller.get(f"{RUNTIME}/{made['sandbox_uuid']}").json
    assert {key: again[key] for key in said} == said
    ends(caller, made["sandbox_uuid"])
    plain = caller.post(RUNTIME, {"metadata": None, "workspace": None, "idempotency_key": None}).json
    assert plain["metadata"] == {} and plain["workspace"] is None and plain["project_uuid"] is None
    ends(caller, plain["sandbox_uuid"])


@pytest.mark.parametrize("body,where", [
    ({"metadata": []}, ["metadata"]),
    ({"metadata": {"a b": "x"}}, ["metadata", "a b"]),
    ({"metadata": {"": "x"}}, ["metadata", ""]),
    ({"metadata": {"a": 1}}, ["metadata", "a"]),
    ({"metadata": {"a": "x" * 257}}, ["metadata", "a"]),
    ({"metadata": {"a": "x\0y"}}, ["metadata", "a"]),
    ({"metadata": {str(i): "x" for i in range(17)}}, ["metadata"]),
    ({"idempotency_key": ""}, ["idempotency_key"]),
    ({"idempotency_key": "a b"}, ["idempotency_key"]),
    ({"idempotency_key": "x" * 129}, ["idempotency_key"]),
    ({"project_uuid": 7}, ["project_uuid"]),
    ({"project_uuid": "x" * 37}, ["project_uuid"]),
    ({"workspace": []}, ["workspace"]),
    ({"workspace": {}}, ["workspace", "include"]),
    ({"workspace": {"include": "x"}}, ["workspace", "include"]),
    ({"workspace": {"include": ["/etc"]}}, ["workspace", "include"]),
    ({"workspace": {"include": ["a/../b"]}}, ["workspace", "include"]),
    ({"workspace": {"include": [7]}}, ["workspace", "include"]),
    ({"workspace": {"include": ["a"] * 65}}, ["workspace", "include"]),
    ({"workspace": {"include": ["a"], "exclude": [""]}}, ["workspace", "exclude"]),
    ({"workspace": {"include": ["a"], "more": []}}, ["workspace", "more"]),
    ({"timeout_ms": 59999}, ["timeout_ms"]),
    ({"timeout_ms": 60000, "ttl": 60}, ["ttl"]),
    ({"ttl": 60, "timeout_ms": 60000}, ["timeout_ms"]),
])
def test_bad_bodies(caller, body, where):
    assert where in wrong_fields(caller.post(RUNTIME, body))


def test_the_project_is_the_callers(daemon):
    of_one = daemon.client("ana", workspace="blue", project="p1")
    made = of_one.post(RUNTIME, {}).json
    assert made["project_uuid"] == "p1"
    refused = of_one.post(RUNTIME, {"project_uuid": "p2"})
    assert (refused.status, refused.json["code"]) == (403, "denied")
    of_all = daemon.client("ana", workspace="blue")
    other = of_all.post(RUNTIME, {"project_uuid": "p2"}).json
    assert other["project_uuid"] == "p2"
    assert of_one.get(f"{RUNTIME}/{other['sandbox_uuid']}").status == 404
    assert of_all.get(f"{RUNTIME}/{made['sandbox_uuid']}").status == 200
    ends(of_all, made["sandbox_uuid"], other["sandbox_uuid"])


def lifetime(sandbox):
    times = [sandbox[key] for key in ("created_at", "expires_at")]
    minutes = [int(text[11:13]) * 60 + int(text[14:16]) for text in times]
    return (minutes[1] - minutes[0]) % 1440


def test_timeout_is_a_life_time(daemon, caller):
    made = caller.post(RUNTIME, {"timeout_ms": 600001}).json
    assert lifetime(made) == 11, made
    url = f"{RUNTIME}/{made['sandbox_uuid']}"
    longer = caller.post(f"{url}/timeout", {"timeout_ms": 7200000})
    assert longer.status == 200 and lifetime(longer.json) in (120, 121), longer
    assert caller.post(f"{url}/timeout", {"ttl": 300}).status == 200
    assert lifetime(caller.get(url).json) in (5, 6)
    for body in ({}, {"timeout_ms": 0}, {"timeout_ms": "1"}, {"ttl": 60, "timeout_ms": 60000}):
        assert wrong_fields(caller.post(f"{url}/timeout", body))
    kill_worker(daemon)
    wait_until(lambda: caller.get(url).status == 200, 20, "adopted")
    assert lifetime(caller.get(url).json) in (5, 6)
    ends(caller, made["sandbox_uuid"])


# --- the same create again


def test_the_same_key_is_the_same_sandbox(daemon, caller):
    body = {"idempotency_key": "run:1", "metadata": {"a": "1"}, "ttl": 600}
    first = caller.post(RUNTIME, body)
    # The same words in another order and with other spaces are the same request.
    again = caller.request("POST", RUNTIME, raw_body=b'{"ttl" : 600, "metadata":{"a":"1"}, "idempotency_key":"run:1"}')
    assert (first.status, again.status) == (201, 201), again
    assert again.json == first.json
    other = caller.post(RUNTIME, {**body, "ttl": 601})
    assert (other.status, other.json["code"], other.json["retryable"]) == (409, "conflict", False), other
    kill_worker(daemon)
    wait_until(lambda: caller.get(f"{RUNTIME}/{first.json['sandbox_uuid']}").status == 200, 20, "adopted")
    assert caller.post(RUNTIME, body).json["sandbox_uuid"] == first.json["sandbox_uuid"]
    assert caller.post(RUNTIME, {**body, "ttl": 601}).status == 409
    ends(caller, first.json["sandbox_uuid"])
    fresh = caller.post(RUNTIME, body).json["sandbox_uuid"]
    assert fresh != first.json["sandbox_uuid"], "its sandbox is gone, so the key is free"
    ends(caller, fresh)


def test_a_key_is_the_organisations_and_the_projects(daemon):
    callers = [daemon.client("ana", workspace="blue"), daemon.client("ana", workspace="green"), daemon.client("ana"),
               daemon.client("bob"), daemon.client("ana", workspace="user:bob"),
               daemon.client("ana", workspace="blue", project="p1"), daemon.client("ana", workspace="blue", project="p2"),
               daemon.root]
    made = [one.post(RUNTIME, {"idempotency_key": "k"}).json["sandbox_uuid"] for one in callers]
    assert len(set(made)) == len(callers)
    colleague = daemon.client("carl", workspace="blue").post(RUNTIME, {"idempotency_key": "k"})
    assert colleague.json["sandbox_uuid"] == made[0]
    for one, name in zip(callers, made):
        ends(one, name)


def test_many_at_once_make_one(daemon, caller):
    before = n_created(daemon)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: caller.post(RUNTIME, {"idempotency_key": "once"}), range(8)))
    assert {answer.status for answer in answers} == {201}, answers
    assert len({answer.json["sandbox_uuid"] for answer in answers}) == 1
    assert n_created(daemon) == before + 1
    ends(caller, answers[0].json["sandbox_uuid"])


def test_an_old_key_is_free(daemon, caller):
    made = caller.post(RUNTIME, {"idempotency_key": "old", "ttl": 86400}).json["sandbox_uuid"]
    daemon.stop()
    daemon.sql("UPDATE dagster_sandbox_sessions SET created_at = '2020-01-01T00:00:00.000000' WHERE id = ?", made)
    daemon.start()
    fresh = caller.post(RUNTIME, {"idempotency_key": "old", "ttl": 86400}).json["sandbox_uuid"]
    assert fresh != made
    ends(caller, made, fresh)


# --- lists


def pages(client, query, limit):
    found, after = [], ""
    while after is not None:
        page = client.get(f"{RUNTIME}?limit={limit}{query}" + (f"&after={after}" if after else ""))
        assert page.status == 200, page
        assert len(page.json["sandboxes"]) <= limit
        found += [one["sandbox_uuid"] for one in page.json["sandboxes"]]
        after = page.json["next"]
    return found


def test_lists(daemon):
    caller = daemon.client("lia")
    made = [caller.create_runtime(metadata={"n": str(i % 2), "all": "a b&c"}) for i in range(5)]
    assert pages(caller, "", 500) == made[::-1]
    for limit in (1, 2, 5):
        assert pages(caller, "", limit) == made[::-1]
    assert pages(caller, "&metadata.n=1", 1) == made[3::-2]
    assert pages(caller, "&metadata.all=a%20b%26c", 2) == made[::-1]
    assert pages(caller, "&metadata.n=1&metadata.all=x", 2) == []
    assert pages(caller, "&metadata.none=", 2) == []
    assert pages(caller, "&status=open", 2) == made[::-1]
    assert pages(caller, "&status=running", 2) == []
    for query in ("limit=0", "limit=501", "status=lost", "after=x", f"after={made[0]}", "metadata.n=%zz",
                  "metadata.n=1%00", "metadata.a=1&metadata.b=1&metadata.c=1&metadata.d=1&metadata.e=1"):
        assert caller.get(f"{RUNTIME}?{query}").status == 422, query
    # What a page ended with may end meanwhile: the next page begins behind where it stood.
    first = caller.get(f"{RUNTIME}?limit=2").json
    ends(caller, made[3])
    second = caller.get(f"{RUNTIME}?limit=2&after={first['next']}").json
    assert [one["sandbox_uuid"] for one in second["sandboxes"]] == [made[2], made[1]]
    dagster = caller.create()
    assert pages(caller, "", 2) == [dagster, made[4], made[2], made[1], made[0]], "a session of Dagster is one, too"
    assert caller.delete(f"{SESSIONS}/{dagster}").status == 200
    ends(caller, *(made[:3] + made[4:]))


# --- the end


def is_read(sock):
    """What was sent to the other end of a Unix socket has been taken from it."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4))) == (0,)


def test_two_deletes_at_once_are_both_done(daemon, caller):
    """Both wait for the same end, which the supervisor does not bring about until it goes on."""
    name = caller.create_runtime()
    with contextlib.ExitStack() as connections, stopped(daemon.supervisor_pid()):
        both = [connections.enter_context(contextlib.closing(UnixConnection(caller.path, 30 * PATIENCE))) for _ in range(2)]
        for connection in both:
            connection.request("DELETE", f"{RUNTIME}/{name}", headers=caller.headers)
            # The kernel counts what the other side has not read.
            wait_until(lambda sock=connection.sock: is_read(sock), 10, "the worker has it")
        wait_until(lambda: caller.get(f"{RUNTIME}/{name}").status == 404, 10, "it is being deleted")
        assert daemon.client("bob").delete(f"{RUNTIME}/{name}").status == 404
        assert not select.select([connection.sock for connection in both], [], [], 0.3)[0]
        os.kill(daemon.supervisor_pid(), signal.SIGCONT)
        assert [connection.getresponse().status for connection in both] == [200, 200]
    assert caller.delete(f"{RUNTIME}/{name}").status == 404
