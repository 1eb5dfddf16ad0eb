"""Commands with "user": "root" in the profile that has them, and their refusal elsewhere."""
import json
import re
import subprocess
import threading

import pytest

from harness import RUNTIME, ctl, wait_until

# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID
SEVEN = sum(1 << bit for bit in (0, 1, 3, 4, 5, 6, 7))
SETS = ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb")


@pytest.fixture
def agent(alice):
    made = alice.create_runtime(profile="agent")
    yield made
    alice.remove(made)


def status(text):
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def root(alice, session, script, **more):
    return alice.shell(session, script, user="root", **more)


def test_root_has_exactly_the_seven_capabilities(alice, agent):
    seen = status(root(alice, agent, "cat /proc/self/status").text)
    assert seen["Uid"].split() == seen["Gid"].split() == ["0"] * 4 and seen["Groups"].strip() == ""
    assert [int(seen[name], 16) for name in SETS] == [SEVEN, SEVEN, SEVEN, 0, 0], seen
    assert seen["NoNewPrivs"] == "1" and seen["Seccomp"] == "2" and seen["Seccomp_filters"] == "1"


def test_user_keeps_nothing_beside_root_commands(alice, agent):
    assert root(alice, agent, "true").code == 0
    seen = status(alice.shell(agent, "cat /proc/self/status").text)
    assert seen["Uid"].split() == ["1000"] * 4
    assert [int(seen[name], 16) for name in SETS] == [0] * 5, seen
    assert alice.shell(agent, "cat /proc/self/status", user="user").text.count("\t1000") == 8


def test_root_owns_the_files_of_the_session_and_no_others(alice, agent):
    script = """set -e
    echo x > /session/mine; chmod 600 /session/mine
    install -o 1000 -g 1000 -m 600 /dev/null /session/given
    chown 7:8 /session/mine; stat -c %u:%g /session/mine /session/given
    stat -c %u:%g / /tmp /etc /session
    """
    assert root(alice, agent, script).text.split() == ["7:8", "1000:1000", "0:0", "0:0", "0:0",
                                                      "1000:1000"]
    assert alice.shell(agent, "echo y >> /session/given && cat /session/mine").code != 0
    # Not an id of the session, not writable, not there.
    for script, error in (("chown 65535 /session/mine", "Invalid argument"),
                          ("touch /usr/bin/new", "Read-only file system"),
                          ("touch /etc/new", "Read-only file system"),
                          ("mknod /session/null c 1 3", "Permission denied"),
                          ("echo 1 > /proc/sys/kernel/panic", "Read-only file system"),
                          ("mount -t tmpfs x /session", ""), ("cat /etc/shadow", "No such file")):
        result = root(alice, agent, script)
        assert result.code != 0 and error in result.err.decode(), (script, result)


def test_leaving_the_id_leaves_the_capabilities(alice, agent):
    """As everywhere: setuid drops them, and no file gives them back."""
    script = ("import os\n"
              "os.setgid(1000); os.setuid(1000)\n"
              "print(open('/proc/self/status').read(), flush=True)\n"
              "os.execv('/bin/sh', ['sh', '-c', 'cat /proc/self/status; cat /session/secret'])\n")
    assert root(alice, agent, "umask 077; echo s > /session/secret").code == 0
    result = alice.run(agent, "/usr/bin/python3", "-c", script, user="root")
    assert result.code != 0 and "Permission denied" in result.err.decode(), result
    first, second = result.text.split("Name:")[1:]
    assert [int(status(first)[name], 16) for name in SETS] == [0, 0, SEVEN, 0, 0], first
    assert [int(status(second)[name], 16) for name in SETS] == [0, 0, SEVEN, 0, 0], second


def test_a_setuid_file_of_root_has_no_effect(alice, agent):
    assert root(alice, agent, "cp /usr/bin/id /session/id; chmod 6755 /session/id").code == 0
    assert alice.shell(agent, "/session/id -u; /session/id -g").text.split() == ["1000", "1000"]


def test_root_cannot_reach_what_is_not_its_own(alice, agent):
    """pid 1, its helpers, the other commands: nothing of them is seen, signalled or limited."""
    sleeper = alice.lines("POST", f"{RUNTIME}/{agent}/commands",
                          {"argv": ["/bin/sh", "-c", "echo up; exec sleep 60"]})
    next(sleeper)
    script = """
    for pid in 1 2 3 4 5 6 7 8 9 10 11 12; do
        test $pid = $$ && continue
        cat /proc/$pid/environ /proc/$pid/maps 2>/dev/null
        ls /proc/$pid/fd 2>/dev/null >&2 && test -e /proc/$pid/exe && echo "looked into $pid"
        prlimit --pid $pid --nofile=3 2>/dev/null && echo "limited $pid"
        renice 19 -p $pid >/dev/null 2>&1 && echo "slowed $pid"
    done
    kill -9 1 2>/dev/null && echo "signalled 1"
    true
    """
    assert root(alice, agent, script).text == ""
    assert alice.shell(agent, "echo lives").text == "lives\n"
    assert root(alice, agent, "echo lives").text == "lives\n"
    sleeper.close()


