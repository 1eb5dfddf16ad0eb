"""Files of the runtime API: bytes both ways, ranges, folders, paths and links that lead out."""
import contextlib
import http.client
import os
import signal
import urllib.parse

import pytest

from harness import RUNTIME, RUNTIME_NOT_FOUND, SLOW, UnixConnection, connected, ctl, wait_until
from runtime_rig import fixture_caller, fixture_session  # noqa: F401 (fixtures)

MIB = 1 << 20


def files(session, what="", **query):
    text = urllib.parse.urlencode(query)
    return f"{RUNTIME}/{session}/files{what}" + (f"?{text}" if text else "")


def put(caller, session, path, data, **query):
    return caller.request("PUT", files(session, path=path, **query), raw_body=data)


def get(caller, session, path, **headers):
    return caller.get(files(session, path=path), headers={k.replace("_", "-"): v for k, v in headers.items()})


def code(answer):
    return answer.status, answer.json["code"]


def names(caller, session, path="/session"):
    answer = caller.get(files(session, "/list", path=path))
    assert answer.status == 200, answer
    made = {"home", "tmp"} if path == "/session" else set()  # are in every session
    return sorted({entry["name"] for entry in answer.json["entries"]} - made)


def test_put_get_stat_remove(caller, session):
    answer = put(caller, session, "deep/er/a.txt", b"hello\n")
    assert answer.status == 200, answer
    assert answer.json["path"] == "/session/deep/er/a.txt"
    assert (answer.json["type"], answer.json["size"], answer.json["mode"]) == ("file", 6, "0644")
    assert (answer.json["uid"], answer.json["gid"]) == (1000, 1000)
    answer = get(caller, session, "/session/deep//er/./a.txt")
    assert (answer.status, answer.body) == (200, b"hello\n")
    assert answer.headers["Content-Length"] == "6"
    assert caller.run(session, "stat", "-c", "%a %u %s", "deep/er/a.txt").text == "644 1000 6\n"
    # What is there keeps its mode; another one can be given.
    assert put(caller, session, "deep/er/a.txt", b"", mode="0755").json["mode"] == "0755"
    assert put(caller, session, "deep/er/a.txt", b"abc").json["mode"] == "0755"
    stat = caller.get(files(session, "/stat", path="deep/er/a.txt")).json
    assert (stat["size"], stat["mode"]) == (3, "0755")
    assert names(caller, session, "deep") == ["er"]
    assert code(caller.delete(files(session, path="deep"))) == (409, "not_empty")
    assert caller.delete(files(session, path="deep", recursive="true")).json["removed"] is True
    assert code(caller.delete(files(session, path="deep"))) == (404, "file_not_found")
    assert code(get(caller, session, "deep/er/a.txt")) == (404, "file_not_found")
    assert names(caller, session) == []


def test_large_both_ways(caller, session):
    data = os.urandom(MIB) * 20
    assert put(caller, session, "/tmp/big", data).json["size"] == len(data)
    assert get(caller, session, "/tmp/big").body == data
    assert put(caller, session, "empty", b"").json["size"] == 0
    assert get(caller, session, "empty").body == b""
    for kept in range(3):  # connections and helpers are used again
        assert put(caller, session, "again", b"x" * kept).json["size"] == kept


def test_ranges(caller, session):
    data = bytes(range(256)) * 1000
    put(caller, session, "r", data)
    rows = [("bytes=0-0", 0, 1), ("bytes=10-19", 10, 20), ("bytes=255990-", 255990, 256000),
            ("bytes=-7", 255993, 256000), ("bytes=100-999999999", 100, 256000),
            ("bytes=-999999999", 0, 256000)]
    for text, begin, end in rows:
        answer = get(caller, session, "r", Range=text)
        assert (answer.status, answer.body) == (206, data[begin:end]), text
        assert answer.headers["Content-Range"] == f"bytes {begin}-{end - 1}/256000"
    for text in ["bytes=256000-", "bytes=-0"]:
        answer = get(caller, session, "r", Range=text)
        assert (answer.status, answer.headers["Content-Range"]) == (416, "bytes */256000"), text
    for text in ["bytes=1-2,4-5", "lines=1-2", "bytes=5-2", "bytes=", "bytes=a-b"]:
        assert get(caller, session, "r", Range=text).status == 200, text


