# grants: fcntl record locks, mmap MAP_SHARED of a file in /session, fallocate, fsync, fdatasync
"""A database in WAL mode with two processes at it."""
import os
import sqlite3


def main():
    path = "/session/sqlite-test.db"
    first = sqlite3.connect(path, isolation_level=None)
    assert first.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    first.execute("PRAGMA mmap_size=1048576")
    first.execute("CREATE TABLE t(n INTEGER PRIMARY KEY, text TEXT)")
    child = os.fork()
    if child == 0:
        second = sqlite3.connect(path, timeout=20, isolation_level=None)
        for n in range(200):
            second.execute("INSERT INTO t(text) VALUES (?)", (f"child {n}",))
        os._exit(0)
    for n in range(200):
        first.execute("INSERT INTO t(text) VALUES (?)", (f"parent {n}",))
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert first.execute("SELECT count(*) FROM t").fetchone() == (400,)
    assert os.path.exists(path + "-wal") and os.path.exists(path + "-shm")
    first.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert first.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    first.close()
    print("ok")


main()
