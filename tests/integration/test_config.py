"""Configuration: files and drop-ins, reload as a whole or not at all, who says what about it."""
import fcntl
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness import ASAN, BIN, PATIENCE, ROOT, RUNTIME, SESSIONS, Daemon, is_zombie, name_of, status_of, wait_until

BASE = "[identity]\ntrusted_peers = 0\n"


@pytest.fixture(name="own")
def fixture_own():
    """A daemon whose configuration a test may change."""
    daemon = Daemon(config=BASE)
    yield daemon
    daemon.done()


def drop_in(daemon, name, text):
    folder = daemon.config.parent / "conf.d"
    folder.mkdir(mode=0o755, exist_ok=True)
    (folder / name).write_text(text)


def reload(daemon, says):
    """SIGHUP to the first process; the log then says so."""
    before = len(daemon.log.read_text())
    os.kill(daemon.process.pid, signal.SIGHUP)
    wait_until(lambda: says in daemon.log.read_text()[before:], what=says)


def state(daemon):
    return daemon.root.get("/v1/config").json


def test_drop_ins_are_read_in_order_and_win(own):
    own.stop()
    own.configure(BASE + "[limits]\nsessions = 1\n")
    drop_in(own, "10-a.conf", "[limits]\nsessions = 2\n")
    drop_in(own, "20-b.conf", "[limits]\nsessions = 3\n")
    drop_in(own, "30-c.conf.bak", "[nonsense\n")
    own.start()
    assert own.root.get("/v1/capabilities").json["max_sessions"] == 3


def test_reload_changes_limits_and_endpoints_of_new_and_running_sessions(own):
    session = own.root.create_runtime(profile="agent")
    assert own.root.shell(session, "echo $ALPHASWARM_KAFKA_BOOTSTRAP").text == "\n"
    own.configure(
        BASE + "[limits]\nsessions = 2\nsession_memory = 512MiB\n[endpoints]\nkafka_bootstrap = b:1\n"
    )
    reload(own, "configuration is reloaded")
    wait_until(lambda: state(own)["generation"] == 1)
    assert own.root.shell(session, "echo $ALPHASWARM_KAFKA_BOOTSTRAP").text == "b:1\n"
    assert own.root.get("/v1/capabilities").json["max_sessions"] == 2
    # The supervisor's own ceiling, not the worker's: the profile asks for 4 GiB.
    refused = own.root.post(RUNTIME, {"profile": "agent"})
    assert refused.status == 500
    assert "plan" in refused.json["detail"]
    own.configure(BASE + "[limits]\nsessions = 1\n")
    reload(own, "configuration is reloaded")
    wait_until(lambda: state(own)["generation"] == 2)
    assert own.root.post(SESSIONS).status == 429
    assert own.root.shell(session, "echo alive").text == "alive\n"


def test_reload_of_a_bad_file_changes_nothing_and_says_so(own):
    own.configure(BASE + "[limits]\nsessions = 7\n")
    reload(own, "configuration is reloaded")
    drop_in(own, "50-bad.conf", "[limits]\nsessions = 5\nsessionz = 9\n")
    reload(own, "the former configuration stays")
    ready = wait_until(lambda: (a := own.root.get("/readyz")).status == 503 and a)
    assert "config" in ready.body.decode()
    told = state(own)
    assert told["refused"] is True
    assert told["text"].startswith("conf.d/50-bad.conf line 3: [limits] has no option sessionz")
    assert own.root.get("/v1/capabilities").json["max_sessions"] == 7
    # Also an api worker that starts now knows it.
    own.deaths_expected = True
    os.kill(own.worker_pid("sandboxd-api"), signal.SIGKILL)
    wait_until(own.ready, what="the next worker")
    wait_until(lambda: own.readiness() == 503)
    assert own.root.get("/v1/capabilities").json["max_sessions"] == 7
    (own.config.parent / "conf.d" / "50-bad.conf").unlink()
    reload(own, "configuration is reloaded")
    wait_until(lambda: own.root.get("/readyz").status == 200)
    assert state(own)["refused"] is False