def test_paths_that_are_none(caller, session):
    bad = ["", "..", "../x", "a/../b", "/", "/etc/passwd", "/sessions/x", "/tmpx", "a\0b", "x" * 256, "a/" * 2100]
    for path in bad:
        for answer in (get(caller, session, path), put(caller, session, path, b"x"),
                       caller.delete(files(session, path=path)),
                       caller.post(files(session, "/mkdir"), {"path": path})):
            assert answer.status == 422, (path, answer)
    for raw in ["%ff", "%", "%zz", "%c3"]:
        assert caller.get(f"{RUNTIME}/{session}/files/stat?path={raw}").status == 422, raw
    assert caller.get(f"{RUNTIME}/{session}/files/stat").status == 422
    assert put(caller, session, "x", b"", mode="1777").status == 422
    assert put(caller, session, "x", b"", replace="maybe").status == 422
    assert names(caller, session) == []
    assert put(caller, session, "ä b+c&d", b"1").status == 200
    assert names(caller, session) == ["ä b+c&d"]


def test_links(caller, session):
    caller.shell(session, "mkdir in; echo inside > in/f; ln -s in rel; ln -s ../in in/up; ln -s /etc out;"
                          "ln -s /etc/passwd pass; ln -s in/f link; ln -s nowhere dangling; ln -s loop loop;"
                          "ln -s ../../etc climb; ln -s /proc/self/root root")
    assert get(caller, session, "rel/f").body == b"inside\n"
    assert get(caller, session, "in/up/f").body == b"inside\n"
    assert get(caller, session, "link").body == b"inside\n"
    for path in ["out/passwd", "pass", "climb/passwd", "root/etc/passwd", "loop", "loop/x"]:
        assert code(get(caller, session, path)) == (403, "leads_out"), path
    for path in ["out/x", "climb/x", "root/tmp/x"]:
        assert code(put(caller, session, path, b"x")) == (403, "leads_out"), path
        assert code(caller.post(files(session, "/mkdir"), {"path": path})) == (403, "leads_out"), path
        assert code(caller.post(files(session, "/move"), {"from": "in/f", "to": path})) == (403, "leads_out")
    assert caller.get(files(session, "/stat", path="pass")).json["target"] == "/etc/passwd"
    # A put takes the place of the link, not of what it leads to.
    assert put(caller, session, "pass", b"mine").status == 200
    assert put(caller, session, "link", b"mine").status == 200
    assert get(caller, session, "in/f").body == b"inside\n"
    assert caller.delete(files(session, path="out")).status == 200
    assert caller.delete(files(session, path="rel")).status == 200
    assert get(caller, session, "in/f").body == b"inside\n"


def test_special_files(caller, session):
    caller.shell(session, "mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'")
    for path in ["fifo", "sock"]:
        assert code(get(caller, session, path)) == (409, "special_file"), path
        assert code(put(caller, session, path, b"x")) == (409, "special_file"), path
        assert code(caller.post(files(session, "/copy"), {"from": path, "to": "copy"})) == (409, "special_file")
        assert caller.get(files(session, "/stat", path=path)).json["type"] == "other"
    assert code(get(caller, session, "/session")) == (409, "is_folder")
    assert code(put(caller, session, "/session", b"x")) == (409, "is_folder")
    assert code(get(caller, session, "fifo/x")) == (409, "not_folder")
    assert code(caller.get(files(session, "/list", path="fifo"))) == (409, "not_folder")
    assert code(caller.delete(files(session, path="/session", recursive="true"))) == (403, "denied")
    caller.shell(session, "echo secret > closed; chmod 0 closed")
    assert code(get(caller, session, "closed")) == (403, "denied")
    # What can be neither read nor written has no descriptor to change it by.
    assert code(caller.post(files(session, "/chmod"), {"path": "closed", "mode": "600"})) == (403, "denied")
    caller.shell(session, "chmod 200 closed")
    assert caller.post(files(session, "/chmod"), {"path": "closed", "mode": "600"}).json["mode"] == "0600"
    assert get(caller, session, "closed").body == b"secret\n"


