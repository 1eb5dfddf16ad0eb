#!/usr/bin/env python3
"""Every error text that the API or sandboxctl can print is explained in docs/troubleshooting.md.

File names of sources come NUL separated on standard input. A text is what stands as the message of a
call below, or in one of the tables; conversions (%s) count as `…`. A text without a row, and a row
whose text no source has any more, are findings. --list prints the texts.
"""
import re
import sys
from pathlib import Path

PAGE = "docs/troubleshooting.md"
HEADERS = ["include/sandboxd/api.h", "base/dsn.h", "supervisor/api/session/body_fields.h"]

# Where, function, index of the argument that is the message. A new way to say no is a new row.
API = ("supervisor/api/",)
# What `sandboxctl config` prints, and what a reload says.
CONFIG = ("base/config_bundle.c",)
# What `sandboxctl secret` prints.
SEAL = ("supervisor/helper/seal.c", "supervisor/helper/secret_store.c")
# What `sandboxctl template` prints.
TEMPLATE = ("supervisor/template/main.c", "supervisor/template/list.c", "supervisor/template/store.c")
CALLS = [
    (API, "reply_detail", 2),
    (API, "reply_busy", 1),
    (API, "reply_invalid_body", 3),
    (API, "refuse_body", 2),
    (API, "spec_error_add", 4),
    (API, "body_item_add", 3),
    (("supervisor/api/http/handlers_list.c",), "wrong", 3),
    (API, "body_wrong", 3),
    (API, "body_read_identity", 3),
    (API, "body_wrong_in", 4),
    (API, "fit_text", 2),
    (API, "progress_fail", 4),
    (API, "progress_load_fail", 1),
    (API, "tasks_fail_held", 4),
    (API, "fail_early", 2),
    (API, "fail_late", 2),
    (API, "give_up", 1),
    (API, "tasks_take", 3),
    (SEAL, "refuse", 0),
    (SEAL, "err_fail", 3),
    (TEMPLATE, "fail", 1),
    (TEMPLATE, "err_fail", 3),
    (API, "tasks_fail", 3),
    (CONFIG, "err_fail", 3),
    (("supervisor/api/store/pg_",), "err_fail", 3),
    (("supervisor/api/redis/",), "redis_client_lose", 1),
]
# What a member is set to: (file or folder, name).
ASSIGNED = [
    ("supervisor/api/redis/", "failed"),
    ("supervisor/api/store/", "reason"),
]
# Functions and arrays whose strings are all texts: (file, name).
TABLES = [
    ("base/launch.c", "error_texts"),
    ("supervisor/api/session/quota.c", "reasons"),
    ("base/endpoint_value.c", "problems"),
    ("supervisor/api/session/body_fields.c", "secret_problem"),
    ("supervisor/api/egress/admit.c", "problems"),
    ("supervisor/api/http/runtime_errors.c", "rows"),
    ("supervisor/api/snapshot_failure.c", "failures"),
    ("supervisor/api/git_reply.c", "detail_of"),
    ("supervisor/api/redis.c", "status_texts"),
    ("supervisor/template/main.c", "image_errors"),
    ("supervisor/api/store/pg_reason.c", "pg_reason_of_connection"),
]
# Of each row of these only the second text is said: (file, name).
PAIRS = [
    ("supervisor/api/store/pg_reason.c", "of_connection"),
    ("supervisor/api/store/pg_reason.c", "of_sqlstate"),
]
# Formats of the answers that are put together before they are sent: (file or folder, part of the format).
FORMATS = [
    ("supervisor/api/", " at step "),
    ("supervisor/api/creation.c", "launch "),
    ("supervisor/api/snapshot_encryption.c", "the key "),
    ("supervisor/api/", "\"quota: "),
    ("supervisor/api/http/auth.c", "missing scope"),
    ("supervisor/api/session/tenant_quota.c", "quota: "),
]
# What stands in a table beside the texts, or is printed there and is no error.
NO_ERRORS = {"ok", "no error", "://", "sandboxctl: ", "materialising sandbox/…", "sandbox session … executing",
             "sandboxctl: the value from standard input, which shows it; end with Ctrl-D"}
CODE = re.compile("[a-z]+(_[a-z]+)*")  # what stands beside the texts of runtime_errors.c
TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|//[^\n]*|\'(?:[^\'\\]|\\.)+\'|[A-Za-z_]\w*|\s+|.', re.S)


def tokens(text):
    return [t for t in TOKEN.findall(text) if not t.isspace() and not t.startswith(("/*", "//"))]


