"""A3 to A8 and A22 to A24: a template is whatever its image was, and its root may be written to. The
controls do to the same tree what a set-up by path names does."""
import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from places import harness, outside
from rows_b import HELD, LONG_MS, wait_for_file
from table import row

import template_rig  # beside harness.py

SECRET = "a secret of the host\n"
GIT_ERROR = "denied"


def by_path(script, root, **more):
    """A set-up that trusts the tree, in a mount namespace of its own; what it says."""
    done = subprocess.run(["unshare", "-m", "--propagation", "private", "/bin/sh", "-c", script],
                          capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                          env={"PATH": os.environ["PATH"], "ROOT": str(root),
                               **{name: str(value) for name, value in more.items()}})
    return done.stdout.strip()


class Hostile:
    """A template of one daemon whose tree `change` has made hostile, and the victim that it aims at."""

    def __init__(self, t, change):
        self.daemon = t.daemon
        self.victim = Path(tempfile.mkdtemp(prefix="escape-victim-", dir="/tmp"))
        self.victim.chmod(0o777)
        (self.victim / "secret").write_text(SECRET)
        self.name = f"x{os.getpid()}-{time.monotonic_ns()}"
        self.folder = template_rig.make(self.daemon, self.name,
                                        lambda root: change(root, self.victim))
        self.root = self.folder / "root"
        self.before = self.look()

    def look(self):
        return [(str(path), path.lstat().st_mode, path.lstat().st_size)
                for folder in (self.root, self.victim) for path in sorted(folder.rglob("*"))]

    def untouched(self):
        return self.look() == self.before

    def done(self):
        harness.wait_until(lambda: not template_rig.in_use(self.folder), 10, "nobody uses it")
        shutil.rmtree(self.folder)
        shutil.rmtree(self.victim)


@contextlib.contextmanager
def hostile(t, change):
    made = Hostile(t, change)
    try:
        yield made
        t.check(made.untouched(), "the template, or what it aims at, has changed")
    finally:
        t.end()
        t.sessions = []
        made.done()


def link(root, name, target):
    """That name of the tree leads to the victim."""
    at = root / name
    at.parent.mkdir(parents=True, exist_ok=True)
    if at.is_dir() and not at.is_symlink():
        shutil.rmtree(at)
    at.symlink_to(target)


def inside(t, made, script, user="root"):
    session = t.session(agent=True, user=user, template=made.name)
    return session.shell(script, user=user).text.splitlines()


@row("A3", "swap the null device for a link", "nodes in a layer of ours", "read-only /dev", "set-up by path")
def null_device(t):
    with hostile(t, lambda root, victim: link(root, "dev/null", victim / "secret")) as made:
        got = inside(t, made, "stat -c '%F %t:%T' /dev/null; cat /dev/null /proc/kallsyms 2>/dev/null; echo end")
        t.refused({"null": " ".join(got)}, "character special file 1:3 end")
        if t.controls:
            masked = by_path("touch /tmp/mask.$$; mount --bind $ROOT/dev/null /tmp/mask.$$; cat /tmp/mask.$$; "
                             "umount /tmp/mask.$$; rm /tmp/mask.$$", made.root)
            t.worked(masked == SECRET.strip(), f"a mask by path shows nothing: {masked}")


@row("A4", "lead the terminals' mount elsewhere", "own devpts by descriptor", "–", "set-up by path")
def terminals(t):
    def change(root, victim):
        link(root, "dev/pts", victim)
        link(root, "dev/console", victim / "secret")

    with hostile(t, change) as made:
        got = inside(t, made, "stat -f -c %T /dev/pts; stat -c %F /dev/pts; ls -d /dev/console 2>/dev/null; echo end")
        t.refused({"pts": " ".join(got)}, "devpts directory end")
        if t.controls:
            told = by_path("mount -t devpts x $ROOT/dev/pts && stat -f -c %T $VICTIM", made.root,
                           VICTIM=made.victim)
            t.worked(told == "devpts", f"a mount by path stays in the tree: {told}")


