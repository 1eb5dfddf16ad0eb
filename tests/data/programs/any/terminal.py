# needs: bash script:bsdutils stty:coreutils
# grants: /dev/ptmx and /dev/pts of the session, TIOCSCTTY, TIOCSWINSZ, TIOCGPTPEER, job-control signals
"""Pseudo terminals: openpty, a shell with a controlling terminal, script, sizes."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time


def interactive_shell():
    """Job control as a person uses it: ^Z, jobs, fg, ^C."""
    shell, terminal = pty.fork()
    if shell == 0:
        os.environ["PS1"] = "ready> "
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    text = b""

    def expect(what):
        nonlocal text
        while what not in text:
            assert select.select([terminal], [], [], 20)[0], (what, text)
            text += os.read(terminal, 1000)
        text = text.partition(what)[2]

    def foreground(wanted):
        end = time.monotonic() + 20
        while (os.tcgetpgrp(terminal) == shell) == wanted:
            assert time.monotonic() < end, "the foreground group does not change"
            time.sleep(0.01)

    expect(b"ready> ")
    os.write(terminal, b"sleep 100\n")
    foreground(True)
    os.write(terminal, b"\x1a")
    expect(b"Stopped")
    expect(b"ready> ")
    os.write(terminal, b"fg\n")
    foreground(True)
    os.write(terminal, b"\x03")
    foreground(False)
    expect(b"ready> ")
    os.write(terminal, b"exit 3\n")
    assert os.waitstatus_to_exitcode(os.waitpid(shell, 0)[1]) == 3
    os.close(terminal)


def main():
    master, slave = pty.openpty()
    assert os.ttyname(slave).startswith("/dev/pts/") and os.isatty(slave)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 132, 0, 0))
    assert subprocess.run(["stty", "size"], stdin=slave, stdout=subprocess.PIPE,
                          check=True).stdout == b"40 132\n"
    os.write(master, b"typed\n")
    assert os.read(slave, 100) == b"typed\n"
    child, terminal = pty.fork()
    if child == 0:
        os.execvp("bash", ["bash", "--norc", "-c", "test -t 0 && tty && echo job > /dev/tty; sleep 100"])
    text = b""
    while b"job" not in text:
        text += os.read(terminal, 1000)
    assert b"/dev/pts/" in text, text
    os.write(terminal, b"\x03")
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == 2
    interactive_shell()
    output = os.environ["TMPDIR"] + "/typescript"
    run = subprocess.run(["script", "-qec", "tty; stty size; exit 7", output],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    assert run.returncode == 7 and b"/dev/pts/" in run.stdout, run
    print("ok")


main()
