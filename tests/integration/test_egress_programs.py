"""Real programs in real sessions of the service, against servers of another namespace."""
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from egress_rig import WORLD
from harness import ASAN, wait_until
from postgres_rig import DATABASE, SERVICE, Postgres
from proxy_rig import NGINX
from world_rig import fixture_daemon, fixture_world  # noqa: F401  pylint: disable=unused-import

# HTTPS: the certificate is of the test's own authority, which a session has as a file.
CERTIFICATES = """
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
openssl req -x509 $key -keyout ca.key -out ca.pem -subj /CN=authority
openssl req -x509 $key -keyout web.key -out web.pem -subj /CN=web -CA ca.pem -CAkey ca.key \
    -addext basicConstraints=CA:false -addext subjectAltName=DNS:web.example.com
"""
SERVER = """\
user root;
daemon off;
pid {home}/pid;
error_log stderr;
events {{ worker_connections 64; }}
http {{
	log_format of_test "$server_protocol $uri";
	access_log {home}/requests of_test;
	client_body_temp_path {home}/body;
	proxy_temp_path {home}/proxy;
	fastcgi_temp_path {home}/fastcgi;
	uwsgi_temp_path {home}/uwsgi;
	scgi_temp_path {home}/scgi;
	server {{
		listen {address}:443 ssl http2;
		ssl_certificate web.pem;
		ssl_certificate_key web.key;
		root {site};
	}}
}}
"""


