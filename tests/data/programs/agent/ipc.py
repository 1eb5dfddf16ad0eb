# needs: ipcs:util-linux
# grants: POSIX and SysV queues, semaphores and shared memory in an IPC namespace of the session's own
"""POSIX message queues; SysV shared memory, semaphores and queues; named semaphores."""
import ctypes
import os
import signal
import subprocess

IPC_CREAT, IPC_PRIVATE, IPC_RMID = 0o1000, 0, 0


class MqAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("flags", "maxmsg", "msgsize", "curmsgs", "a", "b",
                                                   "c", "d")]


def main():
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name, *args):
        result = getattr(libc, name)(*args)
        assert result != -1, (name, os.strerror(ctypes.get_errno()))
        return result

    queue = call("mq_open", b"/queue", os.O_CREAT | os.O_RDWR, 0o600,
                 ctypes.byref(MqAttr(maxmsg=8, msgsize=64)))
    call("mq_send", queue, b"hello", 5, 1)
    buffer = ctypes.create_string_buffer(64)
    assert call("mq_receive", queue, buffer, 64, None) == 5 and buffer.raw[:5] == b"hello"
    attributes = MqAttr()
    call("mq_getattr", queue, ctypes.byref(attributes))
    assert attributes.maxmsg == 8 and attributes.curmsgs == 0
    # Told by a signal when the queue is no longer empty.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    call("mq_notify", queue, (ctypes.c_int * 16)(0, 0, signal.SIGUSR1, 0))
    call("mq_send", queue, b"again", 5, 1)
    assert signal.sigtimedwait({signal.SIGUSR1}, 5).si_signo == signal.SIGUSR1
    call("mq_unlink", b"/queue")

    shm = call("shmget", IPC_PRIVATE, 1 << 20, IPC_CREAT | 0o600)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(shm, None, 0)
    assert address not in (None, ctypes.c_void_p(-1).value)
    ctypes.memset(address, 7, 1 << 20)
    call("shmdt", ctypes.c_void_p(address))
    call("shmctl", shm, IPC_RMID, None)

    sem = call("semget", IPC_PRIVATE, 1, IPC_CREAT | 0o600)
    call("semctl", sem, 0, 16, 1)
    call("semop", sem, (ctypes.c_short * 3)(0, -1, 0), 1)
    call("semctl", sem, 0, IPC_RMID)

    message = call("msgget", IPC_PRIVATE, IPC_CREAT | 0o600)
    call("msgsnd", message, (ctypes.c_long * 2)(1, 42), 8, 0)
    got = (ctypes.c_long * 2)()
    assert call("msgrcv", message, got, 8, 0, 0) == 8 and got[1] == 42
    call("msgctl", message, IPC_RMID, None)
    assert subprocess.run(["ipcs"], stdout=subprocess.PIPE, check=True).stdout
    print("ok")


main()
