"""Git in a sandbox with a template: with the image's programs, and no credential once root may have changed them."""
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

import template_rig
from harness import BIN, RUNTIME, SESSIONS, wait_until
from test_git import (TOKEN, WHO, code, fixture_authority, fixture_repository, fixture_servers,  # noqa: F401
                      ok, url_of)
from world_rig import fixture_daemon, fixture_world  # noqa: F401  pylint: disable=unused-import


def with_git(root):
    """As an image with the package git: git and its library, of which sandbox-git needs a part."""
    template_rig.put(root, Path(shutil.which("git")).resolve())
    for library in template_rig.libraries(BIN / "sandbox-git"):
        if library != BIN / "sandbox-git":
            template_rig.put(root, library)
    (root / "usr/lib/git-core").mkdir(parents=True, exist_ok=True)


@pytest.fixture(name="templates", scope="module")
def fixture_templates(daemon):
    template_rig.make(daemon, "git", with_git)
    template_rig.make(daemon, "plain")


@pytest.fixture(name="made")
def fixture_made(alice, templates, authority):  # pylint: disable=unused-argument
    """A session of a template, and acts in it."""
    made = []

    def make(template):
        session = alice.create_runtime(template=template, egress={"allow": ["git.example.com"]})
        made.append(session)

        def call(act, secret=True, **body):
            if act in ("clone", "fetch", "push"):
                body["ca_certificates"] = authority[0]
                if secret:
                    body["credentials"] = {"username": "x-access-token", "password": TOKEN}
                    if "url" not in body:
                        body["credentials"]["host"] = "git.example.com"
            return alice.post(f"{RUNTIME}/{session}/git/{act}", {"path": "w", **body})
        return session, call
    yield make
    for session in made:
        alice.delete(f"{RUNTIME}/{session}")


def test_an_image_with_git_does_all_of_it(alice, made, repository):
    session, call = made("git")
    ok(call("clone", url=url_of(repository)))
    assert alice.shell(session, "cat w/b/c.txt; sha256sum /usr/bin/git").text.startswith("two\n")
    ok(call("branch", branch="side"))
    commit = ok(call("commit", message="more", allow_empty=True, **WHO))
    assert ok(call("push", branch="side"))["result"] == "new"
    assert ok(call("fetch"))["head"] == commit["commit"]


def test_one_without_git_says_so(made, repository):
    _, call = made("plain")
    assert call("clone", url=url_of(repository)).status == 422
    assert code(call("commit", path=".", message="x", **WHO)) == (422, "command_failed")


def test_no_credential_after_a_root_command(alice, daemon, made, repository, servers):
    session, call = made("git")
    ok(call("clone", url=url_of(repository)))
    # A snapshot is made by a program of ours, as root: it counts for nothing.
    assert alice.post(f"{RUNTIME}/{session}/snapshots", {}).status == 201
    ok(call("fetch"))
    # Root puts something in the way of the library that reads the credential.
    steal = "cp /bin/cat /usr/lib/x86_64-linux-gnu/libcurl.so.4; echo"
    assert alice.shell(session, steal, user="root").code == 0
    servers[0].seen.clear()
    assert code(call("fetch")) == (403, "denied")
    assert code(call("push", branch="main")) == (403, "denied")
    assert code(call("fetch", secret=False)) == (403, "git_auth")
    servers[0].seen.clear()
    worker = daemon.worker_pid("sandboxd-api")
    daemon.deaths_expected = True
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: daemon.worker_pid("sandboxd-api") != worker, 10, "another worker")
    wait_until(daemon.ready, 20, "it answers")
    # What the shim knows, the next worker does.
    assert code(call("fetch")) == (403, "denied")
    assert not servers[0].seen
    # In new processes nothing was changed.
    shim = next(pid for pid in daemon.shim_pids() if session in Path(f"/proc/{pid}/cgroup").read_text())
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: alice.get(f"{SESSIONS}/{session}").json["sandbox"]["tree"] == "dormant", 10, "it has ended")
    ok(call("clone", url=url_of(repository)))
    assert alice.shell(session, "cat w/b/c.txt").text == "two\n"


def held(root):
    """Git that waits while there is /tmp/hold, and says that it does."""
    with_git(root)
    os.rename(root / "usr/bin/git", root / "usr/bin/git.real")
    wrapper = root / "usr/bin/git"
    wrapper.write_text("#!/bin/sh\nwhile test -e /tmp/hold; do : >> /tmp/held; sleep 0.1; done\n"
                       "exec /usr/bin/git.real \"$@\"\n")
    wrapper.chmod(0o755)


@pytest.fixture(name="held", scope="module")
def fixture_held(daemon):
    template_rig.make(daemon, "held", held)
    return "held"


def begun(alice, session, call, act, **body):
    """That act in a thread, when its git waits; what it gives comes in the list."""
    answers = []
    assert alice.shell(session, "touch /tmp/hold; rm -f /tmp/held").code == 0
    thread = threading.Thread(target=lambda: answers.append(call(act, **body)))
    thread.start()
    wait_until(lambda: alice.shell(session, "test -e /tmp/held").code == 0, 10, "its git waits")
    return thread, answers


def test_no_credential_when_root_comes_before_the_step_that_needs_it(alice, made, repository, servers, held):
    session, call = made(held)
    ok(call("clone", url=url_of(repository)))
    # The remote's name is asked of git first, and a repository can make that last.
    thread, answers = begun(alice, session, call, "fetch")
    servers[0].seen.clear()
    assert alice.shell(session, "rm /tmp/hold").code == 0
    thread.join()
    assert ok(answers[0]) and servers[0].seen, "without a root command it goes on"
    thread, answers = begun(alice, session, call, "fetch")
    assert alice.shell(session, "true", user="root").code == 0
    servers[0].seen.clear()
    assert alice.shell(session, "rm /tmp/hold").code == 0
    thread.join()
    assert code(answers[0]) == (403, "denied") and not servers[0].seen, answers


def test_no_root_command_while_a_credential_is_used(alice, made, repository, held):
    session, call = made(held)
    thread, answers = begun(alice, session, call, "clone", url=url_of(repository))
    body = {"cmd": "true", "user": "root"}
    assert code(alice.post(f"{RUNTIME}/{session}/commands", body)) == (503, "busy")
    assert alice.shell(session, "true").code == 0
    assert alice.shell(session, "rm /tmp/hold").code == 0
    thread.join()
    ok(answers[0])
    assert alice.shell(session, "true", user="root").code == 0
    # Without a credential nothing is held back.
    assert alice.shell(session, "rm -r /session/w").code == 0
    thread, answers = begun(alice, session, call, "clone", url=url_of(repository), secret=False)
    assert alice.shell(session, "true", user="root").code == 0
    assert alice.shell(session, "rm /tmp/hold").code == 0
    thread.join()
    assert code(answers[0]) == (403, "git_auth"), answers


def test_the_host_root_is_nobodys_to_change(alice, repository, authority):
    """Without a template root changes nothing, and credentials go on."""
    session = alice.create_runtime(egress={"allow": ["git.example.com"]})
    assert alice.shell(session, "true", user="root").code == 0
    body = {"path": "w", "url": url_of(repository), "ca_certificates": authority[0],
            "credentials": {"username": "x-access-token", "password": TOKEN}}
    assert alice.post(f"{RUNTIME}/{session}/git/clone", body).status == 200
    alice.delete(f"{RUNTIME}/{session}")
