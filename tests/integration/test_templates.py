"""Sessions whose root is a template: what they see, may write, share, and what is left of them."""
import json
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import template_rig
from harness import BIN, CONFIG, PATIENCE, RUNTIME, Daemon, ctl, wait_until
from template_rig import in_use, make

# Many agents at once.
ROOMY = CONFIG + "[limits]\nmemory = 1024GiB\n[owner]\nsessions = 100\nmemory = 1024GiB\n"


@pytest.fixture(scope="module", name="home")
def fixture_home():
    daemon = Daemon(config=ROOMY)
    try:
        yield daemon
    finally:
        daemon.done()


@pytest.fixture(scope="module", name="small")
def fixture_small(home):
    """One that no test changes."""
    return make(home, "small")


@pytest.fixture(name="ana")
def fixture_ana(home):
    return home.client("ana")


@pytest.fixture(name="session")
def fixture_session(ana, small):
    made = ana.create_runtime(template=small.name)
    yield made
    ana.delete(f"{RUNTIME}/{made}")


def root(client, session, script, **more):
    return client.shell(session, script, user="root", **more)


def gone(home, folder):
    """Nobody uses it: it may be deleted."""
    wait_until(lambda: not in_use(folder), 10, "nobody uses it")
    shutil.rmtree(folder)


def test_the_root_is_the_templates_and_ours_around_it(ana, session, small):
    assert ana.shell(session, "cat /opt/marker").text == "of the template\n"
    assert ana.shell(session, "test ! -e /usr/lib/os-release && echo none").text == "none\n"
    script = """
    cat /etc/hostname /etc/resolv.conf; grep -c of-the-template /etc/hosts
    cat /etc/machine-id; grep ^www /etc/passwd
    stat -c '%F %n' /dev /proc /etc /tmp /session /dev/shm /dev/pts
    ls /dev; stat -c %F /dev/null; id -u
    """
    text = ana.shell(session, script).text
    assert text.startswith("sandbox\nnameserver 127.") and "\n0\n" in text, text
    assert session.replace("-", "") in text and "www:x:33:" in text, text
    assert text.count("directory") == 7 and "character special file" in text, text
    assert text.rstrip().endswith("1000"), text
    assert sorted(text.split("/dev/pts\n")[1].split("character")[0].split()) == [
        "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom",
        "zero"]


def test_names_in_mountinfo_are_letters(ana, session, small):
    text = ana.shell(session, "cat /proc/self/mountinfo /proc/mounts").text
    assert "lowerdir=f:t" in text, text
    assert str(small.parent) not in text and "/d/" not in text and small.name not in text, text


def test_owners_are_the_images(ana, session, home):
    script = "stat -c '%u:%g' / /opt/marker /etc /usr /var/lib/www /srv/node /session"
    mapped = "templates=no" not in home.log.read_text()
    want = ["0:0", "0:0", "0:0", "0:0", "33:33", "1000:1000", "1000:1000"]
    if not mapped:
        want[1] = want[3] = want[4] = want[5] = "65534:65534"
    assert ana.shell(session, script).text.split() == want


def test_root_writes_where_it_may_and_user_where_the_image_lets_it(ana, session):
    script = """set -e
    echo changed > /opt/marker; rm /etc/hosts; mkdir /data; echo x > /data/x; mv /var /var2; test ! -e /var
    touch /usr/bin/new; chown 33:33 /opt/marker; stat -c %u /opt/marker; cat /opt/marker
    test ! -e /etc/hosts && ls /data
    """
    assert root(ana, session, script).text.split() == ["33", "changed", "x"]
    for script in ("echo > /opt/new", "rm /opt/marker", "touch /usr/bin/mine", "mkdir /mine"):
        result = ana.shell(session, script)
        assert result.code != 0 and b"Permission denied" in result.err, (script, result)
    assert ana.shell(session, "echo y > /srv/node/y && cat /srv/node/y").text == "y\n"
    for script, error in (("mknod /opt/null c 1 3", "Permission denied"), ("rm -r /dev/null", "Read-only"),
                          ("touch /dev/new", "Read-only"), ("rmdir /tmp", "busy"), ("mv /proc /p", "busy"),
                          ("rmdir /session", "busy"), ("mv /dev /d2", "busy"),
                          ("echo 1 > /proc/sys/kernel/panic", "Read-only"), ("ln /proc/1/exe /x", "")):
        result = root(ana, session, script)
        assert result.code != 0 and error in result.err.decode(), (script, result)


