# grants: nothing: what developers' tools alone need is not there, as on a kernel that lacks it
"""A component's programs cannot make what only `agent` has programs for, and live on without it."""
import ctypes
import errno

LIBC = ctypes.CDLL(None, use_errno=True)
CALLS = {
    "splice": 275, "mincore": 27, "mlock": 149, "munlock": 150, "personality": 135, "seccomp": 317,
    "pkey_mprotect": 329, "pkey_alloc": 330, "pkey_free": 331,
    "mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239,
    "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67, "semget": 64, "semop": 65, "semctl": 66,
    "semtimedop": 220, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71,
    "mq_open": 240, "mq_unlink": 241, "mq_timedsend": 242, "mq_timedreceive": 243, "mq_notify": 244,
    "mq_getsetattr": 245,
}


def main():
    for name, number in CALLS.items():
        result = LIBC.syscall(number, 0, 0, 0, 0, 0, 0)
        assert result == -1 and ctypes.get_errno() == errno.ENOSYS, (name, result, ctypes.get_errno())
    # multiprocessing's semaphores are POSIX ones, in /dev/shm.
    import multiprocessing
    lock = multiprocessing.Lock()
    with lock:
        pass
    print("ok")


main()