@row("A5", "catch writes to /proc in a fake tree", "procfs of ours above it", "–", "set-up by path")
def fake_proc(t):
    def change(root, victim):
        for name in ("proc/self/attr", "proc/1", "proc/sys/kernel"):
            (root / name).mkdir(parents=True)
        (root / "proc/self/attr/exec").write_text("")
        (root / "proc/1/status").write_text("Name: fake\n")

    with hostile(t, change) as made:
        got = inside(t, made, "stat -f -c %T /proc; cat /proc/1/status 2>/dev/null; ls /proc/sys | head -n 1")
        t.refused({"proc": " ".join(got)}, "proc abi|proc dev|proc crypto|proc debug")
        if t.controls:
            by_path("chroot $ROOT /bin/sh -c 'echo label > /proc/self/attr/exec'", made.root)
            caught = made.root / "proc/self/attr/exec"
            t.worked(caught.read_text() == "label\n", "the fake tree catches nothing")
            caught.write_text("")


@row("A6", "make /dev a link so that nodes land elsewhere", "/dev of ours above it", "nodev", "set-up by path")
def linked_dev(t):
    with hostile(t, lambda root, victim: link(root, "dev", victim)) as made:
        got = inside(t, made, "stat -c %F /dev; ls /dev/secret 2>/dev/null; touch /dev/shm/x; ls /dev/shm")
        t.refused({"dev": " ".join(got)}, "directory x")
        if t.controls:
            by_path("mknod $ROOT/dev/node c 1 3", made.root)
            node = made.victim / "node"
            t.worked(node.is_char_device(), "no node lands at the victim")
            node.unlink(missing_ok=True)


@row("A7", "lead the making of a mount target through a link", "targets of ours above it", "–", "set-up by path")
def linked_targets(t):
    def change(root, victim):
        for name in ("session", "tmp", "proc"):
            link(root, name, victim / name)  # not there yet: who makes it makes it there

    with hostile(t, change) as made:
        got = inside(t, made, "stat -c %F /session /tmp /proc; touch /session/a /tmp/b; stat -f -c %T /tmp /session")
        t.refused({"targets": " ".join(got)}, "directory directory directory tmpfs tmpfs")
        if t.controls:
            by_path("mkdir -p $(readlink $ROOT/session) && mount -t tmpfs x $ROOT/session", made.root)
            t.worked((made.victim / "session").is_dir(), "no target is made at the victim")
            (made.victim / "session").rmdir()


@row("A8", "the same through a linked parent", "targets of ours above it", "–", "set-up by path")
def linked_parent(t):
    def change(root, victim):
        link(root, "etc", victim)

    with hostile(t, change) as made:
        got = inside(t, made, "stat -c %F /etc; cat /etc/hostname; ls /etc/secret 2>/dev/null; "
                              "echo x > /etc/new && cat /etc/new")
        t.refused({"etc": " ".join(got)}, "directory sandbox x")
        if t.controls:
            by_path("echo sandbox > $ROOT/etc/hostname", made.root)
            landed = made.victim / "hostname"
            t.worked(landed.exists(), "no file lands at the victim")
            landed.unlink(missing_ok=True)


# What a template has nothing to do with: each is attacked in its own row.
ELSEWHERE = ("namespaces", "mounts", "nested-mounts", "uring", "sockets", "foreign-abi", "stacked", "shared-memory", "netlink",
             "keyring", "terminal", "devices", "identity", "descriptors", "pass-descriptor", "core", "effective-id")