def test_mkdir_move_copy(caller, session):
    answer = caller.post(files(session, "/mkdir"), {"path": "a/b/c", "mode": "700"})
    assert (answer.status, answer.json["type"], answer.json["mode"]) == (200, "folder", "0700"), answer
    assert caller.post(files(session, "/mkdir"), {"path": "a/b/c"}).status == 200
    put(caller, session, "a/f", b"1", mode="640")
    assert code(caller.post(files(session, "/mkdir"), {"path": "a/f"})) == (409, "exists")
    assert code(caller.post(files(session, "/mkdir"), {"path": "a/f/g"})) == (409, "not_folder")
    assert caller.post(files(session, "/move"), {"from": "a/f", "to": "new/g"}).json["path"] == "/session/new/g"
    answer = caller.post(files(session, "/copy"), {"from": "new/g", "to": "/tmp/h"})
    assert (answer.json["path"], answer.json["mode"]) == ("/tmp/h", "0640")
    put(caller, session, "other", b"2")
    for what in ["/move", "/copy"]:
        answer = caller.post(files(session, what), {"from": "other", "to": "new/g", "replace": False})
        assert code(answer) == (409, "exists"), what
    assert code(put(caller, session, "other", b"3", replace="false")) == (409, "exists")
    assert get(caller, session, "other").body == b"2"
    # Between the two folders, which may be two file systems.
    assert caller.post(files(session, "/move"), {"from": "/tmp/h", "to": "back"}).status == 200
    assert get(caller, session, "back").body == b"1"
    assert names(caller, session, "/tmp") == []
    caller.shell(session, "ln -s g new/l; mkdir new/d; echo 5 > new/d/x; chmod 500 new/d")
    assert code(caller.post(files(session, "/copy"), {"from": "new", "to": "tree"})) == (409, "is_folder")
    answer = caller.post(files(session, "/copy"), {"from": "new", "to": "new/tree", "recursive": True})
    assert answer.status == 200, answer
    assert names(caller, session, "new/tree") == ["d", "g", "l"]
    assert get(caller, session, "new/tree/d/x").body == b"5\n"
    assert caller.get(files(session, "/stat", path="new/tree/l")).json["target"] == "g"
    caller.shell(session, "chmod -R u+w new; mkdir t; cd t; i=0; while [ $i -lt 200 ]; do mkdir d; cd d; i=$((i+1)); done; echo x > f")
    assert caller.delete(files(session, path="t", recursive="true")).status == 200
    assert "t" not in names(caller, session)


def test_move_between_the_folders(caller, session):
    """Two mounts, between which nothing can be renamed; what moves is what a rename would move."""
    move = lambda path, to, **more: caller.post(files(session, "/move"), {"from": path, "to": to, **more})
    own = lambda: [name for name in names(caller, session) if name not in ("home", "tmp")]
    control = caller.shell(session, "touch f; python3 -c 'import os; os.rename(\"f\", \"/tmp/f\")'; rm f")
    assert "Invalid cross-device link" in control.err.decode(), control
    caller.shell(session, "mkdir -p t/d t/sealed t/empty; echo 1 > t/d/f; echo 2 > t/sealed/f;"
                                 "chmod 640 t/d/f; chmod 500 t/sealed; ln -s d/f t/l; ln -s /nowhere dangling; ln -s t to_folder")
    answer = move("t", "/tmp/t")
    assert (answer.status, answer.json["type"], answer.json["path"]) == (200, "folder", "/tmp/t"), answer
    seen = caller.shell(session, "cd /tmp/t; stat -c '%n %A' d/f l sealed sealed/f empty; readlink l; cat sealed/f")
    assert seen.text.split() == ["d/f", "-rw-r-----", "l", "lrwxrwxrwx", "sealed", "dr-x------", "sealed/f", "-rw-r--r--",
                                 "empty", "drwxr-xr-x", "d/f", "2"], seen.text
    assert own() == ["dangling", "to_folder"]
    for link, target in (("dangling", "/nowhere"), ("to_folder", "t")):
        answer = move(link, f"/tmp/{link}")
        assert (answer.status, answer.json["type"], answer.json["target"]) == (200, "link", target), answer
    assert own() == []
    # What stands in the way counts as for rename, and nothing changes.
    caller.shell(session, "mkdir full t; touch full/x file; echo 3 > g")
    for to, expected in (("full", "not_empty"), ("file", "not_folder")):
        assert code(move("/tmp/t", to)) == (409, expected), to
    assert code(move("g", "/tmp/t")) == (409, "is_folder")
    assert code(move("g", "/tmp/dangling", replace=False)) == (409, "exists")
    caller.shell(session, "mkfifo /tmp/t/fifo")
    assert caller.post(files(session, "/move"), {"from": "/tmp/t", "to": "t"}).status == 409
    assert own() == ["file", "full", "g", "t"]
    caller.shell(session, "rm /tmp/t/fifo")
    assert move("/tmp/t", "t").status == 200
    assert move("g", "/tmp/dangling").json["type"] == "file"
    assert names(caller, session, "/tmp") == ["dangling", "to_folder"]
    assert names(caller, session, "t") == ["d", "empty", "l", "sealed"]


def test_copy_that_fails_leaves_nothing(caller, session):
    caller.shell(session, "mkdir -p t/sealed there; touch t/sealed/f; chmod 500 t/sealed")
    answer = caller.post(files(session, "/copy"), {"from": "t", "to": "there", "recursive": True})
    assert code(answer) == (409, "exists")
    assert not temporaries(caller, session)


