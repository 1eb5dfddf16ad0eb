"""Two services on one PostgreSQL: a session is one's at a time, whatever the other still sends for it."""

import time

import pytest

from celery_rig import TASK, Broker, connected, idle, make_app
from harness import SESSIONS, Daemon, descendants, stopped, wait_until
from redis_rig import Redis
from test_jobs import stopped_loader, terminal

LEASE = 30  # seconds; pg_queries.h


@pytest.fixture
def two(postgres):
    made = [Daemon(config=postgres.config()) for _ in range(2)]
    yield made
    for one in made:
        one.deaths_expected = True
        one.done()


def standing(daemon):
    """All of the service stands still, as on a host that is suspended; its sessions as well."""
    return stopped(daemon.process.pid, *descendants(daemon.process.pid))


def row(postgres, session):
    instance, fence = postgres.sql("SELECT instance, coalesce(lease_fence, 0) FROM dagster_sandbox_sessions"
                                   f" WHERE id = '{session}'").split("|")
    return instance, int(fence)


def frames_of(postgres, task):
    return postgres.sql(f"SELECT stage FROM sandbox_frames WHERE task_id = '{task}' ORDER BY seq").split()


def test_each_run_raises_the_fence(postgres, two):
    alice = two[0].client("alice")
    session = alice.create()
    fences = [row(postgres, session)[1]]
    for _ in range(2):
        assert terminal(alice.frames(alice.execute(session)))["stage"] == "done"
        fences.append(row(postgres, session)[1])
    assert fences[0] < fences[1] < fences[2]


def test_session_of_a_living_host_is_not_taken(postgres, two):
    """The control: no lease has lapsed."""
    session = two[0].client("alice").create()
    holder = row(postgres, session)
    time.sleep(1)
    assert two[1].client("alice").post(f"{SESSIONS}/{session}/execute").status == 404
    assert row(postgres, session) == holder
    assert terminal(two[0].client("alice").frames(two[0].client("alice").execute(session)))["stage"] == "done"


def test_session_of_a_stopped_host_is_taken_and_its_late_words_are_refused(postgres, two):
    here, there = (one.client("alice") for one in two)
    session = here.create()
    here.write(session, "one", "type: demo.Thing\n")
    task = stopped_loader(here, session, lambda: here.execute(session))
    instance, fence = row(postgres, session)
    with standing(two[0]):
        assert there.get(f"{SESSIONS}/{session}").status == 404
        wait_until(lambda: there.get(f"{SESSIONS}/{session}").status == 200, LEASE + 30, "taken")
        new_instance, new_fence = row(postgres, session)
        assert new_instance != instance and new_fence > fence
        # What ran there ended, with one last frame, and what follows runs here alone.
        last = terminal(there.frames(task))
        assert (last["stage"], last["code"]) == ("error", "host_stopped")
        second = there.execute(session)
        assert terminal(there.frames(second))["stage"] == "done"
        kept = frames_of(postgres, task)
        held = row(postgres, session)
    # It goes on where it stood: nothing of it reaches the store, and its tree ends.
    wait_until(lambda: here.get(f"{SESSIONS}/{session}").status == 404, 30, "given up")
    wait_until(lambda: len(two[0].shim_pids()) == 0, 30, "its tree has ended")
    # A line of the log takes its way through the supervisor.
    wait_until(lambda: "another host has taken the session" in two[0].log.read_text(), 10, "the log says so")
    assert frames_of(postgres, task) == kept
    assert kept.count("error") + kept.count("done") == 1
    assert row(postgres, session) == held
    assert here.post(f"{SESSIONS}/{session}/execute").status == 404
    assert terminal(there.frames(there.execute(session)))["stage"] == "done"


def lapse(postgres, session):
    """The lease of its holder, which stands still, is over."""
    postgres.sql("UPDATE sandbox_writers SET lease_until = timezone('UTC', now()) - interval '1 hour'"
                 f" WHERE id = '{row(postgres, session)[0]}'")