@row("A22", "a device node or a setuid file of a template", "nodev, nosuid", "no_new_privs", "outside")
def special_files(t):
    def change(root, victim):
        os.mknod(root / "opt" / "zero", 0o20666, os.makedev(1, 5))
        (root / "opt" / "zero").chmod(0o666)
        shutil.copy2(root / "bin" / "id", root / "opt" / "id")
        (root / "opt" / "id").chmod(0o6755)

    with hostile(t, change) as made:
        script = "head -c1 /opt/zero >/dev/null 2>&1 && echo read || echo refused; /opt/id -u; /opt/id -g"
        t.refused({"user": " ".join(inside(t, made, script, user="user"))}, "refused 1000 1000")
        got = inside(t, made, "head -c1 /opt/zero >/dev/null 2>&1 && echo read || echo refused; "
                              "cp /opt/id /opt/copy; stat -c %a /opt/id")
        t.refused({"root": got[0]}, "refused")
        for user in ("user", "root"):
            t.end()  # four agents at once have an owner's memory
            t.sessions = []
            base = t.session(agent=True, user=user)
            other = t.session(agent=True, user=user, template=made.name)
            for attack in ELSEWHERE:
                want, got = base.attack(attack), other.attack(attack)
                t.check(want and got == want, f"{attack} of {user}: not as without a template: {got}")
        if t.controls:
            told = by_path("head -c1 $ROOT/opt/zero | wc -c; chroot --userspec=1000:1000 $ROOT /opt/id -u",
                           made.root)
            t.worked(told.split() == ["1", "0"], f"they have no effect outside: {told}")


@row("A23", "change a template that others have; meet them by it", "own overlay; read-only mount", "Landlock",
     "plain bind")
def shared_template(t):
    with hostile(t, lambda root, victim: None) as made:
        first, second = (t.session(agent=True, user="root", template=made.name) for _ in range(2))
        done = first.shell("echo changed > /opt/marker; rm -r /var/lib/www; mkdir /opt/new; echo $?", user="root")
        t.refused({"own view": done.text.strip()}, "0")
        t.refused({"other's view": " ".join(second.shell(
            "cat /opt/marker; ls -d /var/lib/www /opt/new 2>/dev/null").text.split())},
            "of the template /var/lib/www")

        def both(path):
            held = {}
            holder = threading.Thread(target=lambda: held.update(first.attack("lock", path, HELD, timeout_ms=LONG_MS)))
            holder.start()
            wait_for_file(first, HELD)
            got = second.attack("lock", path)
            first.shell(f"rm {HELD}", user="root")
            holder.join()
            return {**{f"first {step}": result for step, result in held.items()},
                    **{f"second {step}": result for step, result in got.items()}}

        t.refused(both("/bin/cat"), "ok")
        if t.controls:
            target = made.root / "opt" / "marker"
            by_path("mkdir /tmp/bind.$$; mount --bind $ROOT /tmp/bind.$$; echo changed > /tmp/bind.$$/opt/marker; "
                    "umount /tmp/bind.$$; rmdir /tmp/bind.$$", made.root)
            t.worked(target.read_text() == "changed\n", "a bind of the tree is not shared")
            target.write_text("of the template\n")
            held = made.victim / "held"
            holder = threading.Thread(target=lambda: outside("lock", target, held, private=False))
            holder.start()
            harness.wait_until(held.exists, 30, "the lock is held")
            got = outside("lock", target, private=False)
            held.unlink()
            holder.join()
            t.worked(got.get("flock") == "EAGAIN", f"a lock does not cross by a bind: {got}")


@row("A24", "see a credential by a program of the writable root", "no credential after a root command",
     "–", "a call without one")
def credential(t):
    body = {"path": "/session/r", "url": "https://git.invalid/a.git",
            "credentials": {"username": "u", "password": "p"}}
    with hostile(t, lambda root, victim: None) as made:
        session = t.session(agent=True, user="user", template=made.name)
        route = f"{harness.RUNTIME}/{session.id}/git/clone"
        # With its programs as they were: it fails by itself, as there is no git.
        answer = session.client.post(route, body)
        t.worked(answer.status != 403, f"refused in an untouched tree: {answer}")
        t.worked(session.shell("cp /bin/cat /usr/bin/git && echo changed", user="root").text == "changed\n",
                 "root changes no program")
        answer = session.client.post(route, body)
        t.refused({"with a credential": f"{answer.status} {answer.json['code']}"}, f"403 {GIT_ERROR}")
        bare = {name: value for name, value in body.items() if name != "credentials"}
        answer = session.client.post(route, bare)
        t.worked(answer.status != 403, f"refused without a credential: {answer}")
