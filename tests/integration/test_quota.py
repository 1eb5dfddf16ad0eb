"""Quotas of owners, workspaces and the host: refused with 429, no number of another tenant shown."""
import concurrent.futures
import os
import re
import signal

import pytest

from harness import PATIENCE, RUNTIME, SESSIONS, Daemon, ctl, wait_until

QUOTA = "/dagster/sandbox/quota"
CONFIG = """\
[identity]
trusted_peers = 0
[owner]
sessions = 2
jobs = 1
stored = 1MiB
[workspace]
sessions = 3
[host]
sessions = 5
[owner:carol]
sessions = 4
[workspace:big]
sessions = 10
"""


@pytest.fixture(scope="module", name="own")
def fixture_own():
    daemon = Daemon(config=CONFIG)
    yield daemon
    daemon.done()


@pytest.fixture(autouse=True)
def fixture_nothing_left(own):
    yield
    for session in own.root.get(SESSIONS).json:
        own.root.remove(session["id"])
    wait_until(lambda: host_use(own)["sessions"]["used"] == 0)


def host_use(daemon):
    return daemon.root.get(QUOTA).json["host"]


def refused(answer, text):
    assert answer.status == 429, answer
    assert answer.json["detail"] == text
    assert int(answer.headers["Retry-After"]) > 0


def test_sessions_of_an_owner_a_workspace_and_the_host(own):
    alice, bob = own.client("alice", workspace="w"), own.client("bob", workspace="w")
    alice.create(), alice.create()
    refused(alice.post(SESSIONS), "quota: 2 live sessions for this owner")
    refused(alice.post(RUNTIME, {"profile": "agent"}), "quota: 2 live sessions for this owner")
    bob.create()
    refused(bob.post(SESSIONS), "quota: 3 live sessions for this workspace")
    carol = own.client("carol", workspace="big")
    carol.create(), carol.create()
    refused(carol.post(SESSIONS), "quota: 5 live sessions for this host")
    refused(own.root.post(SESSIONS), "quota: 5 live sessions for this host")
    alice.remove(alice.get(SESSIONS).json[0]["id"])
    assert carol.post(SESSIONS).status == 201


def test_a_section_of_its_own_goes_before_the_default(own):
    carol = own.client("carol", workspace="big")
    for _ in range(4):
        carol.create()
    refused(carol.post(SESSIONS), "quota: 4 live sessions for this owner")


def test_creates_at_once_do_not_pass_together(own):
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: own.client("dave").post(SESSIONS).status, range(12)))
    assert sorted(answers) == [201] * 2 + [429] * 10


def test_quota_shows_the_askers_own_numbers_only(own):
    alice = own.client("alice", workspace="w")
    alice.create()
    own.client("bob", workspace="w").create()
    own.client("eve", workspace="other").create()
    told = alice.get(QUOTA).json
    assert set(told) == {"owner", "workspace"}
    assert told["owner"]["sessions"] == {"limit": 2, "used": 1}
    assert told["workspace"]["sessions"] == {"limit": 3, "used": 2}
    assert told["owner"]["stored_bytes"] == {"limit": 1 << 20, "used": 0}
    assert told["owner"]["memory_bytes"]["used"] == 1 << 30
    assert own.client("nobody").get(QUOTA).json["owner"]["sessions"] == {"limit": 2, "used": 0}
    assert set(own.client("adele", "data:read platform:admin").get(QUOTA).json) == {"owner", "host"}
    assert set(own.root.get(QUOTA).json) == {"host"}
    assert host_use(own)["sessions"] == {"limit": 5, "used": 3}
    assert own.client("alice", "data:write").get(QUOTA).status == 403
    table = ctl(own, "quota").stdout.decode()
    assert re.search(r"^host\s+sessions\s+3\s+5$", table, re.M), table


def test_stored_bytes_of_an_owner(own):
    alice = own.client("alice")
    one, two = alice.create(), alice.create()
    body = "# " + "x" * (600 * 1024) + "\n"
    assert alice.write(one, "a", body).status == 200
    refused(alice.write(two, "b", body), "quota: 1 MiB of stored bytes for this owner")
    # The same name again is no more than the difference.
    assert alice.write(one, "a", body).status == 200
    assert alice.get(QUOTA).json["owner"]["stored_bytes"]["used"] == len(body)
    alice.remove(one)
    assert alice.write(two, "b", body).status == 200


def test_frames_of_tasks_are_stored_bytes(own):
    fay = own.client("fay")  # keeps them: nobody else's
    session = fay.create()
    fill = ('for i in range(100): open(f"/session/f{i:03}.yaml", "w")'
            '.write("".join(f"k{j}: 1\\n" for j in range(40)))')
    assert fay.run(session, "python3", "-c", fill).code == 0
    used = lambda: fay.get(QUOTA).json["owner"]["stored_bytes"]["used"]
    for _ in range(10):
        answer = fay.post(f"{SESSIONS}/{session}/execute")
        if answer.status == 429:
            break
        frames = fay.frames(answer.json["task_id"])
        assert frames[-1]["stage"] in ("done", "error")
    refused(answer, "quota: 1 MiB of stored bytes for this owner")
    assert any("dropped" in frame["message"] for frame in frames)
    full = used()
    assert 1 << 20 <= full + 4096 and full < 2 << 20
    # Not even the end of the session or of the service gives them back.
    fay.remove(session)
    assert used() == full
    own.stop()
    own.start()
    assert used() == full
    bob = own.client("bob")
    bob.frames(bob.execute(bob.create()))
    assert bob.get(QUOTA).json["owner"]["stored_bytes"]["used"] < 1 << 16


