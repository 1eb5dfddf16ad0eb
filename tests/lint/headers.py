#!/usr/bin/env python3
"""Each header compiles alone. usage: headers.py BUILD; names come NUL separated on stdin."""
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

# Whose headers lie in a folder of their own.
LIBRARIES = ["hiredis", "libpq"]
FLAGS = shlex.split(subprocess.run(["pkg-config", "--cflags", *LIBRARIES], capture_output=True, text=True,
                                   check=True).stdout)


def compile_alone(file, build):
    command = ["gcc", "-std=gnu17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE",
               '-DSANDBOXD_VERSION="0"', "-I.", "-Iinclude", "-Itests/lib", f"-I{build}/generated",
               *FLAGS, "-x", "c", "-"]
    text = f'#include "{file}"\n#include "{file}"\n'
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def main():
    files = [name for name in sys.stdin.read().split("\0") if name]
    with ThreadPoolExecutor(2) as pool:
        bad = [text for text in pool.map(lambda f: compile_alone(f, sys.argv[1]), files) if text]
    print("".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
