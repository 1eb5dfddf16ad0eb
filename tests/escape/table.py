"""Rows of docs/THREATS.md: what each test says of itself, and what came of it."""
import re
import traceback
from pathlib import Path

THREATS = Path(__file__).resolve().parents[2] / "docs" / "THREATS.md"
NO_CONTROL_MAX = 12

NOT_YET = {
    "D12": "no such feature",
    **{f"D{n}": "tested by tests/run egress" for n in (*range(1, 12), 13, 14)},
    **{row: "needs an engine: tests/integration/test_docker.py" for row in ("C9", "C10")},
    "C11": "needs a remote service: tests/integration/test_remote.py",
    **{row: "not yet: Runtime" for row in ("E2", "E7")},
}


class Wrong(Exception):
    pass


class Row:
    def __init__(self, name, attack, stopped, second, control, run, as_root=False):
        self.name = name
        self.attack = attack
        self.stopped = stopped
        self.second = second
        self.control = control
        self.run = run
        self.as_root = as_root


ROWS = {}


def row(name, attack, stopped, second="–", control="outside"):
    """Register a test of one row. `control` None: it cannot have one here, t.no_control says why."""
    def register(function):
        ROWS[name] = Row(name, attack, stopped, second, control, function)
        return function
    return register


def again_as_root(name):
    """A second row of the same test: what t.attacker() makes attacks by root commands."""
    made = ROWS[name]
    ROWS[f"{name}r"] = Row(f"{name}r", f"{made.attack}, as root", made.stopped, made.second, made.control,
                           made.run, as_root=True)


class Test:
    """One run of a row: collects what is wrong instead of stopping at the first."""

    def __init__(self, daemons, off="", plant="", controls=True, as_root=False):
        self.daemons = daemons
        self.as_root = as_root
        self.plant = plant
        self.daemon = daemons.get(off, plant)
        self.controls = controls
        self.problems = []
        self.expected = []
        self.control_steps = 0
        self.without = []
        self.second_steps = 0
        self.sessions = []

    def wrong(self, text):
        self.problems.append(text)

    def check(self, truth, text):
        if not truth:
            self.wrong(text)

    def _compare(self, what, got, want, excused=()):
        if not got:
            self.wrong(f"{what}: no result")
        n = 0
        for step, result in got.items():
            wanted = want if isinstance(want, str) else want.get(step, want.get("*"))
            if wanted is None:
                self.wrong(f"{what}: {step}: {result}, nothing was expected")
            elif step in excused:
                continue
            elif result not in wanted.split("|"):
                self.wrong(f"{what}: {step}: {result} instead of {wanted}")
            else:
                n += 1
        if isinstance(want, dict):
            for step in want:
                if step != "*" and step not in got:
                    self.wrong(f"{what}: {step} was not tried")
        return n

    def refused(self, got, want):
        """Inside: every step ends as it is expected to, by name."""
        for value in [want] if isinstance(want, str) else want.values():
            for name in value.split("|"):
                if name not in self.expected:
                    self.expected.append(name)
        self._compare("inside", got, want)

    def succeeds(self, got, want="ok", cannot=None):
        """The control: every step works, but for those that this kernel answers otherwise."""
        cannot = cannot or {}
        for step, answer in cannot.items():
            if got.get(step) != answer:
                self.wrong(f"control: {step}: {got.get(step)} instead of {answer}")
            else:
                self.without.append(f"{step}: {answer}")
        self.control_steps += self._compare("control", got, want, cannot)

    def worked(self, truth, text):
        if truth:
            self.control_steps += 1
        else:
            self.wrong(f"control: {text}")

    def no_control(self, why):
        self.without.append(why)

    def holds(self, got, want):
        """One layer off: what the next one answers."""
        self.second_steps += self._compare("second line", got, want)

    def session(self, off=None, **more):
        """A session of the test's daemon, or of one with a layer left away."""
        from places import Session
        daemon = self.daemon if off is None else self.daemons.get(off)
        made = Session(daemon.client("alice", workspace="blue"), **more)
        self.sessions.append(made)
        return made

    def root(self, off=None):
        """As session(), whose attacks are root commands."""
        return self.session(off, agent=True, user="root")

    def attacker(self, off=None):
        return self.root(off) if self.as_root else self.session(off)

    def end(self):
        for made in self.sessions:
            try:
                made.remove()
            except OSError as error:
                self.wrong(f"remove: {error}")


def run_row(name, daemons, plant="", controls=True, kind=Test):
    test = kind(daemons, plant=plant, controls=controls, as_root=ROWS[name].as_root)
    try:
        ROWS[name].run(test)
    except Exception as error:  # noqa: BLE001  whatever a broken row says, the others still run
        last = traceback.extract_tb(error.__traceback__)[-1]
        test.wrong(f"{type(error).__name__}: {error} ({last.name}:{last.lineno})"[:400])
    test.end()
    if controls and ROWS[name].control is not None and test.control_steps == 0:
        test.wrong("no control succeeded: not counted")
    if controls and ROWS[name].control is None and not test.without:
        test.wrong("no control, and no reason")
    return test


def row_names():
    return re.findall(r"^\| ([A-E]\d+) \|", THREATS.read_text(encoding="utf-8"), re.MULTILINE)


def line(name, test):
    if test is None:
        return f"{name:4} {NOT_YET.get(name, 'not yet: ?')}"
    made = ROWS[name]
    if made.control is None:
        control = "none: " + (test.without or ["no reason given"])[0]
    else:
        control = f"{made.control}: {test.control_steps} succeed"
        if test.without:
            control += f", {len(test.without)} cannot"
    second = f"{made.second} ({test.second_steps})" if test.second_steps else made.second
    status = "FAIL" if test.problems else "ok"
    return (f"{name:4} {status:4} {made.attack:58.58} {' '.join(test.expected):26.60} "
            f"{made.stopped:30.40} {second:34.44} {control}")
