"""A stream of a task that is not known yet: it may come, and a foreign one takes the same time."""
import re
import threading
import time
import uuid

import pytest

from harness import ABSENT_ID, CONFIG, PATIENCE, SLOW, Daemon, wait_until

TASKS = "/dagster/sandbox/tasks"
WAIT = 4 * SLOW


@pytest.fixture(scope="module")
def waiting():
    started = Daemon(CONFIG + f"[api]\nstream_wait = {WAIT}s\n")
    yield started
    started.done()


def timed(caller, url):
    began = time.monotonic()
    answer = caller.get(url)
    return answer, time.monotonic() - began


def does_not_wait(caller, url):
    """One of some does not: a machine that stands still holds up the others, and who waits does so each time."""
    seen = []
    for _ in range(5):
        answer, took = timed(caller, url)
        assert answer.status == 404
        seen.append(took)
        if took < WAIT:
            return
    raise AssertionError((url, seen))


def finished(caller):
    session = caller.create()
    assert caller.write(session, "one", "type: demo.Thing\n").status == 200
    task = caller.execute(session)
    return task, caller.frames(task)


def test_unknown_and_foreign_wait_and_answer_alike(waiting):
    alice, bob = waiting.client("alice"), waiting.client("bob")
    task, _ = finished(alice)
    answers = [timed(bob, f"{TASKS}/{name}/stream") for name in (ABSENT_ID, task)]
    for answer, took in answers:
        assert answer.status == 404 and WAIT <= took < WAIT + 20 * PATIENCE, (answer, took)
    assert answers[0][0].body == answers[1][0].body
    # What is no stream, or not of this route, does not wait.
    for url in (f"{TASKS}/{ABSENT_ID}", f"{TASKS}/{task}", f"/chat/stream/{ABSENT_ID}", f"/chat/stream/{task}"):
        does_not_wait(bob, url)


def test_a_task_that_another_writer_adds_is_streamed(waiting):
    """As another host's worker would, into the store that both share."""
    alice, bob = waiting.client("alice"), waiting.client("bob")
    task, frames = finished(alice)
    came = str(uuid.uuid4())
    told = {}
    readers = [threading.Thread(target=lambda: told.update(alice=alice.frames(came))),
               threading.Thread(target=lambda: told.update(bob=bob.get(f"{TASKS}/{came}/stream")))]
    for reader in readers:
        reader.start()
    time.sleep(0.5)
    # The task last: from then on a look finds it, with the frames that are there.
    waiting.copy_rows("sandbox_frames", "task_id", task, task_id=came)
    waiting.copy_rows("sandbox_tasks", "id", task, id=came)
    for reader in readers:
        reader.join(60 * SLOW)
    assert told["alice"] == frames
    assert told["bob"].status == 404


def test_without_the_option_the_answer_comes_at_once(daemon):
    does_not_wait(daemon.client("alice"), f"{TASKS}/{ABSENT_ID}/stream")


def test_one_caller_does_not_take_the_places_of_all(waiting):
    """There are 256; whoever has 64 is answered at once."""
    alice, bob = waiting.client("alice"), waiting.client("bob")
    path = f"{TASKS}/{ABSENT_ID}/stream"
    told = []
    readers = [threading.Thread(target=lambda: told.append(timed(alice, path))) for _ in range(120)]
    for reader in readers:
        reader.start()
    answer, took = timed(bob, path)
    for reader in readers:
        reader.join(60 * SLOW)
    assert answer.status == 404 and took >= WAIT
    assert len(told) == 120 and {each.status for each, _ in told} == {404}
    assert 1 <= sum(took < WAIT for _, took in told) < 120


def test_the_end_of_the_service_does_not_wait(waiting):
    alice = waiting.client("alice")
    told = []
    reader = threading.Thread(target=lambda: told.append(timed(alice, f"{TASKS}/{uuid.uuid4()}/stream")))

    looks = []

    def number(name):
        looks.append(name)
        text = waiting.root.get("/metrics").body
        return int(re.search(rf"^sandboxd_http_{name} (\d+)$".encode(), text, re.M).group(1))

    wait_until(lambda: number("connections") == 1, 10, "those of earlier tests are gone")
    looks.clear()
    before = number("requests_total")
    reader.start()
    # Each look is a request, too.
    wait_until(lambda: number("requests_total") - before >= len(looks), 10, "it has asked")
    waiting.stop()
    reader.join(30 * PATIENCE)
    assert told and told[0][0].status == 404
