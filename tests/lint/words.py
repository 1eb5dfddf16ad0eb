#!/usr/bin/env python3
"""Words that have no place in the tree. File names come NUL separated on standard input."""
import re
import sys

# Written apart so that this file does not find itself.
OPEN_POINTS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b(?!\(#\d+\))")
MACHINE_PATHS = re.compile(
    r"/wo" r"rk/|/home/\w+/|/Us" r"ers/\w+/|[A-Z]:\\+Us" r"ers\b|\bsha" r"red/(reference|spec|samples|DESIGN)")
# Packages come from where the host's own clients take them. A server of them is known by its name, in
# an address, or by the setting that names it. Names that RFC 2606 keeps for examples are nobody's.
EXAMPLE = r"(?![\w.-]*\.(?:example|test|invalid)\b)(?![\w.-]*\bexample\.(?:com|net|org)\b)"
PACKAGE_SERVERS = re.compile(
    rf"(?i)\w://(?:[^/\s\"'@]*@)?{EXAMPLE}[\w.-]*(?:pypi|pythonhosted|npm|registry|artifact|nexus|devpi|verdaccio|conda|"
    r"goproxy|proxy\.golang|maven|crates|debian|ubuntu|mirror|packages)[\w-]*\.[\w.-]+(?!/POM/)(?=[/:\s\"'<>)]|$)")
PACKAGE_SETTINGS = re.compile(
    rf"(?i)(?:index-url|trusted-host|find-links|goproxy|--registry|npm_config_registry|(?:pip|uv)_\w*(?:url|host|links))"
    rf"[=\s]+[\"']?(?:\w+://)?{EXAMPLE}[\w-]+(?:\.[\w-]+)+")
MERGE_MARK = re.compile(r"[<>]{7} ")
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
            if PACKAGE_SERVERS.search(line) or PACKAGE_SETTINGS.search(line):
                bad.append(f"{file}:{number}: a server of packages")
            if MERGE_MARK.match(line):
                bad.append(f"{file}:{number}: a merge that was not finished")
    print("\n".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
