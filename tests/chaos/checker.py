"""Compares what clients were told with what is there. Takes records and rows, gives complaints.

It knows the interface and the documents, and nothing of how the service does it.
"""
import collections
import datetime
import json
from collections import defaultdict

TERMINAL = ("done", "error")
GRACE = 90          # seconds after its expiry in which a session may still be there
RECOVERY = 30       # seconds after an outage of the store in which it may still be degraded
HOLDERS = ("sandboxd-api", "supervisor")  # with whom goes what the store has not taken
OUTAGES = ("postgres", "state", "sandboxd-api", "supervisor")


def when(text):
    """Seconds of a naive time in UTC."""
    moment = datetime.datetime.fromisoformat(text.rstrip("Z").replace(" ", "T"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp()


class Promise:
    """Something that a client was told. Fragile: with `persisted: false`."""

    def __init__(self, t, fragile):
        self.t = t
        self.fragile = fragile


class Component:
    def __init__(self):
        self.bodies = [None]  # what it may be; None: not there
        self.promise = None   # of the last one that was acknowledged
        self.told = 0         # where in bodies that one is

    def settle(self):
        """What was before the last one that was acknowledged comes no more."""
        self.bodies = self.bodies[self.told:]
        self.told = 0


class Session:
    def __init__(self, session_id, name, promise):
        self.id = session_id
        self.name = name
        self.promise = promise
        self.components = defaultdict(Component)
        self.expiries = []
        self.ttl_asked = None   # since when a change is under way of which nothing was heard
        self.delete_asked = None
        self.deleted = None     # when that was acknowledged
        self.delete_fragile = False
        self.lost = False       # it was fragile, and its holder died
        self.promises = [promise]
        self.keys = {}

    def may_be_gone(self, now):
        # The service's clock is ours; a second for what lies between two looks at it.
        return bool(self.delete_asked or self.lost or
                    (self.expiries and now >= min(self.expiries) - 1))

    def must_be_gone(self, now):
        if self.deleted and not self.delete_fragile:
            return True
        return bool(self.expiries and now > max(self.expiries) + GRACE)


class Checker:
    def __init__(self, records, faults):
        self.records = collections.deque(sorted(records, key=lambda record: record["t"]))
        self.complaints = []
        self.sessions = {}
        self.tasks = {}        # id → (session id, Promise)
        self.queued = set()    # ids of what was put into the queue; a crash may lose it
        self.frames = defaultdict(dict)  # task → seq → frame, as readers saw it
        self.names_in_doubt = set()
        self.executes_in_doubt = defaultdict(int)
        self.kills = sorted(f["t"] for f in faults
                            if f["kind"] == "fault" and f["what"] == "kill" and f["target"] in HOLDERS)
        self.outages = self.outages_of(faults)
        self.n_operations = defaultdict(int)
        self.n_answers = defaultdict(int)
        self.n_redis = {True: 0, False: 0}  # writes of sessions: taken, refused

    @staticmethod
    def outages_of(faults):
        """(from, to) in which the store may have refused."""
        found, begun = [], {}
        for fault in faults:
            if fault["target"] not in OUTAGES:
                continue
            if fault["kind"] == "fault":
                begun[fault["target"]] = fault["t"]
                if fault["what"] == "kill" and fault["target"] in HOLDERS:
                    found.append((fault["t"] - 1, fault["t"] + RECOVERY))
            elif fault["target"] in begun:
                found.append((begun.pop(fault["target"]) - 1, fault["t"] + RECOVERY))
        return found

    def complain(self, code, text):
        self.complaints.append((code, text))

    def in_outage(self, start, end):
        return any(begin <= end and start <= over for begin, over in self.outages)

    def may_be_lost(self, promise, now):
        return promise.fragile and any(promise.t - 1 <= kill <= now for kill in self.kills)

    # --- the journals, in the order of time

    def follow(self, until):
        while self.records and self.records[0]["t"] <= until:
            record = self.records.popleft()
            kind = record["kind"]
            if kind == "ask":
                self.n_operations[record["op"]] += 1
                self.asked(record)
            elif kind == "lost":
                self.n_answers["none"] += 1
                self.unanswered(record)
            elif kind == "told":
                self.n_answers[str(record["status"])] += 1
                self.told(record)
            elif kind == "read":
                self.read(record)

    def asked(self, record):
        session = self.sessions.get(record.get("session"))
        if record["op"] == "delete" and session:
            session.delete_asked = session.delete_asked or record["t"]
        if record["op"] == "write" and session:
            session.components[record["file"]].bodies.append(record["sha"])
        if record["op"] == "redis" and session:
            session.keys.setdefault(record["key"], [""]).append(record["value"])
        if record["op"] == "ttl" and session:
            session.ttl_asked = record["t"]
        if record["op"] == "queue":
            self.queued.add(record["task"])

    def unanswered(self, record):
        if "timed out" in record["error"]:
            self.complain("hung", f"{self.name(record)}: no answer")
        if record["op"] == "create":
            self.names_in_doubt.add(record["name"])
        if record["op"] == "execute":
            self.executes_in_doubt[record["session"]] += 1
        if record["op"] in ("echo", "count", "big", "cat", "redis"):
            self.command_output(record, complete=False)

    @staticmethod
    def name(record):
        return f"client {record['client']}, request {record['n']} ({record['op']})"

    def told(self, record):
        op, status = record["op"], record["status"]
        session = self.sessions.get(record.get("session"))
        if status >= 500 and status != 503:
            self.complain("status", f"{self.name(record)}: {status} {record.get('body')}")
        if session and status == 404:
            self.not_found(session, record)
            return
        if session and session.must_be_gone(record["t"]) and status < 400 and op != "delete":
            self.complain("back", f"{self.name(record)}: {session.id} was gone, and is there again")
        getattr(self, "told_" + op, lambda *_: None)(record, session)

    def not_found(self, session, record):
        if session.may_be_gone(record["t"]):
            return
        if self.may_be_lost(session.promise, record["t"]):
            session.lost = True
            return
        self.complain("session lost", f"{self.name(record)}: {session.id} is not found")

    def note_persisted(self, session, record, persisted):
        """What is known to be persisted is promised from then on."""
        if not persisted:
            return
        for promise in session.promises:
            promise.fragile = False
        for component in session.components.values():
            component.settle()
        session.promises = [session.promise]

    def told_create(self, record, _):
        if record["status"] != 201:
            if record["status"] == 503:
                self.names_in_doubt.add(record["name"])
            return
        body = record["body"]
        persisted = body["sandbox"]["persisted"]
        if persisted == record["degraded"]:
            self.complain("persisted", f"{self.name(record)}: persisted {persisted}, degraded {record['degraded']}")
        session = Session(body["id"], record["name"], Promise(record["t"], not persisted))
        session.expiries = [when(body["expires_at"])]
        self.sessions[body["id"]] = session

    def told_write(self, record, session):
        if not session:
            return
        component = session.components[record["file"]]
        if record["status"] != 200:
            if record["status"] < 500:
                component.bodies.remove(record["sha"])
            return
        component.promise = Promise(record["t"], record["degraded"])
        session.promises.append(component.promise)
        component.told = component.bodies.index(record["sha"])
        if not record["degraded"]:
            component.settle()

    def told_ttl(self, record, session):
        session.ttl_asked = None
        if record["status"] == 200:
            expiry = when(record["body"]["expires_at"])
            session.expiries = [expiry] if not record["degraded"] else [*session.expiries, expiry]

    def told_get(self, record, session):
        if not session or record["status"] != 200:
            return
        body = record["body"]
        self.note_persisted(session, record, body["sandbox"]["persisted"])
        self.compare_names(session, record, set(body["components"]))
        expiry = when(body["expires_at"])
        if all(abs(expiry - known) > 0.01 for known in session.expiries):
            if session.ttl_asked is None:
                self.complain("expiry", f"{self.name(record)}: {session.id} has another expiry than was told")
            session.expiries.append(expiry)

    def compare_names(self, session, record, names):
        for file, component in session.components.items():
            if file in names:
                if component.bodies == [None]:
                    self.complain("component", f"{self.name(record)}: {session.id} has {file} that nobody wrote")
            elif None not in component.bodies and not self.may_be_lost(component.promise, record["t"]):
                self.complain("component lost", f"{self.name(record)}: {session.id} has no {file}")

    def told_execute(self, record, session):
        if record["status"] == 200:
            self.tasks[record["body"]["task_id"]] = (record["session"], Promise(record["t"], record["degraded"]))
        elif record["status"] >= 500:
            self.executes_in_doubt[record["session"]] += 1

    def told_delete(self, record, session):
        if session and record["status"] == 200:
            session.deleted = record["t"]
            session.delete_fragile = record["degraded"]
        if session and record["status"] >= 500 and not session.deleted:
            session.deleted, session.delete_fragile = record["t"], True

    # --- commands

    def told_echo(self, record, session):
        self.command_output(record, complete=True)

    told_count = told_big = told_echo

    def told_redis(self, record, session):
        self.command_output(record, complete=True)
        last = (record.get("events") or [{}])[-1]
        if session and record["status"] == 200 and record["out"] == "OK\n" and last.get("code") == 0:
            session.keys[record["key"]] = [record["value"]]
        self.n_redis[record["out"] == "OK\n"] += 1

    def command_output(self, record, complete):
        """A command's output comes whole or is a beginning; its end is told, or its answer breaks."""
        if record.get("status") != 200:
            return
        last = (record.get("events") or [{}])[-1]
        ended = last.get("type") in ("exit", "error")
        if complete and not ended:
            self.complain("command cut", f"{self.name(record)}: the answer ends and the command's end was not told")
        want = record.get("want")
        if want is None:
            if complete and last.get("code") == 0 and record.get("want_sha") not in (None, record["sha"]):
                self.complain("output", f"{self.name(record)}: {record['size']} bytes are not what it wrote")
            return
        if not want.startswith(record["out"]):
            self.complain("output", f"{self.name(record)}: {record['out']!r} is no part of {want!r}")
        elif complete and last.get("code") == 0 and record["out"] != want:
            self.complain("output", f"{self.name(record)}: exit 0, and {record['out']!r} of {want!r}")

    def told_cat(self, record, session):
        self.command_output(record, complete=True)
        last = (record.get("events") or [{}])[-1]
        if not session or record["status"] != 200 or "code" not in last:
            return
        component = session.components[record["file"]]
        if last["code"] == 0 and record["sha"] not in component.bodies:
            self.complain("component", f"{self.name(record)}: {session.id} {record['file']} is not as written")
        if last["code"] == 1 and None not in component.bodies and \
                not self.may_be_lost(component.promise, record["t"]):
            self.complain("component lost", f"{self.name(record)}: {session.id} has no file {record['file']}")

    # --- frames

    def read(self, record):
        seq = record["after"]
        task = record["task"]
        if record["how"].startswith("no JSON"):
            self.complain("frame", f"reader {record['reader']} of {task}: {record['how']}")
        if "timed out" in record["how"]:
            self.complain("hung", f"reader {record['reader']} of {task}: silent")
        if record["how"] == "status 404":
            known = self.tasks.get(task)
            if known and not self.may_be_lost(known[1], record["t"]):
                self.complain("task lost", f"reader {record['reader']}: {task} is not found")
        n_terminal = 0
        for frame in record["frames"]:
            if frame.get("task_id") != task:
                self.complain("frame", f"reader {record['reader']} of {task}: a frame of {frame.get('task_id')}")
            if frame["seq"] <= seq:
                self.complain("frame twice", f"reader {record['reader']} of {task}: number {frame['seq']} after {seq}")
            elif frame["seq"] != seq + 1:
                self.complain("frame missing", f"reader {record['reader']} of {task}: {frame['seq']} follows {seq}")
            if n_terminal:
                self.complain("terminal", f"reader {record['reader']} of {task}: a frame after the last one")
            n_terminal += frame["stage"] in TERMINAL
            seq = frame["seq"]
            self.same_frame(record, task, frame)

    def same_frame(self, record, task, frame):
        seen = self.frames[task].setdefault(frame["seq"], frame)
        if seen == frame:
            return
        # One that was shown while the store refused is made again if its holder dies.
        if self.in_outage(record["started"], record["t"]) and {**seen, "timestamp": 0} == {**frame, "timestamp": 0}:
            self.frames[task][frame["seq"]] = frame
            return
        self.complain("frame changed", f"{task}: number {frame['seq']} was {seen['stage']} "
                                       f"{seen['message']!r}, and is {frame['stage']} {frame['message']!r}")

    # --- the store, once nothing goes wrong any more and every task had its time

    def compare(self, rows, now, ended):
        """ended: every session was deleted."""
        sessions = {row["id"]: row for row in rows["sessions"]}
        components = {(row["session_id"], row["file"]): row["sha"] for row in rows["components"]}
        self.compare_sessions(sessions, now, ended)
        if not ended:
            self.compare_components(sessions, components, now)
        self.compare_tasks(rows, now)

    def compare_sessions(self, sessions, now, ended):
        for session in self.sessions.values():
            row = sessions.get(session.id)
            is_open = bool(row) and row["status"] in ("open", "running")
            if session.must_be_gone(now) and is_open:
                self.complain("row left", f"{session.id} was to be gone, its row is {row['status']}")
            if not is_open and not session.may_be_gone(now):
                if self.may_be_lost(session.promise, now):
                    session.lost = True
                else:
                    self.complain("session lost", f"{session.id} was promised, and has no open row")
        for row in sessions.values():
            if row["status"] not in ("open", "running"):
                continue
            # A create that was refused may leave a closed one.
            if row["id"] not in self.sessions and row["name"] not in self.names_in_doubt:
                self.complain("unknown row", f"{row['id']} is open, and was promised to nobody")
            if ended:
                self.complain("row left", f"{row['id']} is {row['status']} at the end")
            if row["restoring"]:
                self.complain("row left", f"{row['id']} is restoring, and nobody restores it")

    def compare_components(self, sessions, components, now):
        for session in self.sessions.values():
            row = sessions.get(session.id)
            if not row or row["status"] not in ("open", "running") or session.may_be_gone(now):
                continue
            for file, component in session.components.items():
                sha = components.get((session.id, file))
                if sha in component.bodies or self.may_be_lost_body(component, now):
                    continue
                self.complain("component lost" if sha is None else "component",
                              f"{session.id} {file}: the row is not as was told")

    def may_be_lost_body(self, component, now):
        return component.promise is not None and self.may_be_lost(component.promise, now)

    def compare_tasks(self, rows, now):
        tasks = {row["id"]: row for row in rows["tasks"]}
        frames = defaultdict(list)
        for row in rows["frames"]:
            frames[row["task_id"]].append(row)
        for task, (session, promise) in self.tasks.items():
            if task not in tasks and not self.may_be_lost(promise, now):
                self.complain("task lost", f"{task} of {session} was accepted, and has no row")
        unknown = defaultdict(int)
        for task, row in tasks.items():
            unknown[row["session_id"]] += task not in self.tasks and task not in self.queued
            if row["status"] not in TERMINAL:
                self.complain("task never ended", f"{task} of {row['session_id']} is {row['status']}")
            else:
                self.compare_frames(task, row, frames.get(task, []))
        for session, n in unknown.items():
            if n > self.executes_in_doubt[session] and session in self.sessions:
                self.complain("unknown task", f"{session} has {n} tasks that nobody asked for")
        self.compare_times(rows["tasks"])
        for row in rows["output"]:
            self.complain("output left", f"{row['task_id']} has ended, and its output is kept")

    def compare_times(self, tasks):
        """A session runs one task at a time."""
        ran = defaultdict(list)
        for row in tasks:
            if row["started_at"] and row["ended_at"]:
                ran[row["session_id"]].append((when(row["started_at"]), when(row["ended_at"]), row["id"]))
        for session, times in ran.items():
            times.sort()
            for (_, end, first), (start, _, second) in zip(times, times[1:]):
                if start < end - 0.001:
                    self.complain("ran at once", f"{session}: {second} began {end - start:.3f} s before {first} ended")

    def compare_frames(self, task, row, stored):
        numbers = [int(frame["seq"]) for frame in stored]
        if numbers != list(range(1, len(numbers) + 1)):
            self.complain("frame missing", f"{task}: the store has the numbers {numbers}")
        n_terminal = sum(frame["stage"] in TERMINAL for frame in stored)
        if n_terminal != 1 or stored[-1]["stage"] not in TERMINAL:
            self.complain("terminal", f"{task}: {n_terminal} last frames, at the end {stored[-1:]}")
        n_starts = sum(frame["stage"] == "start" for frame in stored)
        if n_starts > 1:
            self.complain("ran twice", f"{task}: {n_starts} start frames")
        for frame in stored:
            seen = self.frames[task].get(int(frame["seq"]))
            if seen is not None and seen != json.loads(frame["body"]):
                self.same_frame({"started": 0, "t": 0}, task, json.loads(frame["body"]))
        missing = set(self.frames[task]) - set(numbers)
        if missing:
            self.complain("frame lost", f"{task}: readers had {sorted(missing)}, the store has not")

    # --- what the host holds

    def compare_counts(self, before, after):
        for what, n in before.items():
            left = after.get(what) if after else None
            if left is None or (left > n + (8 if "descriptors" in what else 0)):
                self.complain(f"left over: {what}", f"{n} at the beginning, {left} at the end")

    def compare_values(self, values, now):
        for session in self.sessions.values():
            for key, wanted in session.keys.items():
                value = values.get(f"alphaswarm:sandbox:{session.id}:{key}", "")
                if value not in wanted and not session.may_be_gone(now):
                    self.complain("redis value", f"{session.id} {key} is {value!r}, and was told to be {wanted}")

    def compare_redis(self, users, keys):
        known = set(self.sessions)
        for name in users + keys:
            session = next((s for s in known if s in name), None)
            if session is None or self.sessions[session].deleted:
                self.complain("redis", f"left of a session that is gone: {name}")
