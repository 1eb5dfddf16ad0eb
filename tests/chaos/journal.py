"""What a client asked and what it was told: lines of JSON that are on the disk before it goes on."""
import json
import os
import threading
import time


class Journal:
    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")
        self.lock = threading.Lock()

    def write(self, kind, sync=True, **fields):
        record = {"t": time.time(), "kind": kind, **fields}
        with self.lock:
            self.file.write(json.dumps(record, ensure_ascii=True) + "\n")
            self.file.flush()
            if sync:
                os.fdatasync(self.file.fileno())

    def close(self):
        self.file.close()


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]