def test_time_of_a_file_is_any(caller, session):
    caller.shell(session, "touch f; touch -d @9000000000000000 f; touch -d @-9000000000000000 g")
    for name, year in (("f", "2262-"), ("g", "1970-")):
        answer = caller.get(files(session, "/stat", path=name))
        assert answer.json["modified_at"].startswith(year), answer


def test_list(caller, session):
    caller.shell(session, "mkdir many; cd many; seq 1 2000 | xargs touch; cd ..; mkdir odd; cd odd;"
                          "touch \"$(printf 'a\\377b')\" .hidden")
    answer = caller.get(files(session, "/list", path="many")).json
    assert (len(answer["entries"]), answer["truncated"]) == (1000, True)
    answer = caller.get(files(session, "/list", path="many", limit=2000)).json
    assert (len(answer["entries"]), answer["truncated"]) == (2000, False)
    odd = {entry["name"]: entry for entry in caller.get(files(session, "/list", path="odd")).json["entries"]}
    assert sorted(odd) == [".hidden", "a\N{REPLACEMENT CHARACTER}b"]
    assert odd["a\N{REPLACEMENT CHARACTER}b"]["name_base64"] == "Yf9i"


def test_scopes_and_strangers(daemon, caller, session):
    reader = daemon.client("ana", scopes="sandbox:read")
    put(caller, session, "f", b"1")
    assert get(reader, session, "f").body == b"1"
    assert put(reader, session, "f", b"2").status == 403
    assert reader.delete(files(session, path="f")).status == 403
    stranger = daemon.client("eve")
    for answer in (get(stranger, session, "f"), put(stranger, session, "f", b"x" * 5 * MIB),
                   stranger.delete(files(session, path="f"))):
        assert (answer.status, answer.body) == (404, RUNTIME_NOT_FOUND)
    assert get(caller, session, "f").body == b"1"


class Upload:
    """A put whose body comes piece by piece."""

    def __init__(self, caller, session, path, size=None):
        self.sock = connected(caller.path, 30 * SLOW)
        length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
        head = "".join(f"{name}: {value}\r\n" for name, value in caller.headers.items())
        self.sock.sendall(f"PUT {files(session, path=path)} HTTP/1.1\r\nHost: x\r\n{head}{length}\r\n\r\n".encode())

    def send(self, data):
        self.sock.sendall(data)

    def chunk(self, data):
        self.sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def answer(self):
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while b"}" not in got and (more := self.sock.recv(65536)):
                got += more
        return got

    def close(self):
        self.sock.close()


def temporaries(caller, session):
    return [name for name in names(caller, session) if name.startswith(".put-")]


def test_put_is_whole_or_not_at_all(caller, session):
    put(caller, session, "f", b"old")
    # The client leaves in the middle, by length and by chunks.
    for size in (10 * MIB, None):
        upload = Upload(caller, session, "f", size)
        (upload.send if size else upload.chunk)(b"x" * MIB)
        wait_until(lambda: temporaries(caller, session), what="a file on its way")
        assert get(caller, session, "f").body == b"old"
        upload.close()
        wait_until(lambda: not temporaries(caller, session), what="nothing left of it")
        assert get(caller, session, "f").body == b"old"
    # By chunks to its end.
    upload = Upload(caller, session, "f")
    upload.chunk(b"a" * MIB)
    upload.chunk(b"b")
    upload.send(b"0\r\n\r\n")
    assert b" 200 " in upload.answer()
    upload.close()
    assert get(caller, session, "f").body == b"a" * MIB + b"b"


def test_full_folder_leaves_the_old_file(caller, session):
    put(caller, session, "f", b"old")
    caller.shell(session, "head -c 3G /dev/zero > fill; rm -f x; true", timeout=120 * SLOW)
    answer = put(caller, session, "f", b"x" * 4 * MIB)
    assert code(answer) == (507, "no_space"), answer
    assert get(caller, session, "f").body == b"old"
    assert temporaries(caller, session) == []
    assert caller.delete(files(session, path="fill")).status == 200
    assert put(caller, session, "f", b"x" * 4 * MIB).status == 200


def test_two_writers(caller, session):
    one = Upload(caller, session, "f", 2 * MIB)
    two = Upload(caller, session, "f", 2 * MIB)
    for _ in range(2):
        one.send(b"1" * MIB)
        two.send(b"2" * MIB)
    assert b" 200 " in one.answer()
    assert b" 200 " in two.answer()
    one.close()
    two.close()
    assert get(caller, session, "f").body in (b"1" * 2 * MIB, b"2" * 2 * MIB)


