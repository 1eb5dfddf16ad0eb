"""Real programs in real sessions of the service, against servers of another namespace."""
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from egress_rig import NAME_SERVER, WORLD, World
from harness import ASAN, Daemon, wait_until


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    """The host's name server is the world's, before the service starts and reads which it is."""
    world = World()
    resolv = tmp_path_factory.mktemp("resolv") / "resolv.conf"
    resolv.write_text(f"nameserver {NAME_SERVER}\n")
    subprocess.run(["mount", "--bind", resolv, "/etc/resolv.conf"], check=True)
    yield world
    subprocess.run(["umount", "/etc/resolv.conf"], check=True)
    world.close()


@pytest.fixture(name="daemon", scope="module")
def fixture_daemon(world):  # pylint: disable=unused-argument
    started = Daemon()
    yield started
    started.done()


@pytest.fixture(name="site", scope="module")
def fixture_site(world, tmp_path_factory):
    """A web server with a git repository, and Redis."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text("hello from outside\n")
    repository = folder / "r.git"
    for words in (["init", "-q", "--bare", "-b", "main", repository],
                  ["-C", repository, "update-server-info"]):
        subprocess.run(["git", *words], check=True)
    world.start("python3", "-m", "http.server", "--bind", f"{WORLD}.2", "--directory",
                str(folder), "80", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    world.start("redis-server", "--bind", f"{WORLD}.2", "--port", "6379", "--save", "",
                "--protected-mode", "no", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    world.names["web.example.com"] = world.names["redis.example.com"] = [f"{WORLD}.2"]
    wait_until(lambda: all(f":{port} " in world.namespace.run("ss", "-ltnH").stdout
                           for port in (80, 6379)), 20, "servers")
    return Path(folder)


@pytest.fixture(name="open_session")
def fixture_open_session(alice, site):  # pylint: disable=unused-argument
    made = alice.create(egress={"allow": ["web.example.com", "redis.example.com:6379"]})
    yield made
    alice.remove(made)


def test_curl_wget_and_python(alice, open_session):
    for program in ("curl -sS -m 20 http://web.example.com/",
                    "wget -q -T 20 -O - http://web.example.com/",
                    "python3 -c \"import urllib.request as u;"
                    " print(u.urlopen('http://web.example.com/', timeout=20).read().decode())\""):
        done = alice.shell(open_session, program)
        assert "hello from outside" in done.text, done


def test_git_over_http(alice, open_session):
    done = alice.shell(open_session, "git -c init.defaultBranch=main ls-remote"
                                     " http://web.example.com/r.git && echo fetched")
    assert "fetched" in done.text, done


def test_redis(alice, open_session):
    done = alice.shell(open_session, "redis-cli -h redis.example.com set k v &&"
                                     " redis-cli -h redis.example.com get k")
    assert done.text.split() == ["OK", "v"], done


def test_what_is_not_allowed_fails_at_once_and_is_recorded(alice, world, open_session):
    world.names["other.example.com"] = [f"{WORLD}.2"]
    before = list(world.asked)
    started = time.monotonic()
    done = alice.shell(open_session, "curl -sS -m 20 http://other.example.com/;"
                                     f" curl -sS -m 20 http://{WORLD}.2/;"
                                     " curl -sS -m 20 http://redis.example.com/; true")
    assert "hello" not in done.text
    assert time.monotonic() - started < 20
    assert world.asked == before

    def recorded():
        answer = alice.get(f"/dagster/sandbox/sessions/{open_session}/denials")
        return [row for row in answer.json["denials"] if row["kind"] == "network"]

    wait_until(lambda: len(recorded()) >= 3, 10, "denials")
    told = str(recorded())
    assert "other.example.com" in told and f"{WORLD}.2" in told and "redis.example.com" in told


def inspector_pid(daemon):
    """The child of the egress worker."""
    worker = daemon.worker_pid("sandboxd-egress")
    return int(Path(f"/proc/{worker}/task/{worker}/children").read_text().split()[0])


@pytest.mark.parametrize("victim", [
    lambda daemon: daemon.worker_pid("sandboxd-egress"), inspector_pid], ids=["worker", "inspector"])
def test_after_its_death_the_next_worker_serves_the_same_session(daemon, alice, open_session,
                                                                 victim):
    before = daemon.worker_pid("sandboxd-egress")
    daemon.deaths_expected = True
    os.kill(victim(daemon), signal.SIGKILL)
    wait_until(lambda: daemon.worker_pid("sandboxd-egress") not in (before, None), 20, "a restart")

    def served():
        done = alice.shell(open_session, "curl -sS -m 20 http://web.example.com/")
        return "hello from outside" in done.text

    wait_until(served, 30, "the session's network")


def test_the_inspector_has_one_socket_and_makes_no_other(daemon):
    pid = inspector_pid(daemon)
    names = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    assert [fd for fd, name in names.items() if name.startswith("socket:")] == ["3"], names
    assert set(names) <= {"0", "1", "2", "3"}
    status = Path(f"/proc/{pid}/status").read_text()
    assert ASAN or "\nSeccomp:\t2\n" in status
    assert "\nCapEff:\t0000000000000000\n" in status
