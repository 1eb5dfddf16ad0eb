#!/usr/bin/env python3
"""What the documents name is there. Names of all files come NUL separated on standard input.

A word between backticks is a name where it begins with a folder of ours, or is one of a C file; the end of
a path is enough of one: `http/auth.c`. The target of a link is a path from the document's own folder.
"""
import re
import sys
from pathlib import PurePosixPath

CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
NAME = re.compile(r"(?:[\w.-]+/)*[\w.-]+\.[ch]|([\w-]+)(?:/[\w.-]+)+/?")
MADE = ("build",)  # by a build


def names(line, folders):
    for code in CODE.findall(line):
        for word in code.split():
            word = word.strip("(),;:'\"")
            match = NAME.fullmatch(word)
            if match and (match.group(1) is None or match.group(1) in folders):
                yield word.rstrip("/")


def main():
    files = [name for name in sys.stdin.read().split("\0") if name]
    paths = {str(path) for name in files for path in (PurePosixPath(name), *PurePosixPath(name).parents)}
    tails = {"/".join(parts[i:]) for parts in (path.split("/") for path in paths) for i in range(len(parts))}
    folders = {name.split("/")[0] for name in files if "/" in name} - set(MADE)
    bad = []
    for file in files:
        if not file.endswith(".md"):
            continue
        here = PurePosixPath(file).parent
        with open(file, encoding="utf-8") as source:
            for number, line in enumerate(source, 1):
                bad += [f"{file}:{number}: {name} is not there" for name in names(line, folders)
                        if name not in tails and f"{name}.c" not in tails]
                bad += [f"{file}:{number}: the link to {name} leads nowhere" for name in LINK.findall(line)
                        if str(here / name) not in paths]
    print("\n".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
