# grants: /dev/shm as a tmpfs with mode 1777, sem_open, AF_UNIX socketpair, SCM_RIGHTS within the session
"""Pools, queues, locks and shared memory, by each way to start a process."""
import multiprocessing as mp
import os
import stat
from multiprocessing import shared_memory


def square(n):
    return n * n


def count(lock, total, queue):
    for _ in range(100):
        with lock:
            total.value += 1
    queue.put(os.getpid())


def fill(name):
    memory = shared_memory.SharedMemory(name=name)
    memory.buf[:5] = b"hello"
    memory.close()


def use(method):
    context = mp.get_context(method)
    with context.Pool(2) as pool:
        assert pool.map(square, range(20)) == [n * n for n in range(20)], method
    lock, total, queue = context.Lock(), context.Value("i", 0, lock=False), context.Queue()
    workers = [context.Process(target=count, args=(lock, total, queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    pids = {queue.get(timeout=20) for _ in workers}
    for worker in workers:
        worker.join()
    assert pids == {worker.pid for worker in workers} and total.value == 200, method


def main():
    status = os.stat("/dev/shm")
    assert stat.S_IMODE(status.st_mode) == 0o1777, oct(status.st_mode)
    for method in ("fork", "spawn", "forkserver"):
        use(method)
    memory = shared_memory.SharedMemory(create=True, size=1 << 20)
    worker = mp.Process(target=fill, args=(memory.name,))
    worker.start()
    worker.join()
    assert bytes(memory.buf[:5]) == b"hello"
    memory.close()
    memory.unlink()
    with mp.Manager() as manager:
        shared = manager.dict(a=1)
        assert shared["a"] == 1
    print("ok")


if __name__ == "__main__":
    main()
