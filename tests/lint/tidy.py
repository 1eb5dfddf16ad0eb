#!/usr/bin/env python3
"""clang-tidy over our sources, remembering clean files.

usage: tidy.py BUILD; names come NUL separated on standard input. A file is clean as long as it, the
headers of ours that it includes, the settings and its compile command are the same.
"""
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def read(path):
    return Path(path).read_bytes()


def entries_of(build):
    """One for each file: what is compiled again for another libc is looked at once, with glibc's."""
    found = {}
    for entry in json.loads(read(f"{build}/compile_commands.json")):
        found.setdefault(str(Path(entry["file"]).resolve()), entry)
    return found


def commands(build):
    return {file: entry["command"] for file, entry in entries_of(build).items()}


def filtered(build, cache):
    """The compile commands without the flags that only gcc knows."""
    entries = list(entries_of(build).values())
    for entry in entries:
        for flag in (" -ftrivial-auto-var-init=zero", " -fzero-call-used-regs=used-gpr"):
            entry["command"] = entry["command"].replace(flag, "")
    (cache / "compile_commands.json").write_text(json.dumps(entries))


INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def closure(file):
    """The file and every header of ours that it includes, directly or not."""
    seen, todo = {}, [Path(file)]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen[path] = read(path)
        for name in INCLUDE.findall(seen[path]):
            name = name.decode()
            places = (Path(name), Path("include") / name, path.parent / name)
            todo += [place for place in places if place.is_file()][:1]
    return seen


def key_of(file, command):
    digest = hashlib.sha256(read(".clang-tidy") + command.encode())
    for path, text in sorted(closure(file).items()):
        digest.update(str(path).encode() + b"\0" + text)
    return digest.hexdigest()


def main():
    build = sys.argv[1]
    known = commands(build)
    cache = Path(build) / "lint-tidy"
    cache.mkdir(exist_ok=True)
    filtered(build, cache)
    todo = []
    for file in sys.stdin.read().split("\0"):
        path = str(Path(file).resolve())
        if not file or file.startswith("tests/") or path not in known:
            continue
        key = key_of(file, known[path])
        if not (cache / key).exists():
            todo.append((file, key))

    def tidy(item):
        file, key = item
        done = subprocess.run(["clang-tidy-14", "--quiet", "-p", str(cache),
                               "--extra-arg=-Wno-unknown-warning-option", file],
                              capture_output=True, text=True, check=False)
        if done.returncode == 0:
            (cache / key).touch()
            return ""
        return done.stdout

    with ThreadPoolExecutor(2) as pool:
        bad = [text for text in pool.map(tidy, todo) if text]
    print("".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
