#!/usr/bin/env python3
"""Turn a suite's JUnit report into "passed failed skipped".

usage: tally.py ctest|pytest FILE STATUS

A cmocka program is one ctest case: its cases are counted from its output. A report that is missing,
or a non-zero status that no counted failure explains, counts as one failure.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree

CMOCKA = re.compile(r"^\[ *(OK|FAILED|SKIPPED) *\] (\S+)", re.MULTILINE)


def count_cmocka(text):
    """Results of one program by case name; its summary repeats the names of failed cases."""
    results = {}
    for result, name in CMOCKA.findall(text):
        if not name.isdigit() and not name.endswith(":"):
            results[name] = result
    values = list(results.values())
    return values.count("OK"), values.count("FAILED"), values.count("SKIPPED")


def count_case(case, kind):
    failed = case.find("failure") is not None or case.find("error") is not None
    skipped = case.find("skipped") is not None or case.get("status") in ("disabled", "notrun")
    if kind == "ctest":
        output = "".join(node.text or "" for node in case.iter("system-out"))
        passed_n, failed_n, skipped_n = count_cmocka(output)
        if passed_n + failed_n + skipped_n > 0:
            return passed_n, max(failed_n, int(failed)), skipped_n
    if failed:
        return 0, 1, 0
    return (0, 0, 1) if skipped else (1, 0, 0)


def main():
    kind, path, status = sys.argv[1], sys.argv[2], int(sys.argv[3])
    total = [0, 0, 0]
    try:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            for i, n in enumerate(count_case(case, kind)):
                total[i] += n
    except (OSError, ElementTree.ParseError):
        status = status or 1
    if status != 0 and total[1] == 0:
        total[1] = 1
    print(*total)


if __name__ == "__main__":
    main()