def test_changes_a_second_of_an_owner():
    daemon = Daemon(config="[identity]\ntrusted_peers = 0\n[owner]\nchanges_per_second = 1\n")
    try:
        erin = daemon.client("erin")
        url = f"{SESSIONS}/{erin.create()}"
        answers = [erin.request("PATCH", url, {"ttl_minutes": 30}) for _ in range(40)]
        early = [answer for answer in answers if answer.status == 429]
        assert early and len(early) < 40
        for answer in early:
            refused(answer, "quota: 1 changes a second for this owner")
        assert erin.get(url).status == 200  # reading is free
        assert daemon.client("frank").post(SESSIONS).status == 201
        root = [daemon.root.request("PATCH", url, {"ttl_minutes": 30}) for _ in range(40)]
        assert {answer.status for answer in root} == {200}
    finally:
        daemon.done()


def test_bytes_a_second_of_an_owner():
    daemon = Daemon(config="[identity]\ntrusted_peers = 0\n[owner]\nstored_per_second = 64KiB\n")
    try:
        erin, frank = daemon.client("erin"), daemon.client("frank")
        first, second = erin.create(), erin.create()
        body = "# " + "x" * (48 * 1024) + "\n"
        # One bucket for all sessions of the owner.
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda n: erin.write((first, second)[n % 2], f"a{n}", body), range(16)))
        early = [answer for answer in answers if answer.status == 429]
        assert early and {answer.status for answer in answers} == {200, 429}
        for answer in early:
            refused(answer, "quota: 64 KiB of stored components in a second for this owner")
        assert frank.write(frank.create(), "a", body).status == 200
        wait_until(lambda: erin.write(second, "later", body).status == 200, timeout=20)
    finally:
        daemon.done()


def test_the_404_and_the_400_come_before_the_429(own):
    alice = own.client("alice")
    session = alice.create()
    body = "# " + "x" * (900 * 1024) + "\n"
    assert alice.write(session, "a", body).status == 200
    assert alice.write(session, "../b", body).status == 400
    assert alice.write("0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f", "b", body).status == 404
    assert alice.write(session, "b", body).status == 429


def test_processor_time_of_a_day_stays_over_sessions_and_restarts():
    with_limit = CONFIG + "[workspace:hot]\ncpu_per_day = 1s\n"
    daemon = Daemon(config=with_limit)
    try:
        alice = daemon.client("alice", workspace="hot")
        box = alice.create_runtime(profile="agent")
        other = alice.create()
        burn = "import time\nwhile time.process_time() < 1.5: pass"
        assert alice.run(box, "python3", "-c", burn).code == 0
        alice.delete(f"{RUNTIME}/{box}")  # its end brings the last reading
        used = lambda: alice.get(QUOTA).json["workspace"]["cpu_seconds_today"]
        wait_until(lambda: used()["used"] >= 1)
        assert used()["limit"] == 1
        answer = alice.post(SESSIONS)
        refused(answer, "quota: 1 s of processor time a day for this workspace")
        assert 1 <= int(answer.headers["Retry-After"]) <= 24 * 3600
        for path in (f"{SESSIONS}/{other}/load", f"{SESSIONS}/{other}/execute"):
            assert alice.post(path).status == 429, path
        assert alice.post(f"{RUNTIME}/{other}/commands", {"argv": ["true"]}).status == 429
        assert alice.get(f"{SESSIONS}/{other}").status == 200
        assert daemon.client("bob").post(SESSIONS).status == 201  # not of that workspace
        kept = "SELECT cpu_us FROM sandbox_usage WHERE name = ?"
        wait_until(lambda: any(row[0] >= 1_000_000 for row in daemon.sql(kept, "hot")), 20, "a tick writes it")
        daemon.stop()
        daemon.start()
        refused(alice.post(SESSIONS), "quota: 1 s of processor time a day for this workspace")
    finally:
        daemon.done()


def test_open_rows_count_after_a_restart(own):
    """Sessions whose trees are made again at first use are promises as well."""
    alice = own.client("alice")
    alice.create(), alice.create()
    own.stop()
    own.start()
    refused(alice.post(SESSIONS), "quota: 2 live sessions for this owner")


def test_rebuilds_are_launches_of_their_owner():
    daemon = Daemon(config="[identity]\ntrusted_peers = 0\n[owner]\nlaunches_per_second = 1\n")
    try:
        erin, ids = daemon.client("erin"), []
        for _ in range(3):
            wait_until(lambda: ids.append(erin.post(SESSIONS)) or ids[-1].status == 201,
                       timeout=20 * PATIENCE)
        ids = [answer.json["id"] for answer in ids if answer.status == 201]
        assert daemon.stop() == 0
        daemon.start()

        def use(session):
            return erin.post(f"/v1/sandboxes/{session}/commands", {"argv": ["true"]})

        # A bucket of one a second: of three at once at least one comes too early.
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(use, ids))
        early = [answer for answer in answers if answer.status == 429]
        assert early and len(early) < 3
        for answer in early:
            refused(answer, "quota: 1 launches a second for this owner")
        for session in ids:
            wait_until(lambda session=session: use(session).status == 200, timeout=20)
    finally:
        daemon.done()


def test_quotas_follow_a_reload(own):
    alice = own.client("alice")
    alice.create(), alice.create()
    assert alice.post(SESSIONS).status == 429
    own.configure(re.sub(r"(\[owner\]\nsessions = )2", r"\g<1>3", CONFIG))
    os.kill(own.process.pid, signal.SIGHUP)
    wait_until(lambda: alice.get(QUOTA).json["owner"]["sessions"]["limit"] == 3)
    assert alice.post(SESSIONS).status == 201
    own.configure(CONFIG)
    os.kill(own.process.pid, signal.SIGHUP)
    wait_until(lambda: alice.get(QUOTA).json["owner"]["sessions"] == {"limit": 2, "used": 3})
