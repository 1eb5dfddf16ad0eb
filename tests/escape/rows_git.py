"""A19: a repository that names programs in its configuration, its hooks and its attributes."""
import os
import subprocess
import tempfile

from places import harness
from table import row

RUNTIME = harness.RUNTIME
TOKEN = "ghs_escape0123456789TOKEN"
# Each is a program that notes who it is and where it runs, under its own name.
PROGRAMS = ("fsmonitor", "clean", "smudge", "external", "textconv", "editor", "helper", "askpass", "ssh", "gpg",
            "pre-commit", "commit-msg", "post-commit", "post-checkout", "pre-push", "reference-transaction")
HOOKS = ("pre-commit", "commit-msg", "post-commit", "post-checkout", "pre-push", "reference-transaction")
# Hooks and filters are the session's own programs: they run, inside.
RUN_INSIDE = {"clean", "smudge", "pre-commit", "commit-msg", "post-commit", "post-checkout", "reference-transaction"}
PAYLOAD = """#!/bin/sh
name=${0##*/}
{ printf '%s %s\\n' "$(id -u)" "$(readlink /proc/self/ns/pid)"; env; } >>BASE/ran-$name 2>&1
cat /proc/$PPID/environ /proc/$PPID/cmdline >>BASE/ran-$name 2>&1
case $name in clean|smudge) cat ;; textconv) cat "$1" ;; editor) echo subject >"$1" ;; esac
exit 0
"""
SETTINGS = {
    "core.fsmonitor": "fsmonitor", "filter.evil.clean": "clean", "filter.evil.smudge": "smudge", "diff.external": "external",
    "diff.evil.textconv": "textconv", "core.editor": "editor", "credential.helper": "helper",
    "core.askPass": "askpass", "core.sshCommand": "ssh", "gpg.program": "gpg",
}


def hostile(base):
    """A shell's script that makes the repository base/w."""
    lines = ["set -e", f"cd {base}", "cat >payload <<'X'", PAYLOAD.replace("BASE", base).rstrip(), "X", "chmod 755 payload",
             *[f"cp payload {name}" for name in PROGRAMS],
             "git init -q -b main w", "cd w", "git config user.name a", "git config user.email a@b", "echo one >f",
             "git add f", "git commit -q -m first", "printf '* filter=evil diff=evil\\n' >.gitattributes",
             "git config commit.gpgSign true",
             *[f"git config {name} {base}/{program}" for name, program in SETTINGS.items()],
             *[f"cp {base}/{name} .git/hooks/{name}" for name in HOOKS], "echo two >f"]
    return "\n".join(lines)


# What somebody who runs git there by hand does.
NAIVE = ("git status", "git diff", "git log -p", "git add -A", "git commit --no-gpg-sign", "git commit --allow-empty -m x",
         "git checkout -b other", "git checkout main", "git checkout other -- f", "rm f", "git checkout HEAD -- f",
         "git ls-remote ssh://git.invalid/r", "printf 'protocol=https\\nhost=h\\n' | git credential fill",
         "git -c credential.helper= credential fill <ask",
         "git init -q --bare ../bare", "git push ../bare HEAD:refs/heads/x")


def outside():
    """The control: whether each program ran, and as whom."""
    with tempfile.TemporaryDirectory() as base:
        environment = {"PATH": os.environ["PATH"], "HOME": base, "GIT_CONFIG_NOSYSTEM": "1", "TERM": "xterm"}
        subprocess.run(["sh", "-c", hostile(base)], check=True, capture_output=True, env=environment)
        with open(f"{base}/w/ask", "w", encoding="ascii") as ask:
            ask.write("protocol=https\nhost=h\n")
        for line in NAIVE:
            subprocess.run(["sh", "-c", line], check=False, capture_output=True, env=environment, cwd=f"{base}/w", timeout=60,
                           stdin=subprocess.DEVNULL)
        ran = {}
        for name in PROGRAMS:
            try:
                with open(f"{base}/ran-{name}", encoding="utf-8", errors="replace") as file:
                    ran[name] = "ok" if file.readline().startswith("0 ") else "somebody else"
            except FileNotFoundError:
                ran[name] = "not run"
        return ran


def act(session, what, **body):
    url = f"{RUNTIME}/{session.id}/git/{what}"
    if what in ("status", "diff", "log"):
        answer = session.client.get(f"{url}?path={body['path']}")
    else:
        answer = session.client.post(url, body)
    return "ok" if answer.status == 200 else answer.json.get("code", str(answer.status))


def inside(session):
    """Where each program ran: "inside" is as `user` in the session's own namespace."""
    own = session.shell("id -u; readlink /proc/self/ns/pid").text.split()
    ran = {}
    for name in PROGRAMS:
        text = session.shell(f"cat ran-{name} 2>/dev/null; true").text
        first = text.split("\n", 1)[0].split()
        ran[name] = "not run" if not first else "inside" if first == own else f"as {' '.join(first)}"
        if TOKEN in text:
            ran[name] = "has the credential"
    return ran


@row("A19", "a repository's hooks, filters, helpers, drivers, links", "git runs as user, in the session")
def repository(t):
    session = t.session(agent=True)
    made = session.shell(hostile("/session"))
    t.check(made.code == 0, f"the repository is there: {made}")
    session.shell("rm -f /session/ran-*; ln -s /etc linked; mkdir gitfile gitlink commondir;"
                  "echo 'gitdir: /proc/1/root/etc' >gitfile/.git; ln -s /proc/1/root gitlink/.git;"
                  "cp -r w/.git commondir/.git; echo /proc/1/root/etc >commondir/.git/commondir")
    who = {"author_name": "a", "author_email": "a@b"}
    credentials = {"username": "u", "password": TOKEN}
    acts = {
        "status": act(session, "status", path="w"), "diff": act(session, "diff", path="w"),
        "add": act(session, "add", path="w", all=True), "commit": act(session, "commit", path="w", message="m", **who),
        "branch": act(session, "branch", path="w", branch="other"), "log": act(session, "log", path="w"),
    }
    t.refused(acts, "ok")
    session.shell("echo three >w/f")
    t.refused({"commit on it": act(session, "add", path="w", all=True) + act(session, "commit", path="w", message="m", **who),
               "checkout": act(session, "checkout", path="w", ref="main")}, {"commit on it": "okok", "checkout": "ok"})
    # No place that it leads to, and no helper of its own.
    t.refused({"push": act(session, "push", path="w", branch="main", url="https://git.invalid/r.git", credentials=credentials),
               "fetch": act(session, "fetch", path="w", url="https://git.invalid/r.git", credentials=credentials)},
              "git_unreachable|denied")
    for folder in ("linked", "gitfile", "gitlink", "commondir"):
        t.refused({f"status of {folder}": act(session, "status", path=folder),
                   f"add in {folder}": act(session, "add", path=folder, all=True)},
                  "not_a_repository|git_failed|file_not_found|denied")
    t.refused(inside(session), {"*": "not run", **{name: "inside" for name in RUN_INSIDE}})
    left = session.shell(f"grep -rlaF {TOKEN[:10]} /session /tmp 2>/dev/null | wc -l")
    t.check(left.text.strip() == "0", f"nothing of the credential is in the session's folders: {left}")
    if t.controls:
        t.succeeds(outside())
