#!/usr/bin/env python3
"""The rows D of docs/THREATS.md: attacked from a session, counted on the outside, with the control.

usage: suite.py [ROW...]     SANDBOX_BUILD: a build with test hooks (default build/debug)
The last line is "N passed, N failed, N skipped".
"""
import subprocess
import sys
import time
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[1] / suite) for suite in ("escape", "integration")]
from table import ROWS, line, row_names, run_row  # noqa: E402
import rows_names  # noqa: E402,F401
import rows_traffic  # noqa: E402,F401
from sessions import EgressTest, Services  # noqa: E402
from world import Outside  # noqa: E402
from egress_rig import NAME_SERVER  # noqa: E402

# With the worker that always says yes these have to turn red: the suite sees what it looks for.
PLANTED = ("D1", "D5", "D14")
WANTED = [name for name in row_names() if name.startswith("D") and name != "D12"]


def run(wanted):
    world = Outside()
    resolver = Path(world.folder.name) / "resolv.conf"
    resolver.write_text(f"nameserver {NAME_SERVER}\noptions timeout:2 attempts:1\n")
    subprocess.run(["mount", "--bind", resolver, "/etc/resolv.conf"], check=True)
    services = Services(world)
    tests = {}
    try:
        for name in wanted:
            started = time.monotonic()
            tests[name] = run_row(name, services, kind=EgressTest)
            print(f"  {name}: {time.monotonic() - started:.1f} s", file=sys.stderr)
        red = [name for name in PLANTED if name in tests and not tests[name].problems
               and run_row(name, services, "yes", controls=False, kind=EgressTest).problems]
        left = services.done()
    finally:
        subprocess.run(["umount", "-l", "/etc/resolv.conf"], check=True)
        world.close()
    return tests, left, red


def main():
    unknown = [name for name in sys.argv[1:] if name not in ROWS]
    if unknown:
        sys.exit(f"no such row: {' '.join(unknown)}")
    wanted = sys.argv[1:] or WANTED
    missing = [name for name in wanted if name not in ROWS]
    tests, left, red = run([name for name in wanted if name in ROWS])
    problems = [f"{name}: {text}" for name, test in tests.items() for text in test.problems]
    problems += left + [f"{name}: no test" for name in missing]
    unseen = [name for name in PLANTED if name in tests and name not in red]
    problems += [f"{name}: a check that always says yes was not seen" for name in unseen]
    failed = sum(bool(test.problems) for test in tests.values()) + bool(left) + bool(missing) + bool(unseen)
    print(f"{'row':4} {'':4} {'attack':58} {'expected':26} {'stopped by':30} "
          f"{'second line (steps seen alone)':34} control")
    for name, test in tests.items():
        print(line(name, test))
        for text in test.counted:
            print(f"       outside: {text}")
        for why in test.without:
            print(f"       without a control: {why}")
    print(f"\na check that always says yes: red in {' '.join(red) or 'none'}")
    for text in problems:
        print(f"FAILED {text}")
    print(f"{len(tests) - sum(bool(t.problems) for t in tests.values())} passed, {failed} failed, 0 skipped")
    return failed != 0 or not tests


if __name__ == "__main__":
    sys.exit(main())