def test_first_use_elsewhere_may_be_an_execute(postgres, two):
    """What ran or waited there does not go on in the tree that is being made for it."""
    here, there = (one.client("alice") for one in two)
    session = here.create()
    here.write(session, "one", "type: demo.Thing\n")
    old = [stopped_loader(here, session, lambda: here.execute(session)), here.execute(session)]
    with standing(two[0]):
        lapse(postgres, session)
        new = there.execute(session)
        assert terminal(there.frames(new))["stage"] == "done"
        for task in old:
            assert terminal(there.frames(task))["code"] == "host_stopped"
            assert frames_of(postgres, task).count("done") == 0


def test_delete_where_it_was_says_that_it_is_elsewhere(postgres, two):
    here, there = (one.client("alice") for one in two)
    for _ in range(10):
        session = here.create()
        with standing(two[0]):
            lapse(postgres, session)
            assert there.get(f"{SESSIONS}/{session}").status == 200
        answer = here.remove(session)
        if answer.status != 404:
            break
        # When its lease was due it heard of that before it was asked: another one, then.
        assert there.remove(session).status == 200
    assert answer.status == 409 and "another host" in answer.json["detail"], answer
    wait_until(lambda: len(two[0].shim_pids()) == 0, 30, "its tree has ended")
    assert there.get(f"{SESSIONS}/{session}").status == 200
    assert there.remove(session).status == 200


def test_redelivered_task_ends_once(postgres):
    """The other host has the message after its visibility timeout, and does not run it again."""
    broker = Broker()
    config = postgres.config(f"[celery]\nbroker_url = {broker.url}\nvisibility_timeout = 2s\ntask_name = {TASK}")
    two = []
    try:
        two.append(Daemon(config=config))
        connected(two[0])
        here = two[0].client("alice")
        session = here.create()
        app = make_app(broker)
        sent = stopped_loader(here, session, lambda: app.send_task(TASK, (session,)))
        two.append(Daemon(config=config))
        connected(two[1])
        with standing(two[0]):
            sent.get(timeout=LEASE + 60, propagate=False)
            assert sent.state == "FAILURE"
            frames = two[1].client("alice").frames(sent.id)
            assert terminal(frames)["code"] == "host_stopped"
            assert [frame["stage"] for frame in frames].count("start") == 1
        wait_until(lambda: len(two[0].shim_pids()) == 0, 30, "its tree has ended")
        idle(broker, 30)
        stages = frames_of(postgres, sent.id)
        assert stages.count("error") + stages.count("done") == 1 and stages.count("start") == 1
    finally:
        for one in two:
            one.deaths_expected = True
            one.done()
        broker.done()


def test_keys_in_redis_go_with_the_session(postgres):
    """The host that had it drops its user there, and no key."""
    server = Redis()
    two = []
    try:
        two = [Daemon(config=postgres.config(server.config())) for _ in range(2)]
        here, there = (one.client("alice") for one in two)
        session = here.create()
        set_key = f'redis-cli --no-auth-warning -u "$SANDBOX_REDIS_URL" set "${{SANDBOX_REDIS_PREFIX}}%s" v'
        assert here.shell(session, set_key % "old").text == "OK\n"
        first = server.users()
        assert len(first) == 1 and session in first[0]
        with standing(two[0]):
            lapse(postgres, session)
            assert there.shell(session, set_key % "new").text == "OK\n"
            assert len(server.users()) == 2
        # It hears of it with its next write.
        assert here.post(f"{SESSIONS}/{session}/execute").status in (404, 409)
        wait_until(lambda: not set(first) & set(server.users()), 60, "the user of before is gone")
        for name in ("old", "new"):
            assert server.ask("get", f"alphaswarm:sandbox:{session}:{name}") == "v"
        assert there.shell(session, set_key % "new").text == "OK\n"
        # The control: with its end they go.
        assert there.remove(session).status == 200
        wait_until(lambda: not server.users(), 30, "no user is left")
        assert server.ask("keys", f"alphaswarm:sandbox:{session}:*") == ""
    finally:
        for one in two:
            one.deaths_expected = True
            one.done()
        server.done()
