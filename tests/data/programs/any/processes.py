# grants: fork, vfork, execve, wait4, waitid, kill of own processes, process groups, signals, timers
"""Subprocess trees with pipes; signals; groups that are ended together."""
import os
import signal
import subprocess
import sys
import time

TREE = """
import subprocess, sys
depth = int(sys.argv[1])
if depth:
    children = [subprocess.Popen([sys.executable, "-S", "-c", sys.argv[2], str(depth - 1), sys.argv[2]],
                                 stdout=subprocess.PIPE) for _ in range(2)]
    print(1 + sum(int(child.communicate()[0]) for child in children))
else:
    print(1)
"""


def handle(*_):
    handle.seen += 1


def main():
    run = subprocess.run([sys.executable, "-S", "-c", TREE, "3", TREE], stdout=subprocess.PIPE, check=True)
    assert int(run.stdout) == 15, run
    first = subprocess.Popen(["seq", "100000"], stdout=subprocess.PIPE)
    second = subprocess.Popen(["tail", "-n", "1"], stdin=first.stdout, stdout=subprocess.PIPE)
    first.stdout.close()
    assert second.communicate()[0] == b"100000\n" and first.wait() == 0
    handle.seen = 0
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    while handle.seen < 3:
        signal.pause()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.sigtimedwait({signal.SIGUSR1}, 5).si_signo == signal.SIGUSR1
    group = subprocess.Popen(["sh", "-c", "sleep 100 & sleep 100 & echo up; wait"],
                             stdout=subprocess.PIPE, start_new_session=True)
    assert group.stdout.readline() == b"up\n"
    os.killpg(group.pid, signal.SIGTERM)
    assert group.wait(10) == -signal.SIGTERM
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            os.killpg(group.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.01)
    else:
        raise AssertionError("orphans of the group are not reaped")
    child = os.posix_spawn("/bin/true", ["true"], os.environ)
    assert os.waitid(os.P_PID, child, os.WEXITED).si_status == 0
    print("ok")


main()