def test_a_file_of_root_with_setuid_has_no_effect(ana, session):
    assert root(ana, session, "cp /bin/id /opt/id; chmod 6755 /opt/id").code == 0
    assert ana.shell(session, "/opt/id -u; /opt/id -g").text.split() == ["1000", "1000"]


def test_what_it_writes_is_its_disk(ana, small):
    session = ana.create_runtime(template=small.name)
    limit = ana.get(f"{RUNTIME}/{session}").json["limits_effective"]["tmpfs_bytes"]
    result = root(ana, session, "dd if=/dev/zero of=/big bs=1M 2>&1 | head -n 1; stat -c %s /big",
                  timeout_ms=60000)
    assert "No space left" in result.text, result
    assert limit * 0.9 < int(result.text.split()[-1]) <= limit, result
    stats = ana.get(f"{RUNTIME}/{session}/stats").json
    assert stats["disk"]["/session"]["used_bytes"] > limit * 0.9, stats
    assert root(ana, session, "rm /big && echo ok > /small && cat /small").text == "ok\n"
    ana.delete(f"{RUNTIME}/{session}")


def test_two_sessions_share_it_and_see_nothing_of_each_other(ana, small):
    first, second = (ana.create_runtime(template=small.name) for _ in range(2))
    assert root(ana, first, "echo mine > /opt/marker; touch /opt/new; rm /etc/group").code == 0
    assert ana.shell(second, "cat /opt/marker; ls /opt; ls /etc/group").text.split() == [
        "of", "the", "template", "marker", "/etc/group"]
    holder = ana.lines("POST", f"{RUNTIME}/{first}/commands",
                       {"argv": ["/bin/sh", "-c", "flock -n /bin/cat sh -c 'echo held; sleep 900'"],
                        "timeout_ms": 900000})
    started = next(json.loads(line) for line in holder if b"held" in line)
    assert started["type"] == "stdout", started
    assert ana.shell(second, "flock -n /bin/cat sh -c 'echo free'").text == "free\n"
    assert ana.shell(first, "flock -n /bin/cat sh -c 'echo free'").text == ""
    assert (small / "root" / "opt" / "marker").read_text() == "of the template\n"
    assert sorted(os.listdir(small / "root" / "opt")) == ["marker"]
    holder.close()
    for session in (first, second):
        ana.delete(f"{RUNTIME}/{session}")


def test_summary_list_and_client_name_it(ana, home, session):
    assert ana.get(f"{RUNTIME}/{session}").json["template"] == "small"
    listed = {one["sandbox_uuid"]: one for one in ana.get(RUNTIME).json["sandboxes"]}
    assert listed[session]["template"] == "small"

    def told():
        lines = (home.state / "api" / "audit.jsonl").read_text().split("\n")[:-1]  # the last may be half there
        return any(line.get("session") == session and line.get("template") == "small" for line in map(json.loads, lines))

    wait_until(told, 10, "a line of the audit")
    other = ana.create_runtime(template="base")
    assert ana.get(f"{RUNTIME}/{other}").json["template"] == "base"
    assert ana.shell(other, "test -e /usr/lib/os-release && echo host").text == "host\n"
    ana.delete(f"{RUNTIME}/{other}")
    done = ctl(home, "run", "--template", "small", "--", "cat", "/opt/marker")
    assert done.returncode == 0 and done.stdout == b"of the template\n", done


@pytest.mark.parametrize("body", [{"template": "nowhere"}, {"template": "small", "profile": "component"},
                                  {"template": "../small"}, {"template": ".small"}, {"template": 7},
                                  {"template": "small/root"}])
def test_one_that_is_not_there_or_not_for_the_profile_is_named(ana, small, body):
    answer = ana.post(RUNTIME, body)
    assert answer.status == 422, answer
    assert [item["loc"] for item in answer.json["detail"]] == [["body", "template"]], answer


@pytest.mark.parametrize("fields", [{"magic": 1}, {"version": 9}, {"size": 71}, {"id_base": 65536}])
def test_a_record_that_no_release_writes_is_an_error_of_the_step(home, ana, small, fields):
    made = make(home, "odd", source=small / "root", **fields)
    answer = ana.post(RUNTIME, {"template": "odd"})
    assert answer.status == 503 and "template" in answer.body.decode(), answer
    gone(home, made)


def links(root):
    """Mount points and their like are links out of it."""
    for name in ("dev", "proc", "etc", "tmp", "session"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).symlink_to(f"/opt/{name}")
        (root / "opt" / name).mkdir()


def files(root):
    for name in ("dev", "proc", "etc", "tmp", "session"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).write_text("a file\n")