@pytest.mark.parametrize("mode, uid", [(0o666, 0), (0o644, 1000)])
def test_reload_refuses_a_file_that_others_may_write(own, mode, uid):
    drop_in(own, "10-a.conf", "[limits]\nsessions = 2\n")
    path = own.config.parent / "conf.d" / "10-a.conf"
    os.chown(path, uid, 0)
    path.chmod(mode)
    reload(own, "the former configuration stays")
    wait_until(lambda: state(own)["refused"])
    assert "not root's alone" in state(own)["text"]
    assert own.root.get("/v1/capabilities").json["max_sessions"] == 1000


def test_start_with_a_bad_file_waits_for_nothing_else():
    with pytest.raises(AssertionError, match="has no option sessionz") as failed:
        Daemon(config="[limits]\nsessionz = 1\n")
    assert "looked through" not in str(failed.value)


def test_reload_names_what_needs_a_restart(own):
    own.configure(BASE + "[supervisor]\negress_workers = 2\nlaunches_per_second = 77\n")
    reload(own, "options=\"supervisor.egress_workers\"")
    wait_until(lambda: state(own)["generation"] == 1)
    assert state(own)["needs_restart"] == ["supervisor.egress_workers"]


def test_reload_is_passed_on_by_the_keeper_and_changes_the_log_level(own):
    assert "level=debug" not in own.log.read_text()
    own.configure(BASE + "[supervisor]\nlog_level = debug\n")
    reload(own, "configuration is reloaded")
    own.configure(BASE + "[supervisor]\nlog_level = error\n")
    os.kill(own.process.pid, signal.SIGHUP)
    wait_until(lambda: state(own)["generation"] == 2)
    before = len(own.log.read_text())
    os.kill(own.process.pid, signal.SIGHUP)
    wait_until(lambda: state(own)["generation"] == 3)
    assert "configuration is reloaded" not in own.log.read_text()[before:]
    own.configure(BASE + "[supervisor]\nlog_level = info\n")
    reload(own, "configuration is reloaded")


def test_many_reloads_at_once_end_with_the_last_file(own):
    """SIGHUP while one is under way is not lost, and no reader is left behind."""
    for number in range(2, 32):
        own.configure(BASE + f"[limits]\nsessions = {number}\n")
        os.kill(own.process.pid, signal.SIGHUP)
        if number % 5 == 0:
            assert own.root.get("/healthz").status == 200
    wait_until(lambda: own.root.get("/v1/capabilities").json["max_sessions"] == 31)
    wait_until(lambda: "sandboxd-config" not in own.processes())
    assert state(own)["refused"] is False


def test_launches_go_on_while_a_reader_hangs(own):
    """The supervisor does not wait for the reader, and gives it up in the end."""
    pid = own.supervisor_pid()
    children = Path(f"/proc/{pid}/task/{pid}/children")
    before = set(children.read_text().split())

    def stop_a_reader():
        os.kill(own.process.pid, signal.SIGHUP)
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            for new in set(children.read_text().split()) - before:
                try:
                    os.kill(int(new), signal.SIGSTOP)
                    # Not one that prepares a user namespace, nor one that was ending already.
                    wait_until(lambda pid=new: status_of(pid)["State"][0] in "TZ", 1, "it stops")
                    if name_of(int(new)) == "sandboxd-config" and not is_zombie(int(new)):
                        return int(new)
                    os.kill(int(new), signal.SIGCONT)
                except (ProcessLookupError, FileNotFoundError):
                    pass
        return None

    reader = wait_until(stop_a_reader, 30, "a reader is caught")
    session = own.root.create()
    assert os.path.exists(f"/proc/{reader}") and not is_zombie(reader), "nobody waited for the reader's end"
    own.root.remove(session)
    wait_until(lambda: not os.path.exists(f"/proc/{reader}"), 20, "the reader is ended")


def test_reload_of_trusted_peers_shuts_out_at_once(own):
    own.configure("[identity]\ntrusted_peers = 33\n")
    me = own.client("me")
    assert me.get(SESSIONS).status == 200
    reload(own, "configuration is reloaded")
    wait_until(lambda: me.get(SESSIONS).status == 401)