def macros(root):
    found = {}
    for header in HEADERS:
        for name, value in re.findall(r'^#define (\w+)\s+("[^"\n]*")$', (root / header).read_text(), re.M):
            found[name] = value
    return found


def unquote(literal):
    return re.sub(r'\\(.)', lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), literal[1:-1])


def arguments(toks, at):
    """The arguments (token lists) of the call whose `(` is toks[at]."""
    depth, args = 0, [[]]
    for token in toks[at:]:
        if token in "([{":
            depth += 1
            if depth == 1:
                continue
        elif token in ")]}":
            depth -= 1
            if depth == 0:
                return args
        if token == "," and depth == 1:
            args.append([])
        else:
            args[-1].append(token)
    return args


def literals(toks, known):
    """Strings of an expression; neighbours are one."""
    found, joined = [], None
    for token in [*toks, ";"]:
        token = known.get(token, token)
        if token.startswith('"'):
            joined = (joined or "") + unquote(token)
        elif joined is not None:
            found.append(joined)
            joined = None
    return found


def table(toks, name):
    """Tokens of the initialiser or body that follows the definition of `name`."""
    for i, token in enumerate(toks):
        brace = toks[i:i + 40].index("{") if token == name and "{" in toks[i:i + 40] else 0
        # A declaration or a use ends before any brace.
        if brace and ";" not in toks[i:i + brace]:
            opened = i + brace
            return [t for part in arguments(toks, opened) for t in [*part, ","]]
    return []


def normal(text):
    """As a reader sees it: no newline, `…` for what varies, no unfinished end."""
    text = re.sub(r'.*"detail":"(.*?)".*', r"\1", text, flags=re.S)  # one that is in its JSON already
    text = re.sub(r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[hljzt]*[a-zA-Z]", "…", text)
    return text.strip().rstrip(":[ ")


def texts_of(file, toks, known):
    found = []
    for i, token in enumerate(toks[:-1]):
        if token.startswith('"') and any(file.startswith(f) and part in token for f, part in FORMATS):
            found += [text for text in literals(toks[i:i + 3], known)[:1] if re.search("%|missing", text)]
        if toks[i + 1] == "=" and any(file.startswith(f) and token == name for f, name in ASSIGNED):
            found += literals(toks[i:toks.index(";", i)], known)
        if toks[i + 1] != "(":
            continue
        for where, function, index in CALLS:
            if token == function and file.startswith(where):
                args = arguments(toks, i + 1)
                found += literals(args[index], known) if len(args) > index else []
        if file.startswith(("ctl/", *SEAL, *TEMPLATE)) and token in ("fprintf", "fputs"):
            flat = [t for part in arguments(toks, i + 1) for t in part]
            if "stderr" in flat:
                found += [t for t in literals(flat, known) if t.startswith("sandboxctl: ")]
    for name, array in TABLES:
        if name == file:
            found += [text for text in literals(table(toks, array), known) if not CODE.fullmatch(text)]
    for name, array in PAIRS:
        if name == file:
            found += literals(table(toks, array), known)[1::2]
    plain = {normal(text) for text in found if text not in NO_ERRORS}
    return {text for text in plain if re.search("[a-z]", text) and text[0] != "{"} - NO_ERRORS


def rows():
    """Texts that the page explains: the first cell of each row."""
    found = set()
    for line in Path(PAGE).read_text(encoding="utf-8").splitlines():
        match = re.match(r"\| `(.+?)` \|(.+)\|(.+)\|$", line)
        if match and match[2].strip() and match[3].strip():
            found.add(match[1].replace("\\|", "|"))
    return found


def main():
    known = macros(Path.cwd())
    texts = {}
    for name in sorted(sys.stdin.read().split("\0")):
        if name.startswith(("supervisor/api/", "ctl/", "base/", *SEAL, *TEMPLATE)) and name.endswith(".c"):
            toks = tokens(Path(name).read_text(encoding="utf-8"))
            for text in texts_of(name, toks, known):
                texts.setdefault(text, name)
    if "--list" in sys.argv:
        print("\n".join(f"{name}: {text}" for text, name in sorted(texts.items(), key=lambda p: p[::-1])))
        return
    told = rows()
    bad = [f"{PAGE}: no row for `{text}` ({name})" for text, name in sorted(texts.items())
           if text not in told]
    bad += [f"{PAGE}: no source says `{text}` any more" for text in sorted(told - set(texts))]
    # The extraction itself: were it broken, everything would be explained.
    if len(texts) < 100:
        bad.append(f"only {len(texts)} texts were found in the sources")
    print("\n".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
