#!/usr/bin/env python3
"""Who may include whom. File names come NUL separated on standard input.

A file belongs to the first row whose prefix it has. A row lists the prefixes of our own headers that
it may include, and the libraries' headers that only it (and rows that list them) may use.
"""
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
SHARED = ["base/", "sandboxd/"]
PURE_BASE = [f"base/{name}.h" for name in (
    "auto", "buf", "charge", "clock", "egress_rule", "endpoint_list", "endpoint_value", "err", "fd", "frame",
    "host_name", "host_service", "id", "json", "launch", "list", "net_class", "num", "path", "plan", "plant", "ring",
    "secret", "session_name", "slots", "str", "template_name")]
DOMAIN = ["supervisor/api/celery/", "supervisor/api/denials/", "supervisor/api/egress/", "supervisor/api/git/", "supervisor/api/session/",
          "supervisor/api/jobs/", "supervisor/api/janitor/"]
API_APP = ["supervisor/api/"]

# prefix, own headers, libraries
LAYERS = [
    ("include/sandboxd/", ["base/err.h", "sandboxd/"], []),
    ("base/json", SHARED, ["jansson.h"]),
    ("base/endpoint_", SHARED, ["uriparser/"]),
    ("base/websocket_", SHARED, ["nettle/"]),
    ("base/name_lookup", SHARED, ["ares.h"]),
    ("base/", SHARED, []),
    ("policy/image", [*SHARED, "policy/"], ["sodium.h"]),
    ("policy/", [*SHARED, "policy/"], ["seccomp.h", "sodium.h", "sys/capability.h"]),
    ("supervisor/api/airbyte/", [*PURE_BASE, "sandboxd/", "supervisor/api/airbyte/"], ["yaml.h"]),
    *[(folder, [*PURE_BASE, "sandboxd/", "policy/image.h", *DOMAIN], ["jansson.h"])
      for folder in DOMAIN],
    ("supervisor/api/http/", [*SHARED, *DOMAIN, "supervisor/api/http/", "supervisor/api/app.h"],
     ["microhttpd.h", "systemd/", "jansson.h", "wslay/"]),
    ("supervisor/api/link/", [*SHARED, *DOMAIN, "supervisor/api/link/"], ["systemd/"]),
    ("supervisor/api/metrics/", [*PURE_BASE, "sandboxd/", "supervisor/api/metrics/"], []),
    ("supervisor/api/store/", [*SHARED, *DOMAIN, "supervisor/api/names.h", "supervisor/api/store/"],
     ["sqlite3.h", "libpq-fe.h", "systemd/", "jansson.h", "sodium.h"]),
    ("supervisor/api/redis/", [*SHARED, "supervisor/api/names.h", "supervisor/api/redis/"],
     ["systemd/", "hiredis.h", "openssl/"]),
    ("supervisor/api/names", [*SHARED, "supervisor/api/names.h"], ["systemd/", "ares.h"]),
    ("supervisor/api/migrate/", [*SHARED, "supervisor/api/store/"], ["libpq-fe.h"]),
    ("supervisor/api/", [*SHARED, "policy/image.h", "policy/confine_worker.h", *API_APP],
     ["systemd/", "jansson.h", "sodium.h", "hiredis.h"]),
    ("supervisor/egress/", [*SHARED, "policy/confine_worker.h", "policy/image.h",
                            "supervisor/egress/", "supervisor/worker_start.h"], ["ares.h"]),
    ("supervisor/provider/", [*SHARED, "policy/confine_worker.h", "policy/image.h", "supervisor/peer.h",
                              "supervisor/provider/", "supervisor/worker_start.h"], ["curl/", "jansson.h"]),
    ("supervisor/config/", [*SHARED, "policy/confine_worker.h", "policy/image.h",
                            "supervisor/config/"], ["ini.h"]),
    ("supervisor/helper/", [*SHARED, "policy/confine_worker.h", "policy/image.h",
                            "supervisor/helper/"], ["sodium.h", "hiredis.h"]),
    ("supervisor/s3/", [*SHARED, "policy/confine_worker.h", "supervisor/s3/"],
     ["curl/", "expat.h", "sodium.h", "ares.h"]),
    ("supervisor/", [*SHARED, "policy/image.h", "supervisor/"], []),
    ("shim/", [*SHARED, "shim/"], []),
    ("jail/loader/", [*SHARED, "jail/loader/"], ["yaml.h"]),
    ("jail/archive/", [*SHARED, "jail/archive/"], ["archive.h", "archive_entry.h"]),
    ("jail/template/", [*SHARED, "policy/confine_worker.h", "jail/archive/", "jail/template/"],
     ["archive.h", "archive_entry.h", "jansson.h", "nettle/"]),
    ("jail/contain/", [*SHARED, "jail/contain/", "policy/image.h"], []),
    ("jail/git/", [*SHARED, "jail/git/"], ["curl/"]),
    ("jail/", [*SHARED, "jail/"], []),
    ("ctl/", [*SHARED, "ctl/"], ["curl/", "jansson.h", "wslay/"]),
]
NOT_FROM_SUPERVISOR = ("supervisor/api/", "supervisor/egress/", "supervisor/config/",
                       "supervisor/helper/", "supervisor/provider/",
                       "supervisor/s3/")
LIBRARIES = ("jansson.h", "sodium.h", "seccomp.h", "sys/capability.h", "microhttpd.h", "systemd/",
             "sqlite3.h", "ini.h", "yaml.h", "curl/", "netlink/", "libpq-fe.h", "hiredis.h", "wslay/", "nettle/",
             "uriparser/", "ares.h", "openssl/", "archive.h", "archive_entry.h", "expat.h")


def allowed(name, prefixes):
    return any(name.startswith(prefix) for prefix in prefixes)


def own_name(file, name):
    """A header named without its folder lies beside the file that includes it."""
    return name if "/" in name else file.rsplit("/", 1)[0] + "/" + name


def check(file):
    row = next((row for row in LAYERS if file.startswith(row[0])), None)
    if row is None:
        return []
    bad = []
    with open(file, encoding="utf-8") as source:
        text = source.read()
    for kind, name in INCLUDE.findall(text):
        if kind == "<":
            if allowed(name, LIBRARIES) and not allowed(name, row[2]):
                bad.append(f"{file}: <{name}> is not for {row[0]}")
            continue
        own = own_name(file, name)
        in_layer = allowed(own, row[1])
        if row[0] == "supervisor/" and own.startswith(NOT_FROM_SUPERVISOR):
            in_layer = False
        if not in_layer and not own.startswith(("generated/",)):
            bad.append(f"{file}: \"{name}\" lies to the right of {row[0]}")
    return bad


def main():
    files = [name for name in sys.stdin.read().split("\0") if name]
    bad = [line for file in files for line in check(file)]
    print("\n".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
