#!/usr/bin/env python3
"""The privileged binary opens no path that a session controls.

usage: paths.py; names of the sources come NUL separated on standard input.
Two rules for the supervisor's sources. Each file that hands a path to the kernel is listed below with the
paths that it is about, so that a new one is looked at. And none names a way into a session's tree: its
folders after the child's pivot, or what /proc offers of another process as a directory.
"""
import re
import sys

WORKERS = ("supervisor/api/", "supervisor/egress/", "supervisor/config/", "supervisor/helper/",
           "supervisor/provider/")
CALL = re.compile(
    r"(?<![\w.>])(?:open|openat|opendir|fdopendir|fopen|freopen|creat|mkdir|mkdirat|mknod|mknodat|unlink|unlinkat|rmdir|remove|"
    r"rename|renameat|renameat2|link|linkat|symlink|symlinkat|chown|lchown|fchownat|chmod|fchmodat|stat|lstat|"
    r"fstatat|statx|readlink|readlinkat|access|faccessat|truncate|utimensat|chdir|kernel_openat2|path_open_\w+|"
    r"io_read_at|open_tree|move_mount|mount|umount2?|fts_open|nftw|setxattr|getxattr|bind|connect)\s*\(")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
# A session's tree through /proc, or the folders that its programs write to.
INTO_SESSION = re.compile(r"/proc/(?:%\w+|\d+)/(?:root|cwd|exe|fd|map_files|task)|^/?(?:session|s/session|s/tmp|s/shm)/")
# Folders that are made before the first program of the session runs.
MADE = {"supervisor/mountns.c": {"session/home", "session/tmp"}}
# file → what its paths are
KNOWN = {
    "supervisor/adopt.c": "the runtime directory; its own /proc",
    "supervisor/cgroup.c": "control groups, by names of ours below descriptors",
    "supervisor/cgroup_delegate.c": "files of control groups, below descriptors",
    "supervisor/cgroup_find.c": "its own /proc, mount points of control groups",
    "supervisor/cgroup_former.c": "control groups of former starts",
    "supervisor/cgroup_part.c": "control groups, by names of ours below a descriptor; /proc of what is in them",
    "supervisor/cgroup_workers.c": "control groups of our workers",
    "supervisor/dirwalk.c": "the host's /usr, by descriptor",
    "supervisor/etc_template.c": "the host's /etc, into a template of ours",
    "supervisor/host.c": "the program directory, at the start",
    "supervisor/idblock.c": "the host's table of id blocks",
    "supervisor/idmap.c": "/proc/self of helpers of ours",
    "supervisor/instance.c": "the state directory",
    "supervisor/journal.c": "the journal's socket",
    "supervisor/keeper.c": "the supervisor's own program",
    "supervisor/listeners.c": "the control sockets",
    "supervisor/mountns.c": "a tree that no session has yet: before its first program",
    "supervisor/netns.c": "sysctls of the child's own namespace, before the first program",
    "supervisor/netns_routes.c": "a sysctl of the child's own namespace, before the first program",
    "supervisor/notify.c": "the service manager's socket",
    "supervisor/prove.c": "the supervisor's own /proc, by pids that are held",
    "supervisor/record.c": "the runtime directory",
    "supervisor/rootfs.c": "its own root, at the start",
    "supervisor/rootfs_mount.c": "mounts by descriptor",
    "supervisor/session.c": "the session's socket in the runtime directory",
    "supervisor/signals.c": "/dev/null, where a standard stream is closed",
    "supervisor/steps_child.c": "/dev/null of the new root, before the first program",
    "supervisor/steps_parent.c": "the session's socket in the runtime directory",
    "supervisor/supervise.c": "its directories, at the start",
    "supervisor/worker_spawn.c": "the engine's socket, as the configuration names it, at a worker's start",
    "supervisor/serve_service.c": "sockets of host_services, in a child: each component without links",
    "supervisor/template/jail.c": "its own program's directory, /proc of a helper of its own; mounts by descriptor",
    "supervisor/template/list.c": "the folder of templates",
    "supervisor/template/main.c": "the source that root names on the command line",
    "supervisor/template/store.c": "the folder of templates, by names of ours; one name of what was unpacked, at rest",
    "supervisor/template_use.c": "templates of root's in the state directory, by one component without links",
    "supervisor/trusted_dir.c": "directories of root's, each component checked",
    "supervisor/unseal.c": "the sealed store of root's",
    "supervisor/userns.c": "/proc of a helper of ours",
    "supervisor/usr_copies.c": "the host's /usr, by descriptor, and copies of our own",
    "supervisor/usr_mask.c": "the host's /usr, by descriptor",
}


def problems(file, text):
    text = COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    code = STRING.sub('""', text)
    if CALL.search(code) and file not in KNOWN:
        yield f"{file}: hands a path to the kernel; say in tests/lint/paths.py which"
    for literal in STRING.findall(text):
        if INTO_SESSION.search(literal) and literal not in MADE.get(file, ()):
            yield f"{file}: \"{literal}\" leads into a session's tree"


def self_check():
    """A lint that cannot fail proves nothing."""
    bad = {
        "supervisor/new.c": 'int f(void) { return openat(3, "x", 0); }',
        "supervisor/prove.c": 'str_format(path, sizeof(path), "/proc/%d/root/session/x", pid);',
        "supervisor/cgroup.c": 'fd = openat(root_fd, "session/stdout", O_WRONLY);',
    }
    good = {
        "supervisor/new.c": '/* open("x") */ int f(void) { return close(3) + reopen(4); }',
        "supervisor/prove.c": 'str_format(path, sizeof(path), "/proc/%d/status", pid);',
    }
    return all([*problems(*item)] for item in bad.items()) and \
        not any([*problems(*item)] for item in good.items())


def main():
    if not self_check():
        sys.exit("tests/lint/paths.py does not see what it is for")
    files = [name for name in sys.stdin.read().split("\0")
             if name.startswith("supervisor/") and not name.startswith(WORKERS)]
    bad, seen = [], set()
    for file in files:
        with open(file, encoding="utf-8") as source:
            text = source.read()
        bad += problems(file, text)
        if CALL.search(STRING.sub('""', COMMENT.sub("", text))):
            seen.add(file)
    bad += [f"tests/lint/paths.py: {file} hands no path to the kernel any more"
            for file in KNOWN if file not in seen]
    print("\n".join(sorted(set(bad))))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
