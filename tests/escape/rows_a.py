"""A: entry and paths."""
import contextlib
import hashlib
import http.client
import json
import os
import subprocess
import threading
import uuid
from pathlib import Path

from places import BUILD, PROGRAM_TEXT, harness, host_process, outside, steps
from table import row

NOBODY = 65534


def digests():
    names = ("sandboxd", "sandbox-shim", "sandbox-loader", "sandboxd-api", "sandboxd-egress")
    return [hashlib.sha256((BUILD / "bin" / name).read_bytes()).hexdigest() for name in names]


@row("A1", "overwrite the entering program by /proc/PID/exe", "hidepid; sealed memfd",
     "not dumpable, other id")
def entering_program(t):
    inside = t.attacker()
    before = digests()
    got = {}
    attack = threading.Thread(target=lambda: got.update(inside.attack("exe", 300, 1500)))
    attack.start()
    for _ in range(200):
        inside.client.run(inside.id, "/bin/true")
    attack.join()
    t.refused(got, "0")
    seen = inside.attack("memory-of", 1, "parent")
    t.refused({step: seen[step] for step in ("exe of 1", "exe of parent")}, "ENOENT")
    t.check(digests() == before, "a program of ours has changed")
    if not t.controls:
        return
    copy = PROGRAM_TEXT.folder / "victim"
    copy.write_bytes(PROGRAM_TEXT.path.read_bytes())
    copy.chmod(0o755)
    t.succeeds(outside("exe", "copy", copy))
    seen = t.attacker("hidepid").attack("memory-of", 1, "parent")
    t.holds({step: seen[step] for step in ("exe of 1", "exe of parent")}, "EACCES")


@row("A2", "descriptors left open, cwd behind one", "close-on-exec, close_range")
def descriptors(t):
    inside = t.attacker()
    t.refused(inside.attack("descriptors"), "0 1 2")
    for fd in (3, 4, 7, 10, 50):
        answer = inside.client.run(inside.id, "/bin/true", cwd=f"/proc/self/fd/{fd}")
        t.refused({f"cwd {fd}": str(answer.error.get("errno"))}, "ENOENT")
    if not t.controls:
        return
    fd = os.open("/", os.O_PATH)
    try:
        got = outside("descriptors", private=False, pass_fds=(fd,))
        t.succeeds(got, f"0 1 2 {fd}")
        got = outside("descriptors", private=False, pass_fds=(fd,), cwd=f"/proc/self/fd/{fd}")
        t.worked(bool(got), "no working directory behind a descriptor")
    finally:
        os.close(fd)


@row("A10", "regain privilege from capabilities that are left", "five empty sets, locked bits",
     "ids of the block")
