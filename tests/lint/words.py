#!/usr/bin/env python3
"""Words that have no place in the tree. File names come NUL separated on standard input."""
import re
import sys

# Written apart so that this file does not find itself.
OPEN_POINTS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b(?!\(#\d+\))")
MACHINE_PATHS = re.compile(r"/wo" r"rk/|/home/\w+/|\bsha" r"red/(reference|spec|samples|DESIGN)")
LICENCE_FREE = (".tsv", ".png")


def main():
    bad = []
    for file in sys.stdin.read().split("\0"):
        if not file or file.endswith(LICENCE_FREE):
            continue
        try:
            with open(file, encoding="utf-8") as source:
                lines = source.read().splitlines()
        except UnicodeDecodeError:
            continue  # test data
        for number, line in enumerate(lines, 1):
            if OPEN_POINTS.search(line) and "mkt" "emp" not in line and ".X" "XX" not in line:
                bad.append(f"{file}:{number}: an open point without an issue's number")
            if MACHINE_PATHS.search(line):
                bad.append(f"{file}:{number}: a path of one machine")
    print("\n".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
