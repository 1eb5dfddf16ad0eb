"""200 sessions made, executed and removed by 16 clients at once."""
import threading

import pytest

from harness import SESSIONS, Daemon, wait_until


@pytest.mark.slow
def test_200_sessions_by_16_clients_leave_nothing():
    daemon = Daemon(config="[identity]\ntrusted_peers = 0\n"
                           "[supervisor]\nlaunches_per_second = 1000\n")
    try:
        warm = daemon.client("warm")
        session = warm.create()
        warm.run(session, "/bin/true")
        warm.remove(session)
        wait_until(lambda: not daemon.shim_pids(), 5, "the first one is gone")
        before = daemon.settled()
        todo = list(range(200))
        lock = threading.Lock()
        errors = []

        def work(number):
            caller = daemon.client(f"user{number}", workspace=f"team{number % 4}")
            while True:
                with lock:
                    if not todo:
                        return
                    todo.pop()
                try:
                    one_round(caller)
                except Exception as error:  # pylint: disable=broad-except
                    errors.append(repr(error))

        def one_round(caller):
            made = caller.create()
            assert caller.write(made, "one", "type: a.B\n").status == 200
            frames = caller.frames(caller.execute(made))
            assert frames[-1]["stage"] == "done", frames
            assert caller.remove(made).status == 200

        threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors[:5]
        assert daemon.root.get(SESSIONS).json == []
        try:
            wait_until(lambda: daemon.snapshot() == before, 10, "before = after")
        except AssertionError:
            assert daemon.snapshot() == before
    finally:
        daemon.done()