def capabilities(t):
    none = {name: "0" * 16 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    want = {"*": "EPERM", **none, "setresuid 65535": "EINVAL", "mknod a device": "EACCES"}
    for agent in (False, True):
        t.refused(t.session(agent=agent).attack("identity"), want)
    if not t.controls:
        return
    got = outside("identity")
    t.succeeds({step: result for step, result in got.items() if not step.startswith("Cap")},
               cannot={"ambient KILL": "EPERM"})
    weak = t.session("caps").attack("identity")
    t.succeeds({step: weak[step] for step in ("setuid 0", "setgid 0", "setgroups", "capset KILL")})
    # Even then: nothing over the host, nor the shim's id.
    t.holds({step: weak[step] for step in ("capset SYS_ADMIN", "mknod a device", "chown to 0",
                                           "setresuid 65535", "unlock securebits")},
            {"*": "EPERM", "setresuid 65535": "EINVAL", "mknod a device": "EACCES"})
    # A device node: no rule of Landlock gives it, and no capability.
    weak = t.session("landlock").attack("identity")
    t.holds({step: weak[step] for step in ("mknod a device",)}, "EPERM")


@row("A11", "a command that a launcher takes for an option", "no launcher: argv to execve")
def arguments(t):
    inside = t.session()
    for text in ("--version", "-c", "--", "a\nb", "--bind=/"):
        answer = inside.client.run(inside.id, text)
        t.refused({repr(text): str(answer.error.get("errno"))}, "ENOENT")
    answer = inside.client.post(f"{harness.RUNTIME}/{inside.id}/commands",
                                {"argv": ["/bin/true\0/x"]})
    t.refused({"NUL": str(answer.status)}, "422")
    if t.controls:
        done = subprocess.run(["env", "--version"], capture_output=True, check=False)
        t.worked(done.returncode == 0 and b"coreutils" in done.stdout,
                 "a launcher that takes the command for its option")


@row("A12", "trace or read the shim while it starts", "not dumpable; unmapped id", "hidepid")
def starting_shim(t):
    client = t.daemon.client("alice")
    script = "import os,sys; os.setgroups([]); os.setresgid(*[int(sys.argv[1])]*3); " \
             "os.setresuid(*[int(sys.argv[1])]*3); os.execv(sys.argv[2], sys.argv[2:])"

    def scan(uid):
        return subprocess.Popen(
            ["/usr/bin/python3", "-c", script, str(uid), str(PROGRAM_TEXT.path), "exe", "8000",
             "2"] if uid else [str(PROGRAM_TEXT.path), "exe", "8000", "2"],
            stdout=subprocess.PIPE, text=True)

    opened = 0
    for _ in range(15):
        process = scan(NOBODY)
        client.remove(client.create())
        opened += int(steps(process.communicate()[0]).get("programs that are not the session's", 0))
    t.refused({"programs opened during create": str(opened)}, "0")
    inside = t.session()
    t.refused(inside.attack("process", 1), "EPERM")
    t.refused(inside.attack("memory-of", 1), "ENOENT")
    if not t.controls:
        return
    found = steps(scan(0).communicate()[0])
    t.worked(int(found["programs that are not the session's"]) > 0, "root opens no program")
    with host_process() as victim:
        t.succeeds(outside("process", victim.pid, private=False))


@row("A13", "forge a sandbox's state", "pidfds and own tables; 0700")
def forged_state(t):
    daemon = t.daemon
    real = t.session()
    got = outside("run-directory", daemon.runtime, daemon.state, NOBODY, private=False)
    t.refused(got, "EACCES")
    forged = str(uuid.uuid4())
    places = [daemon.runtime / "private" / "sessions" / f"{forged}.sock"]
    for place in places:
        place.write_bytes(b"")
    try:
        answer = daemon.root.get(f"{harness.SESSIONS}/{forged}")
        t.refused({"the forged session": str(answer.status)}, "404")
        t.check(daemon.root.get(f"{harness.RUNTIME}/{forged}/proof").status == 404, "it has a proof")
    finally:
        for place in places:
            place.unlink(missing_ok=True)
    if t.controls:
        t.worked(daemon.root.get(f"{harness.SESSIONS}/{real.id}").status == 200, "a real session")
        t.succeeds(outside("run-directory", daemon.runtime, daemon.state, 0, private=False))


def start_with(runtime, state):
    """How it ended and what it said; or None, when it answers."""
    log = state.parent / "log"

    def answers():
        with contextlib.suppress(OSError, http.client.HTTPException):
            return harness.Client(runtime / "operator.sock").get(harness.SESSIONS, timeout=5).status == 200

    with open(log, "wb") as said:
        process = subprocess.Popen(
            [str(BUILD / "bin" / "sandboxd"), "--runtime-dir", str(runtime), "--state-dir", str(state),
             "--libexec-dir", str(BUILD / "bin"), "--config", str(state.parent / "conf")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, cwd="/",
            env={"PATH": "/usr/bin:/bin"}, start_new_session=True)
    harness.wait_until(lambda: process.poll() is not None or answers(), 30, "it is refused, or answers")
    if process.returncode is not None:
        return process.returncode, log.read_text(errors="replace")
    process.terminate()
    process.wait(30 * harness.PATIENCE)
    return None, "it runs"


@row("A14", "make our working directory first, or a name in it", "root-owned 0700, by descriptor")
def made_first(t):
    base = PROGRAM_TEXT.folder / "made-first"
    base.mkdir()
    base.chmod(0o755)
    (base / "conf").write_text(harness.CONFIG)
    for name in ("run", "state"):
        (base / name).mkdir()
    os.chown(base / "run", NOBODY, NOBODY)
    code, text = start_with(base / "run", base / "state")
    t.refused({"runtime directory of another": "refused" if code else str(text)}, "refused")
    os.chown(base / "run", 0, 0)
    (base / "elsewhere").mkdir()
    (base / "run" / "private").symlink_to(base / "elsewhere")
    code, text = start_with(base / "run", base / "state")
    t.refused({"private is a link": "refused" if code else str(text)}, "refused")
    t.check(not any((base / "elsewhere").iterdir()), "something was made behind the link")
    if t.controls:
        (base / "run" / "private").unlink()
        code, text = start_with(base / "run", base / "state")
        t.worked(code is None, f"it does not start in its own directory: {text}")


@row("A15", "put .. into an id that becomes a path", "ids are ours, canonical form only")
def ids(t):
    client = t.daemon.client("alice")
    before = t.daemon.cgroups()
    names = ("..", "a%2F..%2Fb", "%2e%2e", "x" * 300, "%C3%A9", "..%2F..%2Fcontrol.sock",
             harness.ABSENT_ID.upper(), harness.ABSENT_ID + "%00", "{" + harness.ABSENT_ID + "}")
    for name in names:
        for url in (f"{harness.SESSIONS}/{name}", f"{harness.RUNTIME}/{name}"):
            answer = client.get(url)
            t.refused({url[-40:]: str(answer.status)}, "404")
    answer = client.post(harness.SESSIONS, {"id": "../x"})
    t.refused({"an id in the body": str(answer.status)}, "422")
    t.check(t.daemon.cgroups() == before, "a group was made")
    if t.controls:
        folder = PROGRAM_TEXT.folder / "ids"
        (folder / "sessions").mkdir(parents=True)
        os.mkdir(os.path.join(folder / "sessions", "../escaped"))
        t.worked((folder / "escaped").is_dir(), "a joined path does not leave its folder")


def raw(client, text, timeout=3):
    return client.raw(text.encode("latin-1"), timeout=timeout)


@row("A20", "show the checker less than the handler sees", "bounds first, one parse",
     control="same request, well formed")
def request_framing(t):
    client = t.daemon.client("alice")
    head = "POST /dagster/sandbox/sessions HTTP/1.1\r\nHost: x\r\nX-Sandbox-User: alice\r\n" \
           "X-Sandbox-Scopes: data:read data:write\r\nContent-Type: application/json\r\n"
    big = client.request("POST", harness.SESSIONS, raw_body=b" " * (2 * 1024 * 1024 + 1))
    t.refused({"2 MiB and one": str(big.status)}, "413")
    for name, text in {
        "two lengths": "Content-Length: 2\r\nContent-Length: 30\r\n\r\n{}",
        "length and chunks": "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "two users": "X-Sandbox-User: bob\r\nContent-Length: 2\r\n\r\n{}",
        "underscore": "X_Sandbox_User: bob\r\nContent-Length: 2\r\n\r\n{}",
    }.items():
        answer = raw(client, head + text).split(b" ", 2)
        t.refused({name: answer[1].decode() if len(answer) > 1 else "closed"}, "400|closed")
    trailer = head + "Transfer-Encoding: chunked\r\nTrailer: X-Sandbox-User\r\nConnection: close\r\n" \
        "\r\n2\r\n{}\r\n0\r\nX-Sandbox-User: bob\r\n\r\n"
    got = raw(client, trailer)
    if got.startswith(b"HTTP/1.1 201"):
        made = json.loads(got.split(b"\r\n\r\n", 1)[1].split(b"\r\n", 1)[1]
                          if b"chunked" in got.lower() else got.split(b"\r\n\r\n", 1)[1])["id"]
        t.check(client.get(f"{harness.SESSIONS}/{made}").status == 200, "not alice's session")
        bob = t.daemon.client("bob").get(f"{harness.SESSIONS}/{made}")
        t.refused({"user in a trailer": str(bob.status)}, "404")
        client.remove(made)
    else:
        t.refused({"user in a trailer": got.split(b" ", 2)[1].decode() if got else "closed"},
                  "400|closed")
    secret = t.session().id
    second = f"GET {harness.SESSIONS}/{secret} HTTP/1.1\r\nHost: x\r\nX-Sandbox-User: mallory\r\n" \
             "X-Sandbox-Scopes: data:read\r\nConnection: close\r\n\r\n"
    first = f"GET {harness.SESSIONS}/{secret} HTTP/1.1\r\nHost: x\r\nX-Sandbox-User: alice\r\n" \
            "X-Sandbox-Scopes: data:read\r\n\r\n"
    got = raw(client, first + second, 30 * harness.PATIENCE)  # the second one's answer ends the connection
    t.refused({"pipelined as another": f"{got.count(b'HTTP/1.1 200')} {got.count(b'HTTP/1.1 404')}"},
              "1 1")
    if t.controls:
        got = raw(client, head + "Connection: close\r\nContent-Length: 2\r\n\r\n{}")
        t.worked(got.startswith(b"HTTP/1.1 201"), f"{got[:60]!r}")


@row("A21", "find somebody else's environment", "each environment starts empty")
def environment(t):
    daemon = t.daemons.get(env={"ESCAPE_SECRET": "s3cret"})
    client = daemon.client("alice")
    first = client.create(env_overrides={"kafka_bootstrap": "alice-kafka:9092"})
    second = client.create()
    text = client.run(second, "/usr/bin/env").text
    names = {line.split("=", 1)[0] for line in text.splitlines()}
    allowed = {"PATH", "HOME", "TMPDIR", "LANG", "USER", "LOGNAME", "SHELL", "TERM", "TZ",
               "DAGSTER_DISABLE_TELEMETRY", "DAGSTER_HOME", "DATAHUB_TELEMETRY_ENABLED",
               "PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "PYTHONUNBUFFERED",
               "DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT", "DATAHUB_GMS_URL", "PYICEBERG_CATALOG__DEFAULT__URI",
               "PYICEBERG_CATALOG__DEFAULT__WAREHOUSE"}
    strange = {n for n in names if n not in allowed and not n.startswith(("ALPHASWARM_", "SANDBOX_"))}
    t.refused({"strange variables": " ".join(sorted(strange)) or "none"}, "none")
    t.check("s3cret" not in text and "alice-kafka" not in text, "a foreign value")
    inside = client.run(second, "/bin/sh", "-c", "cat /proc/*/environ | tr '\\0' '\\n'").text
    t.check("s3cret" not in inside and "alice-kafka" not in inside, "a foreign value in /proc")
    if t.controls:
        child = subprocess.run(["env"], env={"ESCAPE_SECRET": "s3cret"}, capture_output=True,
                               check=False)
        t.worked(b"s3cret" in child.stdout, "a child inherits nothing")
        t.worked("alice-kafka" in client.run(first, "/usr/bin/env").text,
                 "the session's own value is not there")
    client.remove(first)
    client.remove(second)
