"""Progress frames: order, replay, and the streams that carry them."""
import json
import threading

import pytest

from harness import CONFIG, ENDPOINT_NAMES, SESSIONS, Daemon, sse_events, stopped_shim


@pytest.fixture(scope="module")
def daemon():
    """An owner's quota of waiting jobs is smaller than a session's queue, which is looked at here."""
    started = Daemon(config=CONFIG + "[owner]\njobs = 100\n")
    yield started
    started.done()


@pytest.fixture
def finished(alice):
    session = alice.create(env_overrides={"iceberg_rest_uri": "https://lake.example/catalog"})
    for name in ("one", "two", "three"):
        assert alice.write(session, name, "type: demo.Thing\n").status == 200
    task = alice.execute(session)
    yield session, task, alice.frames(task)
    alice.remove(session)


def test_order_and_contents(finished):
    session, task, frames = finished
    stages = [frame["stage"] for frame in frames if frame["stage"] != "log"]
    assert stages == ["start", "materialize", "materialize", "materialize", "done"]
    assert [frame["seq"] for frame in frames] == list(range(frames[0]["seq"],
                                                           frames[0]["seq"] + len(frames)))
    for frame in frames:
        assert list(frame)[:4] == ["task_id", "stage", "message", "timestamp"]
        assert frame["task_id"] == task and isinstance(frame["timestamp"], float)
        assert frame.get("session_id", session) == session
    keys = [frame["asset_key"] for frame in frames if frame["stage"] == "materialize"]
    assert keys == [["sandbox", "one"], ["sandbox", "three"], ["sandbox", "two"]]
    result = frames[-1]["result"]
    assert result["ok"] is True and result["asset_count"] == 3
    assert result["session_id"] == session


def test_start_frame_says_that_the_live_loader_is_refused(finished):
    start = finished[2][0]
    metadata = start["metadata"]
    assert metadata["error_code"] == "sandbox_endpoint_isolation_unavailable"
    assert metadata["live_loader"] == "refused"
    assert metadata["fallback_loader"] == "manifest"
    assert sorted(metadata["endpoint_names"]) == sorted(ENDPOINT_NAMES)
    assert metadata["endpoint_count"] == 6
    assert metadata["endpoint_sources"]["iceberg_rest_uri"] == "caller"
    assert "lake.example" not in json.dumps(finished[2])


def test_sse_is_the_default_and_equals_ndjson(alice, finished):
    _, task, frames = finished
    for url in (f"/dagster/sandbox/tasks/{task}/stream", f"/chat/stream/{task}"):
        events = list(sse_events(alice.lines("GET", url)))
        assert [json.loads(data) for _, data in events] == frames
        assert [int(event_id) for event_id, _ in events] == [frame["seq"] for frame in frames]


def test_reconnect_by_last_event_id_and_after(alice, finished):
    _, task, frames = finished
    middle = frames[1]["seq"]
    url = f"/dagster/sandbox/tasks/{task}/stream"
    events = sse_events(alice.lines("GET", url, headers={"Last-Event-ID": str(middle)}))
    assert [json.loads(data) for _, data in events] == frames[2:]
    assert alice.frames(task, after=middle) == frames[2:]
    assert alice.frames(task, after=frames[-1]["seq"]) == []


@pytest.mark.parametrize("query", ["after=x", "after=-1", "after=99999999999999999999999"])
def test_bad_positions_are_422(alice, finished, query):
    answer = alice.get(f"/dagster/sandbox/tasks/{finished[1]}/stream?{query}")
    assert answer.status == 422


def test_task_state(alice, finished):
    session, task, _ = finished
    state = alice.get(f"/dagster/sandbox/tasks/{task}").json
    assert state["task_id"] == task
    assert state["status"] == "done"


def test_many_readers_see_the_same(alice, session):
    for i in range(20):
        alice.write(session, f"asset_{i:02}", "type: demo.Thing\n")
    task = alice.execute(session)
    seen = [None] * 8

    def read(i):
        seen[i] = alice.frames(task)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(len(seen))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one == seen[0] for one in seen) and seen[0][-1]["stage"] == "done"
    assert sum(frame["stage"] == "materialize" for frame in seen[0]) == 20


def test_executions_run_in_order_and_the_queue_is_bounded(daemon, alice, session):
    alice.write(session, "one", "type: demo.Thing\n")
    with stopped_shim(daemon, alice, session):
        answers = [alice.post(f"{SESSIONS}/{session}/execute") for _ in range(40)]
    # One runs, 32 wait (queue_jobs), the others are told so.
    assert [answer.status for answer in answers] == [200] * 33 + [429] * 7
    assert answers[-1].headers["Retry-After"]
    tasks = [answer.json["task_id"] for answer in answers if answer.status == 200]
    ends = []
    for task in tasks:
        frames = alice.frames(task)
        assert frames[-1]["stage"] == "done", frames
        ends.append(frames[-1]["timestamp"])
    assert ends == sorted(ends)


def test_deleting_the_session_ends_its_jobs_with_a_frame(daemon, alice):
    session = alice.create()
    alice.write(session, "one", "type: demo.Thing\n")
    with stopped_shim(daemon, alice, session):
        tasks = [alice.execute(session) for _ in range(3)]
        assert alice.remove(session).status == 200
    for number, task in enumerate(tasks):
        frames = alice.frames(task)
        stages = [frame["stage"] for frame in frames]
        assert stages == (["start", "error"] if number == 0 else ["error"]), frames
        assert frames[-1]["code"] == "session_closed"
        assert alice.get(f"/dagster/sandbox/tasks/{task}").json["status"] == "error"
