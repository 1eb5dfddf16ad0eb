#!/usr/bin/env python3
"""What our object files ask of libc, and which system calls their sources name.

usage: symbols.py BUILD; names of the sources come NUL separated on standard input.
Objects are looked at instead of programs: a static program holds all of libc's own calls.
"""
import re
import subprocess
import sys
from pathlib import Path

NOWHERE = {
    "strcpy", "strcat", "sprintf", "vsprintf", "strtok", "gets", "system", "popen", "vfork",
    "getpwnam", "getpwuid", "getpwnam_r", "getpwuid_r", "getgrnam", "getgrgid", "getgrnam_r",
    "getgrgid_r", "initgroups", "getaddrinfo", "gethostbyname", "pthread_create", "thrd_create",
    "atoi", "atol", "atoll", "strtol", "strtoul", "strtoll", "strtoull", "sscanf", "realpath",
    "mktemp", "tmpnam", "tempnam", "alloca", "rand", "srand", "setlocale", "dlopen",
}
SUPERVISOR = "supervisor"
CONFIG = "supervisor/config"
EGRESS = "supervisor/egress"
SHIM = "shim"
CTL = "ctl"
CANARY = "jail/canary"  # tries what must be refused
BASE = "base"
GIT = "jail/git"  # starts git
CONTAIN = "jail/contain"  # makes a shim in a container of a foreign engine
LOADER = "jail/loader"  # parses inside a session, where a component is
RESOLVERS = ("sandboxd-api", "sandboxd-egress", "sandboxd-provider", "sandboxd-s3")
# Of the policy compiler in test builds: runs the program that it watches.
LEARN = "policy/learn.c"
# symbol or system call → folders that may use it (see docs/ARCHITECTURE.md)
ONLY = {
    "clone3": {SUPERVISOR}, "clone": {SUPERVISOR, SHIM},
    # The egress worker's inspector, before anything has come from outside.
    "fork": {SUPERVISOR, SHIM, LEARN, EGRESS, GIT, CONTAIN},
    "mount": {SUPERVISOR}, "umount2": {SUPERVISOR}, "umount": {SUPERVISOR},
    "pivot_root": {SUPERVISOR}, "setns": {SUPERVISOR}, "unshare": {SUPERVISOR},
    # sandboxctl doctor only asks whether the kernel has a file system; it makes no mount.
    "fsopen": {SUPERVISOR, CTL}, "fsmount": {SUPERVISOR}, "fsconfig": {SUPERVISOR},
    "move_mount": {SUPERVISOR}, "open_tree": {SUPERVISOR}, "mount_setattr": {SUPERVISOR},
    "chroot": set(),
    "capset": {SUPERVISOR, SHIM, CONTAIN},
    # The configuration's reader becomes nobody where root runs it by hand.
    "setresuid": {SUPERVISOR, SHIM, CONFIG, CONTAIN}, "setresgid": {SUPERVISOR, SHIM, CONFIG, CONTAIN},
    "setgroups": {SUPERVISOR, SHIM, CONFIG, CONTAIN},
    "setuid": set(), "setgid": set(), "seteuid": set(), "setegid": set(),
    # The owner of a terminal is the file system id that opened it; the second gives it back.
    "setfsuid": {SHIM}, "setreuid": {SHIM},
    # sandboxctl becomes a program of ours (ctl/program.c).
    "execve": {SUPERVISOR, SHIM, CTL, GIT}, "execveat": {SUPERVISOR, SHIM, CONTAIN}, "execv": {SUPERVISOR},
    "execvp": {LEARN}, "execl": set(), "execlp": set(), "fexecve": {SUPERVISOR},
    "posix_spawn": set(), "ptrace": set(),
}
WRAPPERS = {"kernel_clone3": "clone3", "kernel_execveat": "execveat"}
CALL = re.compile(r"\b(?:SYS|__NR)_(\w+)\b|\b(kernel_\w+)\s*\(")


def folder_of(path):
    """The privilege class of a path: workers are no part of the supervisor."""
    for worker in ("supervisor/api", "supervisor/egress", "supervisor/config",
                   "supervisor/helper", "supervisor/provider", CANARY, GIT, CONTAIN):
        if path.startswith(worker + "/"):
            return worker
    return path if path == LEARN else path.split("/", 1)[0]


def object_symbols(path):
    output = subprocess.run(["nm", "-u", path], capture_output=True, text=True, check=True).stdout
    for line in output.split():
        name = line.split("@")[0]
        name = re.sub(r"^__isoc\d+_", "", name)
        match = re.match(r"^__(\w+)_chk$", name)
        yield match.group(1) if match else name


def check_programs(build):
    """libyaml is linked by two programs: one parses, in a session; the other only writes."""
    for path in sorted((Path(build) / "bin").glob("sandbox*")):
        names = set(object_symbols(path))
        for name in sorted(name for name in names if name.startswith("yaml_parser")):
            yield f"{path.name}: {name}: no YAML is parsed outside a session"
        if path.name not in RESOLVERS and any(name.startswith("ares_") for name in names):
            yield f"{path.name}: asks name servers"


def check_fake(build):
    """The provider of tests is in their own worker, and in no program of ours."""
    for path in [*sorted((Path(build) / "bin").glob("sandbox*")), Path(build) / "tests/unit/worker_fake"]:
        if not path.is_file():
            continue
        output = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
        defined = {words[-1] for words in map(str.split, output.splitlines()) if "U" not in words}
        if path.name in ("sandboxd-api", "worker_fake") and "provider_native" not in defined:
            yield f"{path.name}: has no symbols that could be looked at"
        if ("provider_fake" in defined) != (path.name == "worker_fake"):
            yield f"{path.name}: provider_fake is of the tests' worker, and of nothing else"


def check_objects(build):
    found = 0
    for path in sorted(Path(build).rglob("*.o")):
        relative = str(path.relative_to(build))
        source = re.sub(r"CMakeFiles/[^/]+\.dir/", "", relative)[:-2]
        if source.startswith(("tests/", "CMakeFiles/")) or not Path(source).exists():
            continue
        found += 1
        folder = folder_of(source)
        for name in sorted(set(object_symbols(path))):
            if name.startswith("yaml_parser") and not source.startswith(LOADER):
                yield f"{source}: {name} is for {LOADER}"
            if name in NOWHERE:
                yield f"{source}: {name} is not used in this project"
            elif name in ONLY and folder not in (*ONLY[name], CANARY):
                yield f"{source}: {name} is not for {folder}"
    if found == 0:
        yield f"{build}: no object files; build first"


def check_sources(files):
    for file in files:
        if file.startswith(("tests/", "include/")):
            continue
        folder = folder_of(file)
        if folder in ("policy", LEARN):
            continue  # names of calls are its data
        text = Path(file).read_text(encoding="utf-8")
        for call, wrapper in CALL.findall(text):
            name = call or WRAPPERS.get(wrapper)
            if name in ONLY and folder not in (*ONLY[name], CANARY):
                yield f"{file}: the system call {name} is not for {folder}"


def main():
    files = [name for name in sys.stdin.read().split("\0") if name]
    bad = [*check_objects(sys.argv[1]), *check_programs(sys.argv[1]), *check_fake(sys.argv[1]), *check_sources(files)]
    print("\n".join(sorted(set(bad))))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