def inner(root):
    """Folders with links and more where ours are mounted."""
    for name in ("dev", "proc", "tmp", "session"):
        (root / name).mkdir()
        (root / name / "left").write_text("of the template\n")
    for name in ("shm", "pts", "null"):
        (root / "dev" / name).symlink_to("/opt")
    (root / "proc" / "sys").symlink_to("/opt")
    for name in ("hosts", "resolv.conf", "hostname", "machine-id"):
        (root / "etc" / name).unlink(missing_ok=True)
        (root / "etc" / name).symlink_to("/opt/marker")
    # None is the root's by then, with the host's devices in it: nodev.
    os.mknod(root / "opt" / "zero", 0o20666, os.makedev(1, 5))


@pytest.mark.parametrize("change", [links, files, inner])
def test_mount_points_of_a_hostile_one_are_ours(home, ana, small, change):
    made = make(home, "hostile", change, source=small / "root")
    before = sorted(str(path) for path in made.rglob("*"))
    session = ana.create_runtime(template="hostile")
    script = """
    stat -c '%F' /dev /proc /etc /tmp /session /dev/shm /dev/pts
    for at in /dev /tmp /session /proc /dev/shm; do ls -d $at/left 2>/dev/null; done
    ls /opt/dev /opt/proc /opt/tmp /opt/session /opt/shm 2>/dev/null
    cat /etc/hostname; touch /tmp/t /session/s /dev/shm/m; cat /proc/self/comm; head -c1 /dev/null
    head -c1 /opt/zero
    """
    result = ana.shell(session, script)
    lines = [line for line in result.text.splitlines() if line and not line.startswith("/opt/")]
    assert lines == ["directory"] * 7 + ["sandbox", "cat"], result
    answer = ana.get(f"{RUNTIME}/{session}/files?path=/session/s")
    assert answer.status == 200, answer
    ana.delete(f"{RUNTIME}/{session}")
    assert sorted(str(path) for path in made.rglob("*")) == before
    gone(home, made)


def test_in_use_until_the_session_has_ended(home, ana, small):
    made = make(home, "held", source=small / "root")
    assert not in_use(made)
    first, second = (ana.create_runtime(template="held") for _ in range(2))
    assert in_use(made)
    ana.delete(f"{RUNTIME}/{first}")
    assert in_use(made)
    ana.delete(f"{RUNTIME}/{second}")
    with template_rig.removing(made):
        answer = ana.post(RUNTIME, {"template": "held"})
        assert answer.status == 422, answer
    assert not in_use(made)
    gone(home, made)


def kill_all(daemon):
    """Supervisor, keeper and workers; the sessions live on."""
    supervisor = daemon.supervisor_pid()
    daemon.process.kill()
    os.kill(supervisor, signal.SIGKILL)
    daemon.process.wait()


def test_over_the_ends_of_all_our_processes(small):
    daemon = Daemon(config=CONFIG)
    try:
        made = make(daemon, "kept", source=small / "root")
        ana = daemon.client("ana")
        session = ana.create_runtime(template="kept")
        assert root(ana, session, "echo written > /opt/marker").code == 0
        worker = daemon.worker_pid("sandboxd-api")
        daemon.deaths_expected = True
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: daemon.worker_pid("sandboxd-api") != worker, 10, "another worker")
        wait_until(daemon.ready, 20, "it answers")
        assert ana.shell(session, "cat /opt/marker").text == "written\n"
        kill_all(daemon)
        time.sleep(0.2)
        # Nobody of ours runs, and it is in use.
        assert in_use(made)
        daemon.start()
        assert ana.shell(session, "cat /opt/marker").text == "written\n"
        assert ana.get(f"{RUNTIME}/{session}").json["template"] == "kept"
        assert in_use(made)
        ana.delete(f"{RUNTIME}/{session}")
        wait_until(lambda: not in_use(made), 10, "nobody uses it")
    finally:
        daemon.done()


def test_a_tree_that_is_made_again_has_it_and_one_without_it_waits(small):
    daemon = Daemon(config=CONFIG)
    try:
        made = make(daemon, "mine", source=small / "root")
        ana = daemon.client("ana")
        session = ana.create_runtime(template="mine", workspace={"include": ["/session/keep"]})
        assert ana.shell(session, "mkdir /session/keep && echo w > /session/keep/w").code == 0
        answer = ana.post(f"{RUNTIME}/{session}/suspend", {"durable": "wait"})
        assert answer.status == 200, answer
        daemon.stop()
        wait_until(lambda: not in_use(made), 10, "nobody uses it")
        away = made.with_name(".away")
        made.rename(away)
        daemon.start()
        answer = ana.post(f"{RUNTIME}/{session}/resume")
        assert answer.status == 409 and answer.json["code"] == "template_not_found", answer
        assert ana.get(f"{RUNTIME}/{session}").status == 200
        away.rename(made)
        answer = ana.post(f"{RUNTIME}/{session}/resume")
        assert answer.status == 200, answer
        assert ana.shell(session, "cat /opt/marker /session/keep/w").text == "of the template\nw\n"
    finally:
        daemon.done()


