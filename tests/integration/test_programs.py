"""Real programs in real sessions: one test per program and profile.

Each program is a file of tests/data/programs: `any` runs in both profiles, `component` and `agent` in
that one, `root` as a root command of `agent`. It ends with status 0 and the line `ok`. Its first lines say what it is about:

  needs: PROGRAM[:PACKAGE] or NAME@PATH ...   skipped, visibly, where the host's /usr lacks one
  grants: TEXT                                what the profile gives it, printed when it fails
"""
import os
import re
import shutil

import pytest

from harness import DATA, PATIENCE, ROOT, RUNTIME, wait_until

PROGRAMS = DATA / "programs"
RUNNERS = {".py": "python3", ".sh": "bash", ".js": "node"}
# What a session sees of the host: /usr/local is hidden from it.
PATH = "/usr/bin:/bin"


def cases():
    for profile in ("component", "agent", "root"):
        for folder in ("any", profile) if profile != "root" else ("root",):
            for path in sorted((PROGRAMS / folder).glob("*")):
                if path.suffix in RUNNERS:
                    yield pytest.param(profile, path, id=f"{profile}-{path.stem}")


def header(path, word):
    found = re.search(rf"^(?:#|//) {word}: (.*)$", path.read_text(), re.MULTILINE)
    return found.group(1) if found else ""


def missing(path):
    """What the host's /usr lacks of a program's needs, as the packages to install."""
    for need in header(path, "needs").split():
        name, _, where = need.partition("@")
        program, _, package = name.partition(":")
        if where and not os.path.exists(where):
            yield f"{where} ({program})"
        elif not where and not shutil.which(program, path=PATH):
            yield f"{program} (package {package or program})"


def make(client, profile):
    return client.create() if profile == "component" else client.create_runtime(profile=profile)


def remove(client, session):
    assert client.delete(f"{RUNTIME}/{session}").status in (200, 204, 404)


@pytest.fixture
def component(alice):
    made = make(alice, "component")
    yield made
    remove(alice, made)


@pytest.mark.slow
@pytest.mark.parametrize("profile,path", cases())
def test_program_works(alice, profile, path):
    lacking = list(missing(path))
    if lacking:
        pytest.skip("not under /usr here: " + ", ".join(lacking))
    as_root = {"user": "root"} if profile == "root" else {}
    session = make(alice, "agent" if as_root else profile)
    try:
        name = f"/session/program{path.suffix}"
        put = alice.shell(session, f"cat > {name}", stdin=path.read_text())
        assert put.code == 0, put
        result = alice.run(session, f"/usr/bin/{RUNNERS[path.suffix]}", name, timeout_ms=60000,
                           timeout=70 * PATIENCE, **as_root)
        out, err = result.text, result.err.decode("utf-8", "replace")
        assert result.code == 0 and out.splitlines()[-1:] == ["ok"], (
            f"{path.stem} does not work in profile {profile}: {result.exit or result.error}\n"
            f"it needs: {header(path, 'grants')}\nout: {out[-2000:]}\nerr: {err[-3000:]}")
    finally:
        remove(alice, session)


def test_every_program_says_what_it_needs():
    for path in PROGRAMS.glob("*/*"):
        assert path.suffix in RUNNERS and header(path, "grants"), path


def test_every_need_of_the_policy_names_a_program_that_is_tested():
    tested = {path.stem for path in PROGRAMS.glob("*/*")} | {"sandbox-loader"}
    for rules, at_least in (("command", 10), ("agent", 7)):
        needs = re.findall(r"^need ([^:]+):", (ROOT / f"policy/profiles/{rules}.rules").read_text(),
                           re.MULTILINE)
        assert len(needs) > at_least
        for programs in needs:
            assert set(programs.split()) <= tested, programs
            # What a component may do, a component's program needs.
            assert rules == "agent" or {p.stem for p in PROGRAMS.glob("any/*")} | {
                "sandbox-loader"} >= set(programs.split()), programs


