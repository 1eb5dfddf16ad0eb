#!/usr/bin/env python3
"""Every row of docs/THREATS.md: attacked, with the layer named, its control and its second line.
Those that a root command could make more of are attacked once more as one: B1r beside B1.

usage: suite.py [ROW...]     SANDBOX_BUILD: a build with test hooks (default build/debug)
The last line is "N passed, N failed, N skipped".
"""
import sys
import time

import rows_a  # noqa: F401
import rows_b  # noqa: F401
import rows_ce  # noqa: F401
import rows_files  # noqa: F401
import rows_git  # noqa: F401
import rows_images  # noqa: F401
import rows_root  # noqa: F401
import rows_snapshots  # noqa: F401
import rows_templates  # noqa: F401
from places import Daemons
from table import NO_CONTROL_MAX, NOT_YET, ROWS, line, row_names, run_row

# A fault, and the rows that have to see it.
PLANTS = {
    "syscall-allowed": ("B7", "B9"),
    "mount-writable": ("B5",),
    "cap-kept": ("A10",),
    "root-cap-kept": ("A10r",),
    "fd-leaked": ("A2",),
    "ids-shared": ("B16",),
    # Before ABI 5 no rule is about ioctl, and B8 sees nothing of it.
    "landlock-wide": ("B8", "A10"),
}


def names():
    """The rows, each with its second run as a root command where it has one."""
    for name in row_names():
        yield name
        if f"{name}r" in ROWS:
            yield f"{name}r"


def main():
    wanted = sys.argv[1:]
    unknown = [name for name in wanted if name not in ROWS and name not in PLANTS]
    if unknown:
        sys.exit(f"no such row: {' '.join(unknown)}")
    daemons = Daemons()
    passed = failed = 0
    tests, problems = {}, []
    for name in names():
        if name not in ROWS or (wanted and name not in wanted):
            continue
        started = time.monotonic()
        tests[name] = run_row(name, daemons)
        print(f"  {name}: {time.monotonic() - started:.1f} s", file=sys.stderr)
        for text in tests[name].problems:
            print(f"  {name}: FAILED {text}", file=sys.stderr)
        failed += bool(tests[name].problems)
        passed += not tests[name].problems
        problems += [f"{name}: {text}" for text in tests[name].problems]
    planted = {}
    for plant, rows in PLANTS.items():
        if wanted and plant not in wanted:
            continue
        # A row that is red by itself sees nothing.
        rows = [name for name in rows if name not in tests or not tests[name].problems]
        red = [name for name in rows if run_row(name, daemons, plant, controls=False).problems]
        planted[plant] = red
        passed += bool(red)
        failed += not red
        if not red:
            problems.append(f"planted {plant}: no row of {' '.join(rows)} turned red")
    left = daemons.done()
    problems += left
    failed += bool(left)

    print(f"{'row':4} {'':4} {'attack':58} {'expected':26} {'stopped by':30} "
          f"{'second line (steps seen alone)':34} control")
    for name in names():
        if name in tests or not wanted:
            print(line(name, tests.get(name)))
    if not wanted:
        missing = [name for name in row_names() if name not in tests and name not in NOT_YET]
        if missing:
            problems.append(f"rows without a test: {' '.join(missing)}")
            failed += 1
    without = [name for name, test in tests.items() if ROWS[name].control is None]
    print(f"\nwithout a control, at most {NO_CONTROL_MAX}: {' '.join(without) or 'none'}")
    if len(without) > NO_CONTROL_MAX:
        problems.append("too many rows without a control")
        failed += 1
    for name, test in tests.items():
        for why in test.without:
            print(f"  {name}: {why}")
    for plant, red in planted.items():
        print(f"planted {plant}: {'red in ' + ' '.join(red) if red else 'NOT SEEN'}")
    for text in problems:
        print(f"FAILED {text}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed != 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