def test_reader_by_hand_says_what_it_is_for():
    done = subprocess.run([BIN / "sandboxd-config"], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "sandboxctl config check" in done.stderr


@pytest.mark.skipif(ASAN, reason="a sanitizer's runtime reads files")
@pytest.mark.parametrize("mode", ["--check", "--show"])
def test_reader_by_hand_is_nobody(mode):
    with subprocess.Popen([BIN / "sandboxd-config", mode], stdin=subprocess.PIPE,
                          stdout=subprocess.DEVNULL) as reader:
        wait_until(lambda: status_of(reader.pid)["Uid"].split() == ["65534"] * 4)
        wait_until(lambda: status_of(reader.pid)["NoNewPrivs"] == "1")
        status = status_of(reader.pid)
        assert status["Gid"].split() == ["65534"] * 4 and status["Groups"] == ""
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        reader.stdin.write(b"[limits]\nsessions = 9\n")
        reader.stdin.close()
        assert reader.wait() == 0


def test_config_state_is_for_administrators(own):
    assert own.client("me").get("/v1/config").status == 403
    assert own.client("me", "platform:admin").get("/v1/config").status == 200
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*", state(own)["at"])


# --- sandboxctl config


def sandboxctl(*words, **more):
    return subprocess.run([BIN / "sandboxctl", *map(str, words)], capture_output=True, text=True,
                          check=False, timeout=30 * PATIENCE, **more)


def test_config_check_names_file_line_and_nearest_option(own):
    drop_in(own, "10-a.conf", "# x\n[limits]\nsessionz = 1\nmemory = lots\n")
    done = sandboxctl("config", "check", "--config", own.config)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith(
        "conf.d/10-a.conf line 3: [limits] has no option sessionz; did you mean sessions?")
    assert lines[1].startswith("conf.d/10-a.conf line 4: [limits] memory wants a size such as")
    assert "lots" not in done.stderr
    drop_in(own, "10-a.conf", "[limits]\nsessions = 1\n")
    assert sandboxctl("config", "check", "--config", own.config).returncode == 0
    relative = sandboxctl("config", "check", "--config", "etc/sandboxd.conf")
    assert (relative.returncode, relative.stderr.split(":")[1]) == (1, " etc/sandboxd.conf is no absolute path of a file")


def test_config_check_of_one_file(tmp_path):
    path = tmp_path / "new.conf"
    path.write_text("[limits]\nsessions = 0\n")
    done = sandboxctl("config", "check", path)
    assert (done.returncode, done.stderr) == (1, "line 2: [limits] sessions wants a number from 1 to 20000\n")
    assert sandboxctl("config", "check", "-", input="[limits]\nsessions = 9\n").returncode == 0
    done = sandboxctl("config", "check", "-", input="[platform]\nredis_url = rediss://host\n")
    assert done.stderr == ("line 2: [platform] redis_url wants redis://user:password@host:port/database "
                           "or rediss:// likewise, percent-encoded\n")
    assert sandboxctl("config", "check", tmp_path / "none").returncode == 3
    path.chmod(0o600)
    assert sandboxctl("config", "check", path, user=65534, group=65534).returncode == 4


def test_config_show_says_where_values_come_from_and_hides_some(own):
    own.configure(BASE + "[endpoints]\nkafka_bootstrap = s3cret:1\n[supervisor]\negress_workers = 2\n")
    drop_in(own, "10-a.conf", "[limits]\nsessions = 77\n[endpoint:kafka_bootstrap]\non_production = reroute\n"
            "production = kafka.example.com\n[network]\nagent_allow = a.example.com b.example.com\nagent_allow = c.example.com\n")
    reload(own, "configuration is reloaded")
    wait_until(lambda: state(own)["needs_restart"])
    words = ("--socket", own.operator, "config", "show", "--config", own.config)
    rows = {row["name"]: row for row in json.loads(sandboxctl(*words, "-o", "json").stdout)}
    assert (rows["limits.sessions"]["value"], rows["limits.sessions"]["source"]) == ("77", "conf.d/10-a.conf:2")
    assert rows["identity.trusted_peers"]["source"] == "sandboxd.conf:2"
    assert rows["limits.session_memory"]["source"] == "default"
    assert rows["endpoints.kafka_bootstrap"]["value"] == "<set>"
    assert rows["endpoints.datahub_gms_url"]["value"] is None
    reroute = rows["endpoint:kafka_bootstrap.on_production"]
    assert (reroute["value"], reroute["source"]) == ("reroute", "conf.d/10-a.conf:4")
    assert rows["endpoint:datahub_gms_url.on_production"]["source"] == "default"
    allow, production = rows["network.agent_allow"], rows["endpoint:kafka_bootstrap.production"]
    assert (allow["value"], allow["source"]) == ("<3 entries>", "conf.d/10-a.conf:7")
    assert (production["value"], production["source"]) == ("<1 entry>", "conf.d/10-a.conf:5")
    assert rows["network.component_allow"]["value"] is None
    assert [name for name, row in rows.items() if row["needs_restart"]] == ["supervisor.egress_workers"]
    table = sandboxctl(*words)
    assert "s3cret" not in table.stdout + table.stderr
    assert "needs restart" in table.stdout
    assert sandboxctl(*words, "-o", "name").stdout.splitlines() == list(rows)


def test_config_show_tells_what_changed_after_the_last_reload(own):
    words = ("--socket", own.operator, "config", "show", "--config", own.config)

    def told():
        return "files have changed" in sandboxctl(*words).stderr

    drop_in(own, "10-a.conf", "[limits]\nsessions = 77\n")
    reload(own, "configuration is reloaded")
    wait_until(lambda: not told(), what="the api worker has heard of the reload")
    own.configure(BASE)
    assert told()
    reload(own, "configuration is reloaded")
    wait_until(lambda: not told(), what="the api worker has heard of the reload")
    (own.config.parent / "conf.d" / "10-a.conf").unlink()
    assert told()


def test_reader_gets_no_connection_of_the_client(own):
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)  # less than it has to say: it waits in the middle
    words = ("--socket", own.operator, "config", "show", "-o", "json", "--config", own.config)
    with subprocess.Popen([BIN / "sandboxctl", *words], stdout=theirs) as shower:
        os.close(theirs)
        wait_until(lambda: status_of(shower.pid)["Name"] == "sandboxd-config")
        # In a write to its standard output.
        wait_until(lambda: Path(f"/proc/{shower.pid}/syscall").read_text().split()[:2] == ["1", "0x1"])
        held = os.listdir(f"/proc/{shower.pid}/fd")
        with os.fdopen(ours) as text:
            assert json.load(text)
        assert shower.wait() == 0
    assert sorted(held) == ["0", "1", "2"]