def test_session_ends_in_the_middle(caller):
    session = caller.create_runtime()
    put(caller, session, "big", b"x" * 8 * MIB)
    upload = Upload(caller, session, "f", 10 * MIB)
    upload.send(b"x" * MIB)
    connection = UnixConnection(caller.path)
    connection.request("GET", files(session, path="big"), headers=caller.headers)
    response = connection.getresponse()
    assert response.read(1000) == b"x" * 1000
    assert caller.delete(f"{RUNTIME}/{session}").status == 200
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        upload.send(b"x" * 9 * MIB)
    assert b"sandbox not found" in upload.answer()
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        response.read()
    connection.close()
    upload.close()


def test_slow_readers_hold_nobody_up(caller, session):
    put(caller, session, "big", b"x" * 32 * MIB)
    slow = []
    for _ in range(6):
        connection = UnixConnection(caller.path)
        connection.request("GET", files(session, path="big"), headers=caller.headers)
        slow.append((connection, connection.getresponse()))
    assert get(caller, session, "big").body == b"x" * 32 * MIB
    assert len(caller.run(session, "seq", "1", "300000").text) > MIB
    for connection, response in slow[:2]:
        assert response.read() == b"x" * 32 * MIB
    for connection, _ in slow:
        connection.close()
    assert get(caller, session, "big", Range="bytes=0-0").body == b"x"


def test_api_worker_dies_in_the_middle(daemon, caller, session):
    daemon.deaths_expected = True
    put(caller, session, "f", b"old")
    upload = Upload(caller, session, "f", 10 * MIB)
    upload.send(b"x" * MIB)
    wait_until(lambda: temporaries(caller, session), what="a file on its way")
    old = daemon.worker_pid("sandboxd-api")
    os.kill(old, signal.SIGKILL)
    upload.close()
    wait_until(lambda: daemon.worker_pid("sandboxd-api") not in (None, old), what="another worker")
    wait_until(daemon.ready, what="it serves")
    wait_until(lambda: caller.get(f"{RUNTIME}/{session}").status == 200, what="adopted")
    assert get(caller, session, "f").body == b"old"
    wait_until(lambda: not temporaries(caller, session), what="nothing left of it")
    assert put(caller, session, "f", b"new").status == 200


def test_race_of_links(caller, session):
    """A folder that becomes a link and back: nothing is ever written or read outside."""
    caller.shell(session, "mkdir d e; echo in > d/f; ln -s /etc l")
    racer = caller.post(f"{RUNTIME}/{session}/commands", {"background": True, "argv": [
        "python3", "-c", "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "while True: libc.renameat2(-100, b'd', -100, b'l', 2)"]}).json["command_id"]
    seen = set()
    for i in range(6000):
        if i >= 300 and {200, 403} <= seen:
            break
        answer = get(caller, session, "d/f") if i % 2 else put(caller, session, "d/f", b"in\n")
        seen.add(answer.status)
        assert answer.status in (200, 403, 404, 409), answer
        if answer.status == 200 and i % 2:
            assert answer.body == b"in\n"
    assert get(caller, session, "d/passwd").status in (403, 404)
    answer = caller.post(f"{RUNTIME}/{session}/commands/{racer}/signal", {"signal": "KILL"})
    assert answer.status == 200, answer
    assert {200, 403} <= seen


def test_cp(daemon, caller, session, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 * MIB))
    source.chmod(0o750)
    short = session[:8]
    assert ctl(daemon, "cp", str(source), f"{short}:in/").returncode == 0
    assert caller.get(files(session, "/stat", path="in/source")).json["mode"] == "0750"
    assert ctl(daemon, "cp", f"{session}:/session/in/source", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert ctl(daemon, "cp", "-", f"{session}:/tmp/x", stdin=b"hello").returncode == 0
    assert ctl(daemon, "cp", f"{session}:/tmp/x", "-").stdout == b"hello"
    missing = ctl(daemon, "cp", f"{session}:missing", str(tmp_path / "missing"))
    assert missing.returncode == 3 and b"no such file" in missing.stderr, missing
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["back", "source"]
    # What is no file is written to, and stays what it is.
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    assert ctl(daemon, "cp", f"{session}:/tmp/x", str(tmp_path / "fifo")).returncode == 0
    assert (tmp_path / "fifo").is_fifo() and os.read(reader, 100) == b"hello"
    os.close(reader)
    (tmp_path / "fifo").unlink()
    assert ctl(daemon, "cp", f"{session}:/tmp/x", str(tmp_path)).returncode == 1
    assert ctl(daemon, "cp", "a", "b").returncode == 2
    assert ctl(daemon, "cp", str(source), f"{session}:/etc/x").returncode == 4