def test_cancelled_tree_ends_with_all_its_processes(alice, component):
    """Python, its pool, a shell in a session of its own and a daemon: all gone with the client."""
    script = ("import multiprocessing, os, subprocess, time\n"
              "subprocess.Popen(['sh', '-c', 'trap \"\" TERM INT HUP; sleep 987'],"
              " start_new_session=True)\n"
              "subprocess.run(['sh', '-c', '(setsid sh -c \"sleep 987 & sleep 987\" &)'])\n"
              "pool = multiprocessing.Pool(4)\n"
              "pool.map_async(time.sleep, [987] * 4)\n"
              "while sum(n.isdigit() for n in os.listdir('/proc')) < 10: time.sleep(0.02)\n"
              "print('up', flush=True)\n"
              "time.sleep(987)\n")
    lines = alice.lines("POST", f"{RUNTIME}/{component}/commands",
                        {"argv": ["/usr/bin/python3", "-c", script]},
                        headers={"Accept": "application/x-ndjson"})
    for line in lines:
        if b"stdout" in line:
            break
    seen = "ls /proc | grep -c '^[0-9]'"
    assert int(alice.shell(component, seen).text) >= 10
    lines.close()
    # The shell that asks, and what it starts.
    wait_until(lambda: int(alice.shell(component, seen).text) <= 4, 15, "the tree is gone")


def test_time_limit_ends_a_tree(alice, component):
    result = alice.shell(component, "sleep 987 & (setsid sleep 987 &); trap '' TERM; sleep 987; sleep 987",
                         timeout_ms=500)
    assert result.exit.get("timed_out") is True, result  # it would sleep for half an hour
    text = alice.shell(component, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").text
    assert "sleep 987" not in text, text


def test_full_folder_is_enospc_and_nobody_is_killed(alice, component):
    """The quota of the folder is met before the limit of the memory that it counts in."""
    sleeper = alice.lines("POST", f"{RUNTIME}/{component}/commands",
                          {"argv": ["/bin/sh", "-c", "echo up; exec sleep 900"], "timeout_ms": 900000},
                          headers={"Accept": "application/x-ndjson"})
    next(line for line in sleeper if b"stdout" in line)
    script = ("import errno, os\n"
              "written = 0\n"
              "try:\n"
              "    with open('/session/large', 'wb', buffering=0) as f:\n"
              "        while True: written += f.write(b'x' * (1 << 20))\n"
              "except OSError as e:\n"
              "    print(errno.errorcode[e.errno], written >> 20)\n"
              "for folder in ('/tmp', '/dev/shm', '/session/home'):\n"
              "    try:\n"
              "        with open(folder + '/more', 'wb', buffering=0) as f: f.write(b'x' * 65536)\n"
              "    except OSError as e: print(errno.errorcode[e.errno])\n"
              "try:\n"
              "    os.posix_fallocate(os.open('/session/again', os.O_CREAT | os.O_RDWR), 0, 1 << 20)\n"
              "except OSError as e: print(errno.errorcode[e.errno])\n"
              "os.unlink('/session/large')\n"
              "with open('/session/after', 'wb') as f: f.write(b'x' * (8 << 20))\n"
              "print('usable')\n")
    result = alice.run(component, "/usr/bin/python3", "-c", script, timeout_ms=60000)
    words = result.text.split()
    assert result.code == 0 and words[0] == "ENOSPC" and 250 <= int(words[1]) <= 256, result
    assert words[2:] == ["ENOSPC"] * 4 + ["usable"], result
    # It is one from its exec on.
    wait_until(lambda: alice.shell(component, "cat /proc/[0-9]*/comm").text.split().count("sleep") == 1, 10, "it sleeps")
    sleeper.close()


def test_many_small_files_are_enospc(alice, component):
    script = ("import errno, os\n"
              "os.mkdir('/session/many')\n"
              "try:\n"
              "    for n in range(100000): os.close(os.open(f'/session/many/{n}', os.O_CREAT))\n"
              "except OSError as e: print(errno.errorcode[e.errno], n)\n")
    result = alice.run(component, "/usr/bin/python3", "-c", script, timeout_ms=60000)
    words = result.text.split()
    assert words and words[0] == "ENOSPC" and 65000 < int(words[1]) <= 65536, result
