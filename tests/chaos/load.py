"""Clients that work, and write down what they asked and what they were told. They judge nothing."""
import base64
import hashlib
import json
import queue
import random
import threading
import time
import traceback
import uuid

import redis

import wire

SESSIONS = "/dagster/sandbox/sessions"
TASKS = "/dagster/sandbox/tasks"
TASK = "execute_sandbox_session"
MAX_SESSIONS = 6
FILES = [f"c{i}" for i in range(24)]
KEPT_TEXT = 4000
REDIS = 'timeout 30 redis-cli --no-auth-warning -u "$SANDBOX_REDIS_URL" set "${SANDBOX_REDIS_PREFIX}$1" "$2"'
COUNT = 'i=0; while [ $i -lt 20 ]; do echo "$1 $i"; i=$((i+1)); sleep 0.1; done'
BIG_BYTES = 3_000_000


def bytes_of(event):
    """What an event of a command's output carries: text, or what is none."""
    return event["text"].encode() if "text" in event else base64.b64decode(event["data"])


def message_of(task, session):
    """Of Celery's protocol 2."""
    body = json.dumps([[session], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    return json.dumps({
        "body": base64.b64encode(body.encode()).decode(), "content-encoding": "utf-8", "content-type": "application/json",
        "headers": {"lang": "py", "task": TASK, "id": task, "root_id": task, "parent_id": None, "group": None,
                    "retries": 0, "eta": None, "expires": None, "timelimit": [None, None], "origin": "chaos"},
        "properties": {"correlation_id": task, "reply_to": str(uuid.uuid4()), "delivery_mode": 2, "priority": 0,
                       "delivery_info": {"exchange": "", "routing_key": "sandbox"}, "body_encoding": "base64",
                       "delivery_tag": str(uuid.uuid4())}})


class Session:
    def __init__(self, session_id):
        self.id = session_id
        self.files = set()
        self.tasks = []


class Client(threading.Thread):
    """One user. Its requests come one after the other, so their order is known."""

    def __init__(self, number, caller, journal, seed, readers, server):
        super().__init__(name=f"client{number}", daemon=True)
        self.number = number
        self.caller = caller
        self.journal = journal
        self.readers = readers
        self.server = server
        self.random = random.Random(f"{seed}/client{number}")
        self.sessions = []
        self.ended_tasks = []
        self.n = 0
        self.error = None
        self.done = threading.Event()
        self.operations = [
            (self.create, 2), (self.write, 10), (self.load, 3), (self.execute, 8), (self.echo, 4), (self.cat, 4),
            (self.count, 1), (self.big, 1), (self.get, 6), (self.list, 2), (self.ttl, 2), (self.delete, 2),
            (self.cancel, 1), (self.read_old, 2), (self.redis, 4), (self.send, 4),
        ]

    # --- one request

    def ask(self, op, method, url, body=None, **about):
        """None: no answer came."""
        self.n += 1
        known = {"client": self.number, "n": self.n, "op": op, **about}
        self.journal.write("ask", **known)
        try:
            status, answer, headers = self.caller.ask(method, url, body)
        except wire.Broken as error:
            self.journal.write("lost", **known, error=repr(error))
            return None, None
        self.journal.write("told", **known, status=status, body=answer,
                           degraded=headers.get("Sandbox-Degraded") == "store")
        return status, answer

    def command(self, op, session, argv, slowly=False, **about):
        self.n += 1
        known = {"client": self.number, "n": self.n, "op": op, "session": session.id, **about}
        self.journal.write("ask", **known)
        out, events, status = b"", [], None
        try:
            connection, response = self.caller.open("POST", f"/v1/sandboxes/{session.id}/commands", {"argv": argv},
                                                    headers={"Accept": "application/x-ndjson"})
            with connection.sock or response:
                status = response.status
                for line in wire.lines_of(response):
                    if not line:
                        continue
                    event = json.loads(line) if status == 200 else {"answer": line.decode("utf-8", "replace")}
                    if event.get("type") == "stdout":
                        out += bytes_of(event)
                        if slowly:
                            time.sleep(0.02)
                    else:
                        if event.get("type") == "stderr":
                            event["text"] = bytes_of(event)[:200].decode("utf-8", "replace")
                        events.append(event)
            connection.close()
        except wire.Broken as error:
            self.journal.write("lost", **known, error=repr(error), status=status, size=len(out),
                               out=out[:KEPT_TEXT].decode("utf-8", "replace"))
            return
        self.journal.write("told", **known, status=status, events=events[-3:], size=len(out),
                           sha=hashlib.sha256(out).hexdigest(), out=out[:KEPT_TEXT].decode("utf-8", "replace"))

    def any_session(self):
        return self.random.choice(self.sessions) if self.sessions else None

    # --- operations

    def create(self):
        if len(self.sessions) >= MAX_SESSIONS:
            return
        name = f"chaos-{self.number}-{self.n}"
        ttl = self.random.choice([1, 2, 60, 120, 720, 720, 720, 720])
        status, answer = self.ask("create", "POST", SESSIONS, {"ttl_minutes": ttl, "name": name}, name=name)
        if status != 201:
            return
        session = Session(answer["id"])
        self.sessions.append(session)
        for file in self.random.sample(FILES, self.random.randint(0, 6)):
            self.write_file(session, file)

    def write_file(self, session, file):
        token = f"{self.number}.{self.n}.{self.random.getrandbits(32):08x}"
        body = f'type: a.B\nattributes:\n  token: "{token}"\n'
        size = self.random.choice([0, 0, 0, 200, 20_000])
        if size:
            body += "  list: [" + ", ".join(str(i) for i in range(size // 5)) + "]\n"
        status, _ = self.ask("write", "POST", f"{SESSIONS}/{session.id}/components", {"name": file, "body": body},
                             session=session.id, file=file + ".yaml",
                             sha=hashlib.sha256(body.encode()).hexdigest())
        if status == 200:
            session.files.add(file + ".yaml")

    def write(self):
        if session := self.any_session():
            self.write_file(session, self.random.choice(FILES))

    def load(self):
        if session := self.any_session():
            self.ask("load", "POST", f"{SESSIONS}/{session.id}/load", session=session.id)

    def execute(self):
        if session := self.any_session():
            for _ in range(self.random.choice([1, 1, 1, 3])):
                self.execute_one(session)

    def execute_one(self, session):
        status, answer = self.ask("execute", "POST", f"{SESSIONS}/{session.id}/execute", session=session.id)
        if status != 200:
            return
        session.tasks.append(answer["task_id"])
        for _ in range(self.random.randint(1, 3)):
            self.readers.put(self.caller, answer["task_id"], self.random.getrandbits(32))

    def send(self):
        """The same through the queue, half the time twice, as a broker may deliver it."""
        session = self.any_session()
        if not session:
            return
        task = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        self.n += 1
        self.journal.write("ask", client=self.number, n=self.n, op="queue", session=session.id, task=task)
        try:
            self.server.push(*(message_of(task, session.id) for _ in range(self.random.randint(1, 2))))
        except redis.RedisError as error:
            self.journal.write("not queued", task=task, error=repr(error))

    def echo(self):
        if session := self.any_session():
            text = f"{self.number}.{self.n}"
            self.command("echo", session, ["/bin/echo", text], want=text + "\n")

    def count(self):
        if session := self.any_session():
            text = f"{self.number}.{self.n}"
            self.command("count", session, ["/bin/sh", "-c", COUNT, "sh", text],
                         want="".join(f"{text} {i}\n" for i in range(20)))

    def big(self):
        if session := self.any_session():
            self.command("big", session, ["/bin/sh", "-c", f"head -c {BIG_BYTES} /dev/zero | tr '\\0' x"],
                         slowly=True, want_sha=hashlib.sha256(b"x" * BIG_BYTES).hexdigest())

    def cat(self):
        session = self.any_session()
        if session and session.files:
            file = self.random.choice(sorted(session.files))
            self.command("cat", session, ["/bin/cat", f"/session/{file}"], file=file)

    def redis(self):
        if session := self.any_session():
            key, value = f"k{self.random.randint(0, 9)}", f"{self.number}.{self.n}"
            self.command("redis", session, ["/bin/sh", "-c", REDIS, "sh", key, value], key=key, value=value)

    def get(self):
        if session := self.any_session():
            self.look_at(session)

    def look_at(self, session):
        status, answer = self.ask("get", "GET", f"{SESSIONS}/{session.id}", session=session.id)
        if status == 404:
            self.forget(session)
        return status, answer

    def forget(self, session):
        self.sessions.remove(session)
        self.ended_tasks += session.tasks

    def list(self):
        self.ask("list", "GET", f"{SESSIONS}?limit=500")

    def ttl(self):
        if session := self.any_session():
            minutes = self.random.choice([1, 60, 600, 720])
            self.ask("ttl", "PATCH", f"{SESSIONS}/{session.id}", {"ttl_minutes": minutes}, session=session.id)

    def delete(self):
        if self.sessions and (len(self.sessions) > 2 or self.random.random() < 0.3):
            self.delete_one(self.any_session())

    def delete_one(self, session):
        status, _ = self.ask("delete", "DELETE", f"{SESSIONS}/{session.id}", session=session.id)
        if status in (200, 404):
            self.forget(session)
            self.ask("get", "GET", f"{SESSIONS}/{session.id}", session=session.id)
        return status

    def cancel(self):
        session = self.any_session()
        if session and session.tasks:
            task = session.tasks[-1]
            self.ask("cancel", "DELETE", f"{TASKS}/{task}", session=session.id, task=task)

    def read_old(self):
        tasks = self.ended_tasks + [task for session in self.sessions for task in session.tasks]
        if tasks:
            self.readers.put(self.caller, self.random.choice(tasks), self.random.getrandbits(32))

    def all_tasks(self):
        return self.ended_tasks + [task for session in self.sessions for task in session.tasks]

    # --- the day's work

    def run(self):
        operations, weights = zip(*self.operations)
        try:
            while not self.done.is_set():
                self.random.choices(operations, weights)[0]()
                self.done.wait(self.random.random() * 0.2)
        except Exception:  # the run says so, and fails
            self.error = traceback.format_exc()


class Readers:
    """Threads that read the frames of tasks, in any of the three forms, cut off and coming again."""

    def __init__(self, n, journal):
        self.journal = journal
        self.todo = queue.Queue()
        self.threads = [threading.Thread(target=self.run, name=f"reader{i}", daemon=True) for i in range(n)]
        self.numbers = iter(range(1 << 30))
        self.done = False
        for thread in self.threads:
            thread.start()

    def put(self, caller, task, seed):
        self.todo.put((caller, task, seed))

    def finish(self, timeout):
        """Whoever reads reads on, to the end of its task."""
        self.done = True
        for _ in self.threads:
            self.todo.put(None)
        end = time.monotonic() + timeout
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
        return [thread.name for thread in self.threads if thread.is_alive()]

    def run(self):
        while (work := self.todo.get()) is not None:
            caller, task, seed = work
            chance = random.Random(seed)
            after, n_tries = 0, 0
            while n_tries < 60:
                cut = chance.choice([0, 0, chance.randint(1, 6)])
                after, over = read_once(self.journal, caller, task, after, chance.choice(wire.READERS),
                                        next(self.numbers), cut)
                if over:
                    break
                n_tries += 1
                time.sleep(0.2 if cut else 0.5)


def read_once(journal, caller, task, after, form, number, cut=0):
    """One connection; cut: leave after so many frames. (last number seen, is there no more)."""
    how, last, frames = "end", after, []
    over = False
    started = time.time()
    try:
        for status, text in form(caller, task, after):
            if status != 200:
                how = f"status {status}"
                over = status in (1000, 404)
                continue
            frame = json.loads(text)
            frames.append(frame)
            last = frame.get("seq", last)
            if frame.get("stage") in ("done", "error"):
                over = True
            if cut and len(frames) >= cut and not over:
                how = "left"
                break
    except wire.Broken as error:
        how = f"broken {error!r}"
    except ValueError as error:
        how = f"no JSON: {error}"
    journal.write("read", reader=number, form=form.__name__, task=task, after=after, started=started, how=how,
                  frames=frames)
    return last, over