def test_config_show_without_the_service_shows_the_files(own):
    path = own.home / "none.sock"
    done = sandboxctl("--socket", path, "config", "show", "--config", own.config)
    assert done.returncode == 0
    assert "does not answer" in done.stderr
    assert "sandboxd.conf:2" in done.stdout


def test_every_option_is_in_the_manual_as_the_reader_has_it():
    """Name, default, range, what a change takes and for which sessions."""
    page = (ROOT / "docs/man/sandboxd.conf.5").read_text(encoding="utf-8")
    told = {}
    for name, section in re.findall(r"^\.Ss Section (\S+)\n(.*?)(?=^\.S[sh] )", page, re.S | re.M):
        for key, text in re.findall(r"^\.It Cm (\S+)\n(.*?)(?=^\.It |^\.El)", section, re.S | re.M):
            told[name, key] = text
    table = subprocess.run([BIN / "sandboxd-config", "--table"], capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in table.stdout.splitlines()]
    assert sorted(told) == sorted((row[0], row[1]) for row in rows)
    unit = {"size": " bytes", "time": " seconds"}
    for section, key, kind, default, span, takes, sessions, doc in rows:
        text = told[section, key]
        lines = text.splitlines()
        assert lines[0] == doc[0].upper() + doc[1:] + ".", (section, key)
        assert f"Default: {default or 'none'}." in lines, (section, key)
        if span:
            assert f"Range: {span.replace('..', ' to ')}{unit.get(kind, '')}." in lines, (section, key)
        last = {"restart": "Restart."}.get(
            takes, "Reload; new sessions." if sessions == "new" else "Reload; running sessions too.")
        assert lines[-1] == last, (section, key)