def template(daemon, *words):
    done = subprocess.run([str(BIN / "sandboxctl"), "-o", "json", "template", *words, "--state-dir", str(daemon.state)],
                          capture_output=True, check=False, timeout=120 * PATIENCE)
    return done.returncode, done.stdout, done.stderr


def test_one_that_was_imported(home, ana, tmp_path):
    template_rig.tree(tmp_path / "root")
    (tmp_path / "root" / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/bash\nwww:x:33:33::/:/bin/sh\n")
    assert template(home, "import", "real", str(tmp_path / "root"))[0] == 0
    session = ana.create_runtime(template="real")
    text = ana.shell(session, "id -un; grep -c . /etc/passwd; stat -c %U:%u /var/lib/www /opt/marker").text
    assert text.split() == ["user", "4", "www:33", "root:0"], text
    assert root(ana, session, "echo mine > /opt/marker; id -un; cat /opt/marker").text.split() == ["root", "mine"]
    listed = {one["name"]: one for one in json.loads(template(home, "ls")[1])}
    assert listed["real"]["sessions"] == 1, listed
    code, _, err = template(home, "rm", "real")
    assert code != 0 and b"sessions use it" in err, err
    ana.delete(f"{RUNTIME}/{session}")
    wait_until(lambda: template(home, "rm", "real")[0] == 0, 10, "it is removed")
    assert ana.post(RUNTIME, {"template": "real"}).status == 422


def test_where_nothing_can_be_idmapped(small):
    """As Linux 6.1 or another file system has it: the template is nobody's, and what root makes is root's."""
    daemon = Daemon(config=CONFIG, env={"SANDBOX_KERNEL": "6.1"})
    try:
        make(daemon, "plain", source=small / "root")
        assert "templates=no" in daemon.log.read_text()
        assert daemon.root.get("/v1/capabilities").json["templates"] == {"owners_mapped": False}
        rows = {row["name"]: row for row in json.loads(ctl(daemon, "-o", "json", "doctor").stdout)}
        assert rows["templates"]["state"] == "degraded", rows["templates"]
        ana = daemon.client("ana")
        session = ana.create_runtime(template="plain")
        assert ana.shell(session, "stat -c %u /opt/marker /srv/node /; cat /opt/marker").text.split()[:3] == [
            "65534", "65534", "0"]
        result = root(ana, session, "echo x > /new && mkdir /etc/own && cat /new; echo y > /opt/marker")
        assert result.text == "x\n" and b"Permission denied" in result.err, result
        ana.delete(f"{RUNTIME}/{session}")
    finally:
        daemon.done()


def test_removed_and_imported_beside_launches(tmp_path):
    """A session has the whole of it, or is not made; who removes it waits for the last one."""
    template_rig.tree(tmp_path / "root")
    daemon = Daemon(config=ROOMY)
    try:
        assert template(daemon, "import", "torn", str(tmp_path / "root"))[0] == 0
        begin = time.monotonic()
        seen = {"whole": 0, "none": 0, "removed": 0, "refused": 0}

        def launch():
            ana = daemon.client("ana")
            while time.monotonic() < begin + 5 or not (seen["whole"] and seen["removed"] and seen["refused"]):
                assert time.monotonic() < begin + 60 * PATIENCE, seen
                answer = ana.post(RUNTIME, {"template": "torn"})
                if answer.status == 201:
                    session = answer.json["sandbox_uuid"]
                    assert ana.shell(session, "cat /opt/marker").text == "of the template\n"
                    ana.delete(f"{RUNTIME}/{session}")
                    seen["whole"] += 1
                else:
                    assert answer.status == 422, answer
                    seen["none"] += 1
                time.sleep(0.03)

        with ThreadPoolExecutor(1) as pool:
            launching = pool.submit(launch)
            while not launching.done():
                if template(daemon, "rm", "torn")[0] == 0:
                    assert template(daemon, "import", "torn", str(tmp_path / "root"))[0] == 0
                    seen["removed"] += 1
                else:
                    seen["refused"] += 1
            launching.result()
        assert seen["whole"] and seen["removed"] and seen["refused"], seen
    finally:
        daemon.done()
