#!/usr/bin/env python3
"""Every cited row of docs/THREATS.md exists, and no row is missing or doubled."""
import re
import sys

ROW = re.compile(r"^\| ([A-E]\d+) \|", re.MULTILINE)
CITED = re.compile(r"\(([A-E]\d{1,2}(?:, ?[A-E]\d{1,2})*)\)")
LAST = {"A": 28, "B": 24, "C": 11, "D": 14, "E": 11}


def main():
    with open("docs/THREATS.md", encoding="utf-8") as table:
        rows = ROW.findall(table.read())
    wanted = [f"{group}{n}" for group, last in LAST.items() for n in range(1, last + 1)]
    bad = [f"docs/THREATS.md: row {row} is missing" for row in wanted if row not in rows]
    bad += [f"docs/THREATS.md: row {row} occurs twice" for row in set(rows) if rows.count(row) > 1]
    for file in sys.stdin.read().split("\0"):
        if not file:
            continue
        with open(file, encoding="utf-8") as source:
            for number, line in enumerate(source, 1):
                for group in CITED.findall(line):
                    bad += [f"{file}:{number}: no row {row} in docs/THREATS.md"
                            for row in re.split(", ?", group) if row not in rows]
    print("\n".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
