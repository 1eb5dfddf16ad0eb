"""The core with every feature newer than Linux 6.1 forced off."""
import pytest

from harness import DATA, SESSIONS, Daemon


@pytest.fixture(scope="module")
def old():
    started = Daemon(env={"SANDBOX_KERNEL": "6.1"})
    yield started
    started.done()


def test_a_session_end_to_end(old):
    caller = old.client("alice")
    session = caller.create()
    for path in sorted((DATA / "components").glob("*.y*ml")):
        assert caller.write(session, path.name, path.read_text()).status == 200
    assert caller.post(f"{SESSIONS}/{session}/load").status == 200
    assert caller.frames(caller.execute(session))[-1]["stage"] == "done"
    assert caller.run(session, "/bin/echo", "hi").out == b"hi\n"
    assert caller.remove(session).status == 200


def test_what_is_in_force_is_the_same(old):
    caller = old.client("alice")
    session = caller.create()
    fields = dict(
        line.split(":", 1)
        for line in caller.run(session, "/bin/cat", "/proc/self/status").text.splitlines()
    )
    assert fields["Seccomp"].strip() == "2" and fields["NoNewPrivs"].strip() == "1"
    assert int(fields["CapEff"], 16) == 0 and int(fields["CapBnd"], 16) == 0
    mounts = caller.run(session, "/bin/cat", "/proc/self/mountinfo").text
    assert "lowerdir=/usr" not in mounts and str(old.home) not in mounts
    proof = old.root.get(f"/v1/sandboxes/{session}/proof").json
    assert set(proof["wanted"]) <= set(proof["in_force"]), proof
    caller.remove(session)


def test_root_commands_signal_only_their_own_id(old):
    """Without Landlock's signal scope CAP_KILL would reach pid 1's children."""
    caller = old.client("alice")
    session = caller.create_runtime(profile="agent")
    text = caller.shell(session, "cat /proc/self/status", user="root").text
    fields = dict(line.split(":", 1) for line in text.splitlines())
    six = sum(1 << bit for bit in (0, 1, 3, 4, 6, 7))
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert int(fields[name], 16) == six, fields[name]
    caller.shell(session, "kill -9 -1; for i in 1 2 3 4 5; do kill -9 $i; done; true", user="root")
    for user, uid in (("user", "1000"), ("root", "0")):
        assert caller.shell(session, "id -u", user=user).text.strip() == uid
    script = "sleep 60 & kill -9 $! && wait $!; echo $?"
    assert caller.shell(session, script, user="root").text == "137\n"
    caller.remove(session)


def test_api_worker_killed_and_adopted(old):
    from test_restart import kill_worker

    caller = old.client("alice")
    session = caller.create()
    kill_worker(old, "sandboxd-api")
    assert caller.run(session, "/bin/true").code == 0
    caller.remove(session)