@pytest.fixture(name="site", scope="module")
def fixture_site(world, tmp_path_factory):
    """A web server with a git repository, and Redis."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text("hello from outside\n")
    repository, work = folder / "r.git", tmp_path_factory.mktemp("work")
    for words in (["init", "-q", "--bare", "-b", "main", repository], ["init", "-q", "-b", "main", work],
                  ["-C", work, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q",
                   "--allow-empty", "-m", "from outside"],
                  ["-C", work, "push", "-q", repository, "main"], ["-C", repository, "update-server-info"]):
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
    done = alice.shell(open_session, "git clone -q http://web.example.com/r.git r && git -C r log --format=%s")
    assert done.text == "from outside\n", done


@pytest.fixture(name="secure", scope="module")
def fixture_secure(world, site, tmp_path_factory):
    """The same site over TLS and HTTP/2: the text of the authority, and what has the requests."""
    if NGINX is None:
        pytest.skip("nginx is not here; tests/run fetches it")
    home = tmp_path_factory.mktemp("nginx")
    subprocess.run(["/bin/sh", "-ec", CERTIFICATES], cwd=home, check=True, stderr=subprocess.DEVNULL)
    (home / "nginx.conf").write_text(SERVER.format(home=home, address=f"{WORLD}.2", site=site))
    server = world.start(str(NGINX), "-e", "stderr", "-p", str(home), "-c", str(home / "nginx.conf"),
                         stderr=subprocess.DEVNULL)
    wait_until(lambda: ":443 " in world.namespace.run("ss", "-ltnH").stdout, 20, "the server")
    def requests():
        """What it has logged. It does so behind the answer, and before it lets go of the connection."""
        wait_until(lambda: world.namespace.run("ss", "-tnH", "state", "connected", "exclude", "time-wait", "sport", "= :443")
                   .stdout == "", 20, "the server is done with all")
        return (home / "requests").read_text()

    yield (home / "ca.pem").read_text(), requests
    server.terminate()  # its workers end with it
    server.wait()


@pytest.mark.parametrize("program, protocol", [
    ("curl -sS -m 20 --http1.1 --cacert ca.pem https://web.example.com/", "HTTP/1.1"),
    ("curl -sS -m 20 --http2 --cacert ca.pem https://web.example.com/", "HTTP/2.0"),
    ("wget -q -T 20 --ca-certificate ca.pem -O - https://web.example.com/", "HTTP/1.1"),
    ("python3 -c \"import ssl, urllib.request as u; print(u.urlopen('https://web.example.com/', timeout=20,"
     " context=ssl.create_default_context(cafile='ca.pem')).read().decode())\"", "HTTP/1.1"),
    ("python3 -c \"import requests as r; print(r.get('https://web.example.com/', timeout=20, verify='ca.pem').text)\"",
     "HTTP/1.1"),
    ("python3 -c \"import httpx; print(httpx.get('https://web.example.com/', timeout=20, verify='ca.pem').text)\"",
     "HTTP/1.1"),
    ("git -c http.sslCAInfo=/session/ca.pem clone -q https://web.example.com/r.git r &&"
     " echo hello $(git -C r log --format=%s)", "HTTP/2.0"),
], ids=["curl", "curl-h2", "wget", "urllib", "requests", "httpx", "git"])
def test_https(alice, secure, open_session, program, protocol):
    authority, requests = secure
    before = len(requests())
    done = alice.shell(open_session, f"cat >ca.pem && {program}", stdin=authority)
    assert "hello from outside" in done.text, done
    said = requests()[before:].splitlines()
    assert said and all(line.startswith(protocol) for line in said), said


def test_https_of_a_host_that_is_not_allowed_is_refused(alice, world, secure, open_session):
    authority, requests = secure
    world.names["other.example.com"] = [f"{WORLD}.2"]
    before = requests()
    for extra in ("https://other.example.com/", f"https://{WORLD}.2/",
                  "--connect-to other.example.com:443:web.example.com:443 https://other.example.com/"):
        done = alice.shell(open_session, f"cat >ca.pem; curl -sS -k -m 20 {extra}", stdin=authority)
        assert done.code != 0 and "hello" not in done.text, done
    assert requests() == before


def test_redis(alice, open_session):
    done = alice.shell(open_session, "redis-cli -h redis.example.com set k v &&"
                                     " redis-cli -h redis.example.com get k")
    assert done.text.split() == ["OK", "v"], done


@pytest.fixture(name="database", scope="module")
def fixture_database(world):
    """PostgreSQL, moved into the world once it has its roles."""
    server = Postgres()
    try:
        server.stop()
        with open(server.data / "pg_hba.conf", "a", encoding="ascii") as rules:
            rules.write("host all all 0.0.0.0/0 scram-sha-256\n")
        server.process = world.namespace.start(
            "setpriv", f"--reuid={server.user.pw_uid}", f"--regid={server.user.pw_gid}", "--clear-groups",
            str(server.bin / "postgres"), "-D", str(server.data), "-p", "5432", "-k", str(server.home),
            "-c", f"listen_addresses={WORLD}.2", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        world.names["db.example.com"] = [f"{WORLD}.2"]
        wait_until(lambda: ":5432 " in world.namespace.run("ss", "-ltnH").stdout, 30, "PostgreSQL")
        yield server
    finally:
        server.done()


def test_psql(alice, database):
    session = alice.create(egress={"allow": ["db.example.com:5432"]})
    ask = "psql -X -A -t -h db.example.com -U %s -d %s -c 'SELECT 6 * 7'" % (SERVICE, DATABASE)
    done = alice.shell(session, f"PGPASSWORD={database.passwords[SERVICE]} {ask}")
    assert done.text == "42\n", done
    assert alice.request("PUT", f"/dagster/sandbox/sessions/{session}/egress", {"allow": []}).status == 200
    done = alice.shell(session, f"PGPASSWORD={database.passwords[SERVICE]} PGCONNECT_TIMEOUT=20 {ask}")
    assert done.code != 0 and "42" not in done.text, done
    alice.remove(session)


def test_what_is_not_allowed_fails_at_once_and_is_recorded(alice, world, open_session):
    world.names["other.example.com"] = [f"{WORLD}.2"]
    before = list(world.asked)
    done = alice.shell(open_session, "".join(f"curl -sS -m 55 http://{place}/; echo status $?;" for place in
                                             ("other.example.com", f"{WORLD}.2", "redis.example.com")), timeout_ms=200000)
    assert "hello" not in done.text
    said = re.findall(r"status (\d+)", done.text)
    assert len(said) == 3 and "28" not in said, (said, "28: its time was over")
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
    return int(wait_until(lambda: Path(f"/proc/{worker}/task/{worker}/children").read_text().split(), 10, "an inspector")[0])


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
