"""Readers that leave and come back during a fast run: between what is stored and what is live there is no gap
and nothing twice."""
import json
import random
import threading
import time

from harness import CONFIG, PATIENCE, Daemon, UnixConnection

N_COMPONENTS = 150
N_TASKS = 6
N_READERS = 16


def read_some(caller, url, header, want):
    """The next events, at most `want`; then the connection is cut."""
    connection = UnixConnection(caller.path, 60 * PATIENCE)
    got = []
    try:
        connection.request("GET", url, headers={**caller.headers, **header})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        while len(got) < want:
            line = response.readline()
            if not line:
                return got
            if line.startswith(b"data:") or line.startswith(b"{"):
                got.append(json.loads(line.removeprefix(b"data:")))
        return got
    finally:
        connection.close()


def read_all(caller, task, seed, told):
    """All frames of the task, by many connections, each from where the one before it was cut."""
    chance = random.Random(seed)
    frames, n_connections = [], 0
    try:
        while not frames or frames[-1]["stage"] not in ("done", "error"):
            path = chance.choice(["/dagster/sandbox/tasks/{}/stream", "/chat/stream/{}"]).format(task)
            header = {}
            if chance.random() < 0.5:
                header["Accept"] = "application/x-ndjson"
            last = frames[-1]["seq"] if frames else 0
            if chance.random() < 0.5:
                path += f"?after={last}"
            else:
                header["Last-Event-ID"] = str(last)
            got = read_some(caller, path, header, chance.choice([1, 1, 2, 3, 7, 20]))
            frames += got
            n_connections += 1
            time.sleep(chance.random() * 0.02)
        told.append((frames, n_connections))
    except BaseException as error:  # told where it is looked at
        told.append((error, n_connections))


def test_readers_that_come_back_at_any_position_get_each_frame_once():
    daemon = Daemon(CONFIG + "[owner]\njobs = 100\nchanges_per_second = 0\n")
    try:
        alice = daemon.client("alice")
        session = alice.create()
        for i in range(N_COMPONENTS):
            assert alice.write(session, f"c{i:03}", "type: demo.Thing\n").status == 200
        seed = random.randrange(1 << 30)
        print(f"seed {seed}")
        tasks = [alice.execute(session) for _ in range(N_TASKS)]
        told = []
        readers = [threading.Thread(target=read_all, args=(alice, tasks[i % N_TASKS], seed + i, told))
                   for i in range(N_READERS)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(120 * PATIENCE)
        assert len(told) == N_READERS
        whole = {task: alice.frames(task) for task in tasks}
        n_connections = 0
        for frames, n in told:
            assert isinstance(frames, list), frames
            assert frames == whole[frames[0]["task_id"]]
            assert [f["seq"] for f in frames] == list(range(1, N_COMPONENTS + 3))
            n_connections += n
        print(f"{n_connections} connections")
        assert n_connections > 10 * N_READERS
    finally:
        daemon.done()
