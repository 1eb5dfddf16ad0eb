# grants: clone3 says ENOSYS, clone with thread flags, futex, set_robust_list, rseq, sched_*
"""Threads, thread and process pools, thread-local stacks, affinity, limits."""
import concurrent.futures as cf
import os
import resource
import threading


def work(n):
    return sum(range(n))


def main():
    seen, barrier = [], threading.Barrier(32)

    def meet(n):
        barrier.wait(20)
        seen.append(n)

    threads = [threading.Thread(target=meet, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(32))
    with cf.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(50))) == [work(n) for n in range(50)]
    with cf.ProcessPoolExecutor(2) as pool:
        assert list(pool.map(work, range(50))) == [work(n) for n in range(50)]
    mine = os.sched_getaffinity(0)
    assert mine and os.cpu_count() >= len(mine)
    os.sched_setaffinity(0, {min(mine)})
    assert os.sched_getaffinity(0) == {min(mine)}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft >= 1024, soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
    assert len(os.getloadavg()) == 3 and os.sysconf("SC_PHYS_PAGES") > 0
    os.nice(1)
    print("ok")


if __name__ == "__main__":
    main()