def test_root_can_end_its_spawner_and_gets_another(alice, agent):
    result = root(alice, agent, "kill -9 -1; echo there")
    assert result.error or result.exit, result
    # What is sent while it dies is lost with it.
    wait_until(lambda: root(alice, agent, "echo again").text == "again\n", 10, "another spawner")
    assert alice.shell(agent, "echo user").text == "user\n"
    assert alice.get(f"{RUNTIME}/{agent}").status == 200


def test_time_limit_ends_a_root_tree_under_any_id(alice, agent):
    script = ("import os, time\n"
              "for uid in (1, 1000, 30000):\n"
              "    if os.fork() == 0:\n"
              "        os.setsid(); os.setuid(uid)\n"
              "        if os.fork() == 0: time.sleep(987)\n"
              "        time.sleep(987)\n"
              "time.sleep(987)\n")
    result = alice.run(agent, "/usr/bin/python3", "-c", script, user="root", timeout_ms=1000)
    assert result.exit.get("timed_out") is True, result
    wait_until(lambda: "time.sleep" not in root(
        alice, agent, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").text, 15, "the tree is gone")


def test_refusals_of_root_commands_are_told(alice, agent):
    assert root(alice, agent, "unshare -U true").code != 0

    def counted():
        denials = alice.get(f"{RUNTIME}/{agent}/denials").json["denials"]
        return any(d["kind"] == "syscall" and "unshare" in d["what"] for d in denials)
    wait_until(counted, 10, "a denial of unshare")


def test_many_root_commands_beside_users(alice, agent):
    seen = []

    def ask(name, uid):
        for _ in range(10):
            seen.append(alice.shell(agent, "id -u", user=name).text.strip() == uid)
    threads = [threading.Thread(target=ask, args=pair)
               for pair in (("root", "0"), ("user", "1000")) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 60 and all(seen)


def test_environment_of_root(alice, agent):
    text = root(alice, agent, "echo $USER $LOGNAME $HOME $PATH").text
    assert text == "root root /session/home /usr/sbin:/usr/bin:/bin\n"
    text = root(alice, agent, "echo $USER", envs={"MINE": "x"}).text
    assert text == "root\n"


def test_component_refuses_root(alice):
    made = alice.create()
    try:
        answer = alice.post(f"{RUNTIME}/{made}/commands", {"argv": ["/bin/true"], "user": "root"})
        assert answer.status == 422, answer
        assert answer.json["detail"] == [{
            "type": "value_error", "loc": ["body", "user"],
            "msg": "Value error, the profile of this sandbox has no root commands"}]
        assert alice.shell(made, "id -u", user="user").text == "1000\n"
    finally:
        alice.remove(made)


@pytest.mark.parametrize("user", ["1", " 0", "0", "0x0", "-1", "4294967296", "root ", "Root", "",
                                  "root\0", 0, 1000, True, ["root"], {"uid": 0}])
def test_user_is_one_of_two_words(alice, agent, user):
    answer = alice.post(f"{RUNTIME}/{agent}/commands", {"argv": ["/usr/bin/id"], "user": user})
    assert answer.status == 422 and answer.json["detail"][0]["loc"] == ["body", "user"], answer


def test_root_command_is_in_the_audit(daemon, alice, agent):
    assert root(alice, agent, "true").code == 0
    def told():
        """Of a stream that has ended the line may come a moment later."""
        lines = map(json.loads, (daemon.state / "api" / "audit.jsonl").read_text().splitlines())
        return any(line["action"] == "command.run" and line.get("run_as") == "root"
                   and line["session"] == agent for line in lines)

    wait_until(told, 10, "a line")


def test_what_root_of_the_host_owns_is_roots(alice, agent):
    """Layers are idmapped where the file system of /usr can be (ext4, xfs, btrfs and others)."""
    if subprocess.run(["stat", "-f", "-c", "%T", "/usr"], capture_output=True, text=True,
                      check=True).stdout.strip() == "overlayfs":
        pytest.skip("/usr is an overlay here, which cannot be idmapped")
    names = "/ /etc /etc/passwd /usr /usr/bin /usr/bin/env /usr/lib /dev /dev/null /tmp"
    owners = alice.shell(agent, f"stat -c %u {names}").text.split()
    assert owners == ["0"] * 10, owners
    # To look at: nothing of it can be written.
    result = root(alice, agent, "chown user /usr/bin/env; chmod u+s /usr/bin/env; echo x > /etc/passwd")
    assert result.err.decode().count("Read-only file system") == 3, result
    mounts = root(alice, agent, "cat /proc/self/mountinfo").text
    assert "idmapped" not in mounts and re.search(r"lowerdir=m:(h/\d:)?u\b", mounts), mounts


def test_namespaces_are_bounded_for_root_too(alice, agent):
    names = ("user", "pid", "net", "mnt", "ipc", "uts", "cgroup", "time")
    paths = " ".join(f"/proc/sys/user/max_{name}_namespaces" for name in names)
    assert root(alice, agent, f"cat {paths}").text.split() == ["0"] * len(names)
    assert root(alice, agent, f"for f in {paths}; do echo 9 > $f; done; cat {paths}"
                ).text.split() == ["0"] * len(names)


def test_securebits_are_locked(alice, agent):
    """Of root: uid 0 means something, and one may keep capabilities; of `user`: nothing of it."""
    script = "import ctypes; print(ctypes.CDLL(None).prctl(27))"
    noroot, fixup, keep, ambient = (1 << 0, 1 << 2, 1 << 4, 1 << 6)
    locked = (noroot | fixup | ambient) << 1
    for user, bits in (("root", ambient), ("user", noroot | fixup | ambient | keep << 1)):
        text = alice.run(agent, "/usr/bin/python3", "-c", script, user=user).text
        assert int(text) == locked | bits, (user, hex(int(text)))
    script = "import ctypes; c = ctypes.CDLL(None); print([c.prctl(28, n) for n in (0, 0x2f, 0xff)])"
    text = alice.run(agent, "/usr/bin/python3", "-c", script, user="root").text
    assert text == "[-1, -1, -1]\n"


def test_root_reads_no_key_of_the_host(alice, agent):
    """The second spawner has the session's keyring, as the first."""
    assert root(alice, agent, "cat /proc/keys").text == ""
    script = ("import ctypes, errno\n"
              "c = ctypes.CDLL(None, use_errno=True)\n"
              "for call in ((250, 0, -3, 0), (248, b'user', b'x', b'y', 1, -3)):\n"
              "    assert c.syscall(*call) == -1 and ctypes.get_errno() == errno.EPERM, call\n")
    result = alice.run(agent, "/usr/bin/python3", "-c", script, user="root")
    assert result.code == 0, result


def test_no_group_of_ours_can_be_taken(alice, agent):
    """The shim's group is let through hidepid, and is not mapped."""
    script = ("import os\n"
              "for call in (lambda: os.setgid(65535), lambda: os.setgroups([65535]),\n"
              "             lambda: os.setresgid(65535, 65535, 65535), lambda: os.setuid(65535)):\n"
              "    try: call()\n"
              "    except OSError as error: print(error.errno)\n"
              "os.setgroups([5, 65534]); os.setgid(5); print(os.getgroups(), os.getgid())\n")
    result = alice.run(agent, "/usr/bin/python3", "-c", script, user="root")
    assert result.text == "22\n" * 4 + "[5, 65534] 5\n", result


def test_watches_of_many_ids_are_one_sum(daemon, alice, agent):
    """Whoever makes them inside, outside they count for the session's own id."""
    with open("/proc/sys/fs/inotify/max_user_instances", encoding="ascii") as file:
        limit = int(file.read())
    if limit > 1000:
        pytest.skip(f"the host allows {limit} instances a user")
    script = ("import ctypes, os, sys\n"
              "c = ctypes.CDLL(None)\n"
              "n, held = 0, os.pipe()\n"
              "for uid in range(10):\n"
              "    r, w = os.pipe()\n"
              "    if os.fork() == 0:\n"
              "        os.setuid(uid + 100)\n"
              "        os.close(held[1])\n"
              "        n = 0\n"
              "        while n < 300 and c.inotify_init1(0) >= 0: n += 1\n"
              "        os.write(w, bytes([n % 256, n // 256])); os.read(held[0], 1); sys.exit()\n"
              "    a = os.read(r, 2); n += a[0] + 256 * a[1]\n"
              "print(n)\n")  # and ends, with which theirs do
    result = alice.run(agent, "/usr/bin/python3", "-c", script, user="root")
    assert 0 < int(result.text) <= limit, result


def test_cli_runs_as_root(daemon):
    made = ctl(daemon, "run", "-p", "agent", "--root", "--", "id", "-u")
    assert (made.returncode, made.stdout) == (0, b"0\n"), made
    refused = ctl(daemon, "run", "-p", "component", "--root", "--", "id", "-u")
    assert refused.returncode == 4 and b"no root commands" in refused.stderr, refused
