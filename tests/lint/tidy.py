#!/usr/bin/env python3
"""clang-tidy over our sources, remembering clean files.

usage: tidy.py BUILD; names come NUL separated on standard input. A file is clean as long as it, any
of our headers, the settings and its compile command are the same.
"""
import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def read(path):
    return Path(path).read_bytes()


def commands(build):
    found = {}
    for entry in json.loads(read(f"{build}/compile_commands.json")):
        found[str(Path(entry["file"]).resolve())] = entry["command"]
    return found


def filtered(build, cache):
    """The compile commands without the flags that only gcc knows."""
    entries = json.loads(read(f"{build}/compile_commands.json"))
    for entry in entries:
        for flag in (" -ftrivial-auto-var-init=zero", " -fzero-call-used-regs=used-gpr"):
            entry["command"] = entry["command"].replace(flag, "")
    (cache / "compile_commands.json").write_text(json.dumps(entries))


def common_hash():
    digest = hashlib.sha256(read(".clang-tidy"))
    for pattern in ("base/**/*.h", "include/**/*.h", "policy/**/*.h", "supervisor/**/*.h",
                    "shim/**/*.h", "jail/**/*.h", "ctl/**/*.h"):
        for path in sorted(Path(".").glob(pattern)):
            digest.update(str(path).encode() + b"\0" + read(path))
    return digest.digest()


def main():
    build = sys.argv[1]
    known = commands(build)
    cache = Path(build) / "lint-tidy"
    cache.mkdir(exist_ok=True)
    filtered(build, cache)
    common = common_hash()
    todo = []
    for file in sys.stdin.read().split("\0"):
        path = str(Path(file).resolve())
        if not file or file.startswith("tests/") or path not in known:
            continue
        key = hashlib.sha256(common + known[path].encode() + read(file)).hexdigest()
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
