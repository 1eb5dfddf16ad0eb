"""What runtimes for agents are known to get wrong, each with the tests that this one does not."""
import json
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from harness import PATIENCE, RUNTIME, Daemon, wait_until
from runtime_rig import fixture_caller, fixture_session  # noqa: F401 (fixtures)
from test_restart import kill_worker
from test_suspend import JSON, at, begin, resume, run, suspend
from test_suspend_durable import files_of, restart

MIB = 1 << 20
HERE = Path(__file__).parent
# A test is of this folder where no other is said.
FLAWS = {
    "an exit code may be a status of HTTP or a time-out": ["test_flaws::test_exit_codes_are_the_commands_own"],
    "a missing exit code is read as 0": ["test_flaws::test_no_end_is_no_success"],
    "death by a signal has one code whatever the signal": ["test_hostile_commands::test_signals_and_codes_are_exact"],
    "a time-out leaves the process alive": ["test_commands::test_timeout_kills_the_whole_tree"],
    "what wrote to stderr before its time-out has failed": ["test_flaws::test_exit_codes_are_the_commands_own"],
    "characters are split at the edges of chunks": ["test_commands::test_text_is_whole_characters"],
    "output has no end": ["test_commands::test_ten_gigabytes_against_max_output"],
    "what is permanent and what is not are confused": [
        "../unit/test_runtime_errors::test_runtime_error_row_is_whole", "test_stores::test_cell"],
    "the status of a row is never read": ["test_suspend::test_a_new_worker_leaves_it_frozen"],
    "whose row it is by now is not asked": [
        "test_fencing::test_session_of_a_stopped_host_is_taken_and_its_late_words_are_refused"],
    "rows go, and what they stand for stays": ["test_flaws::test_rows_that_another_program_deletes"],
    "a create that fails half-way leaks": [
        "test_steps::test_each_failing_step_is_named_and_leaves_nothing", "test_lifecycle::test_delete_in_every_moment_of_a_session"],
    "a resume that fails half-way leaks": ["test_flaws::test_a_resume_that_fails_leaves_nothing_and_can_be_tried_again"],
    "a crash between two steps leaks": [
        "test_suspend_durable::test_the_worker_dies_in_the_middle", "test_registry::test_the_next_worker_makes_what_was_wanted",
        "test_adoption::test_supervisor_that_dies_after_a_step"],
    "an older snapshot is put over what still runs": [
        "test_suspend_durable::test_the_worker_dies_in_the_middle", "test_registry::test_a_component_is_newer_than_the_snapshot"],
    "two resumes at once make two": ["test_suspend::test_two_at_once"],
    "it is destroyed before the row says suspended": ["test_stores::test_cell", "test_suspend_durable::test_memory_is_given_back"],
    "each turn leaves one more snapshot": ["test_suspend_durable::test_a_later_one_takes_its_place"],
    "a suspend wakes what is suspended, or deletes it": ["test_suspend::test_twice_is_the_same"],
    "a suspend freezes what was cancelled": ["test_suspend::test_commands_are_told"],
    "a destroy forgets one of two things": [
        "test_snapshots::test_gone_with_its_sandbox", "test_suspend_durable::test_the_end_in_the_middle"],
    "a destroy that fails is told as done": ["test_adoption::test_ids_of_a_group_elsewhere_that_does_not_end_stay_in_use"],
    "a clone that fails leaves a sandbox for ever": ["test_git::test_errors", "test_events::test_expiry"],
    "a remove ignores its result": ["test_files::test_put_get_stat_remove"],
    "a file is written in place": ["test_files::test_put_is_whole_or_not_at_all"],
    "a read while a file changes is of both": ["test_flaws::test_a_read_is_of_one_version"],
    "what is inside has an agent that anybody may ask": ["../escape/rows_b::socket-files"],
    "secrets are in texts, arguments, bodies": [
        "test_secrets::test_value_is_in_the_session_and_nowhere_else", "test_git::test_nobody_in_the_session_sees_it",
        "test_writeback::test_a_turn_leaves_nothing_of_the_token"],
    "names of variables are not looked at": ["test_bodies::test_command_bodies"],
    "a value that begins with - is an option of git": ["test_git::test_bad_input"],
    "a credential goes to another host": ["test_git::test_the_other_host_gets_nothing", "test_git_hostile::test_no_redirect_leads_elsewhere"],
    "hooks and configuration run with it": ["test_git::test_no_configuration_moves_it", "test_git::test_a_hook_pushes_nothing_else"],
    "the state of an empty repository is an error": ["test_flaws::test_a_repository_without_commits"],
    "absolute exclusions match nothing": ["test_archive::test_what_is_left_out_is_said"],
    "nothing there is a silent empty archive": ["test_snapshots::test_nothing_there"],
    "a file that changes fails the snapshot": ["test_flaws::test_files_that_change_are_counted"],
    "extraction follows links": ["test_archive::test_hostile"],
    "deleted files come back": ["test_archive::test_replace", "test_suspend_durable::test_a_stop_of_the_host_between"],
    "rules are ignored or widened": ["test_egress_programs::test_what_is_not_allowed_fails_at_once_and_is_recorded"],
    "rules are not applied again on resume": ["test_suspend::test_a_resume_with_other_rules_and_variables"],
    "nothing says what was refused": ["test_egress_programs::test_what_is_not_allowed_fails_at_once_and_is_recorded"],
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_each_has_a_test(flaw):
    assert FLAWS[flaw]
    for test in FLAWS[flaw]:
        name, function = test.split("::")
        file = next(HERE / f"{name}{ending}" for ending in (".py", ".c") if (HERE / f"{name}{ending}").exists())
        assert re.search(rf"\b{re.escape(function)}\b", file.read_text()), test


def answer_of(caller, session, script, **more):
    answer = caller.post(at(session, "/commands"), {"cmd": script, **more}, headers=JSON)
    assert answer.status == 200, answer
    return answer.json


@pytest.mark.parametrize("code", (1, 124, 126, 127, 129, 137, 143, 255))
def test_exit_codes_are_the_commands_own(caller, session, code):
    told = answer_of(caller, session, f"echo out; echo err >&2; exit {code}")
    assert (told["code"], told["signal"], told["timed_out"]) == (code, None, False)
    assert (told["stdout"], told["stderr"]) == ("out\n", "err\n")
    for seconds in (2, 20, 120):  # one that is over before the first word says nothing
        told = answer_of(caller, session, f"trap 'exit {code}' TERM; echo err >&2; while :; do sleep 0.1; done",
                         timeout_ms=1000 * seconds)
        if told["stderr"]:
            break
    assert told["timed_out"] is True and told["stderr"].startswith("err\n"), told


def test_no_end_is_no_success(private):
    """Its processes are gone, and nobody heard how it ended."""
    private.deaths_expected = True
    caller = private.client("ana")
    session = caller.create_runtime()
    cid = begin(caller, session, "sleep 1000")
    told = []
    asking = threading.Thread(target=lambda: told.append(
        caller.post(at(session, "/commands"), {"cmd": "touch begun; sleep 1000"}, headers=JSON, timeout=120 * PATIENCE)))
    asking.start()
    wait_until(lambda: "begun" in run(caller, session, "ls"))
    os.kill(private.shim_pids()[0], signal.SIGKILL)
    asking.join(120 * PATIENCE)
    assert told and told[0].status != 200 and "code" in told[0].json, told
    assert not isinstance(told[0].json["code"], int)
    state = caller.get(at(session, f"/commands/{cid}"))
    assert state.status == 404 or state.json["status"] == "lost", state


def test_rows_that_another_program_deletes():
    daemon = Daemon(config="[identity]\ntrusted_peers = 0\n[api]\njanitor_interval = 1s\n")
    try:
        caller = daemon.client("ana")
        session = caller.create_runtime()
        suspend(caller, session, durable="wait")
        left, = files_of(daemon, session)
        for table, column in (("sandbox_registry", "sandbox_uuid"), ("dagster_sandbox_sessions", "id")):
            daemon.sql(f"DELETE FROM {table} WHERE {column} = ?", session)
        kill_worker(daemon, "sandboxd-api")
        wait_until(lambda: not daemon.shim_pids(), 30, "its processes are gone")
        assert daemon.client("ana").get(at(session)).status == 404
        os.utime(left, (1, 1))  # no row can be on its way any more
        wait_until(lambda: not left.exists(), 30, "its snapshot is gone")
    finally:
        daemon.done()


def test_a_resume_that_fails_leaves_nothing_and_can_be_tried_again(private):
    caller = private.client("ana")
    session = caller.create_runtime()
    run(caller, session, "mkdir d && echo kept > d/file")
    suspend(caller, session, durable="wait")
    kept, = files_of(private, session)
    restart(private)
    before = private.settled()
    whole = kept.read_bytes()
    broken = bytearray(whole)
    broken[len(broken) // 2] ^= 1
    caller = private.client("ana")
    for content in (bytes(broken), whole[:-1]):
        kept.write_bytes(content)
        answer = caller.post(at(session, "/resume"))
        assert answer.status == 503 and answer.json["retryable"] is True, answer
        wait_until(lambda: private.settled() == before, 30, "nothing of it is left")
        assert caller.get(at(session)).status == 200
    kept.write_bytes(whole)
    assert caller.post(at(session, "/resume")).status == 200
    assert run(caller, session, "cat d/file") == "kept\n"
    assert files_of(private, session) == [kept]


def test_a_read_is_of_one_version(caller, session):
    """It is replaced all the while by others of another length."""
    url = at(session, "/files?path=f")
    versions = {b"a" * MIB, b"b" * 2 * MIB}
    ends = threading.Event()

    def write():
        while not ends.is_set():
            for body in versions:
                assert caller.request("PUT", url, raw_body=body).status == 200

    assert caller.request("PUT", url, raw_body=b"a" * MIB).status == 200
    writer = threading.Thread(target=write)
    writer.start()
    try:
        bodies = {caller.get(url).body for _ in range(30)}
    finally:
        ends.set()
        writer.join(60 * PATIENCE)
    assert bodies <= versions and bodies


def test_a_repository_without_commits(caller, session):
    assert caller.shell(session, "git init -q -b main w && touch w/new").code == 0
    answer = caller.get(at(session, "/git/status?path=w"))
    assert answer.status == 200, answer
    assert (answer.json["current_branch"], answer.json["has_changes"]) == ("main", True)
    assert [entry["path"] for entry in answer.json["files"]] == ["new"]


def test_files_that_change_are_counted(caller):
    """What is being written while it is read is in the snapshot as it was found, and said to be so."""
    session = caller.create_runtime(profile="agent")
    try:
        run(caller, session, "head -c 30000000 /dev/urandom > big")
        begin(caller, session, "while :; do printf x | dd of=big bs=1 conv=notrunc status=none; done")
        for _ in range(20):
            answer = caller.post(f"{RUNTIME}/{session}/snapshots", timeout=120 * PATIENCE)
            assert answer.status == 201, answer
            assert caller.delete(f"{RUNTIME}/{session}/snapshots/{answer.json['snapshot_id']}").status == 200
            if answer.json["changed"] > 0:
                break
        assert answer.json["changed"] > 0, json.dumps(answer.json)
    finally:
        caller.delete(at(session))
