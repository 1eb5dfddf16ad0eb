"""sandboxd-s3 by itself, as the supervisor starts it, beside a server that checks signatures."""
import array
import contextlib
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time

import pytest

from harness import ASAN, BIN, PATIENCE, SLOW, wait_until
from s3_rig import BUCKET, REGION, Liar, Store, certificate, fixture_store, fixture_way, whole  # noqa: F401 (fixtures)

MIB = 1 << 20
MAGIC = 0x53334F31
PUT, GET, DELETE, LIST = 1, 2, 3, 4
DONE, CONNECT, TLS, DENIED, CLOCK, NO_BUCKET, MISSING, SIZE, SERVER, FILE, KEY = range(11)
INSTANCE = "0123abcd"
PREFIX = "sandboxes/"
REQUEST = struct.Struct("=IHH16s256s64s64s64s256sII")
JOB = struct.Struct("=IHHQQ256s")
REPORT = struct.Struct("=IHHIiQII256s")
OBJECT = struct.Struct("=256sQQ")


class Job:
    """A helper with one job, which has begun."""

    def __init__(self, store, action, key="", file=None, size=0, limit=0, **more):
        values = {"port": store.port, "host": "127.0.0.1", "bucket": BUCKET, "region": REGION, "plain": not store.tls,
                  "login": f"{store.access}:{store.secret}", "env": {}, "path": 1, **more}
        request = REQUEST.pack(MAGIC, 1, 0, INSTANCE.encode(), f"{values['host']}:{values['port']}".encode(),
                               values["region"].encode(), values["bucket"].encode(), PREFIX.encode(),
                               values["login"].encode(), values["plain"], values["path"])
        self.socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader, writer = os.pipe()
        os.write(writer, request)
        os.close(writer)
        policy = os.open(BIN / "policy.img", os.O_RDONLY)
        # Above all that is placed, so that none is overwritten before its turn.
        high = [os.dup2(fd, 100 + i) for i, fd in enumerate((other.fileno(), policy))]

        def place():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen([str(BIN / "sandboxd-s3")], stdin=reader, stdout=subprocess.DEVNULL,
                                        preexec_fn=place, close_fds=False, env=values["env"])
        for fd in (reader, policy, *high):
            os.close(fd)
        other.close()
        fds = [] if file is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))]
        self.socket.sendmsg([JOB.pack(MAGIC, 1, action, size, limit, key.encode())], fds)

    def end(self, seconds=120):
        """(status, of HTTP, errno, bytes, uploads given up, retries, key)"""
        self.socket.settimeout(seconds * SLOW)
        answer = self.socket.recv(4096)
        self.socket.close()
        assert self.process.wait(30 * PATIENCE) == 0
        fields = REPORT.unpack(answer)
        assert fields[:2] == (MAGIC, 1)
        return (*fields[2:8], fields[8].rstrip(b"\0").decode())


@pytest.fixture(name="late", scope="module")
def fixture_late(tmp_path_factory):
    """A library that sets a program's clock back by an hour."""
    folder = tmp_path_factory.mktemp("late")
    (folder / "late.c").write_text("""#include <time.h>
time_t time(time_t *at) { struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
now.tv_sec -= 3600; if (at) *at = now.tv_sec; return now.tv_sec; }
""")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "late.so", folder / "late.c"], check=True)
    return folder / "late.so"


def file_of(content=b""):
    file = tempfile.TemporaryFile(dir="/tmp")
    file.write(content)
    file.seek(0)
    return file


def put(store, name, content, **more):
    with file_of(content) as file:
        return Job(store, PUT, name, file, len(content), **more).end()


def get(store, key, size=0, limit=1 << 40, **more):
    with file_of() as file:
        answer = Job(store, GET, key, file, size, limit, **more).end()
        file.seek(0)
        return answer, file.read()


def status(answer):
    return answer[0]


@pytest.mark.parametrize("size", [0, 1, 65537, 8 * MIB, 8 * MIB + 1, 20 * MIB + 5])
def test_what_is_put_is_got(store, size):
    """The largest goes in three parts."""
    content = os.urandom(size)
    answer = put(store, f"object-{size}", content)
    assert status(answer) == DONE, answer
    key = answer[6]
    assert key == f"{PREFIX}{INSTANCE}/object-{size}"
    assert store.get(key) == content
    assert store.uploads() == []
    if size > 0:
        assert get(store, key, size) == ((DONE, 200, 0, size, 0, 0, ""), content)
    assert status(Job(store, DELETE, key).end()) == DONE
    assert store.get(key) is None
    assert status(Job(store, DELETE, key).end()) == DONE
    assert status(get(store, key, 5)[0]) == MISSING


def test_a_name_is_looked_up(store):
    answer = put(store, "named", b"by a name", host="localhost")
    assert status(answer) == DONE and store.get(answer[6]) == b"by a name", answer
    assert status(put(store, "named", b"x", host="nowhere.invalid")) == CONNECT


def test_the_bucket_may_be_before_the_host(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 {BUCKET}.s3.example\n")
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)  # of this test's mount namespace
    store = Store(domain="s3.example")
    try:
        content = os.urandom(9 * MIB)
        answer = put(store, "virtual", content, host="s3.example", path=0)
        assert status(answer) == DONE, answer
        assert (store.home / "data" / BUCKET / answer[6]).read_bytes() == content
        assert get(store, answer[6], len(content), host="s3.example", path=0)[1] == content
    finally:
        subprocess.run(["umount", "/etc/hosts"], check=True)
        store.done()


def test_an_object_of_another_size_is_refused(store):
    key = put(store, "sized", b"twelve bytes")[6]
    assert status(get(store, key, 11)[0]) == SIZE
    assert status(get(store, key, 13)[0]) == SIZE
    assert status(get(store, key, 0, 11)[0]) == SIZE
    answer, content = get(store, key, 0, 12)
    assert (status(answer), content) == (DONE, b"twelve bytes")


@pytest.mark.parametrize("more, expected", [
    ({"login": "AKwrong:" + "x" * 40}, DENIED),
    ({"login": None}, DENIED),
    ({"bucket": "other-bucket"}, NO_BUCKET),
    ({"port": 1}, CONNECT),
    ({"plain": False}, TLS),
])
def test_what_the_server_refuses_has_a_name(store, more, expected):
    if more.get("login", "") is None:
        more = {"login": f"{store.access}:{'0' * 40}"}
    answer = put(store, "refused", b"x" * 100, **more)
    assert status(answer) == expected, answer
    assert not any(key.endswith("refused") for key in store.keys())


@pytest.mark.skipif(ASAN, reason="a sanitizer has to be loaded first")
def test_clocks_that_differ_have_a_name(store, late):
    answer = put(store, "late", b"x", env={"LD_PRELOAD": str(late)})
    assert status(answer) == CLOCK and answer[5] == 0, answer


@pytest.mark.parametrize("key", ["other/x", "sandboxes/../x", "/sandboxes/x", "sandboxes//x", "sandboxes/a?b", ""])
def test_keys_beside_the_prefix_are_refused(store, key):
    store.put("other/x", b"not ours")
    assert status(get(store, key, 8)[0]) == KEY if key else True
    assert status(Job(store, DELETE, key).end()) == KEY
    assert store.get("other/x") == b"not ours"
    if "/" in key:
        assert status(put(store, key, b"x")) == KEY


@pytest.mark.parametrize("what", [500, 503, 429, "cut"])
def test_what_may_be_over_in_a_moment_is_tried_again(store, way, what):
    """Each request fails once."""
    seen = set()

    def rule(method, target):
        if (method, target) in seen or method == "HEAD":
            return None
        seen.add((method, target))
        return what

    way.rule = rule
    content = os.urandom(9 * MIB)
    answer = put(store, "again", content, port=way.port)
    assert status(answer) == DONE, (answer, way.requests)
    assert answer[5] >= 3
    assert store.get(answer[6]) == content
    got, read = get(store, answer[6], len(content), port=way.port)
    assert status(got) == DONE and read == content, got
    assert store.uploads() == []


@pytest.mark.parametrize("what", [500, "cut"])
def test_an_upload_that_fails_is_given_up(store, way, what):
    way.rule = lambda method, target: what if "partNumber=2" in target else None
    answer = put(store, "never", os.urandom(20 * MIB), port=way.port)
    assert status(answer) in (SERVER, CONNECT) and answer[5] == 4, answer
    assert store.uploads() == [] and not any("never" in key for key in store.keys())
    assert [target for _, target in way.requests if "partNumber=3" in target] == []


def test_a_refusal_is_not_tried_again(store, way):
    way.rule = lambda method, target: 403
    assert put(store, "once", b"x", port=way.port)[:2] == (DENIED, 403)
    assert len(way.requests) == 1


def test_a_server_that_stands_still_is_left(store, way):
    way.rule = lambda method, target: "stall" if len(way.requests) == 1 else None
    begin = time.monotonic()
    answer = put(store, "still", b"x" * MIB, port=way.port)
    assert status(answer) == DONE and answer[5] == 1, answer
    assert 9 < time.monotonic() - begin < 40 * PATIENCE


def test_whoever_waits_no_more_ends_it(store, way):
    way.rule = lambda method, target: "stall" if "partNumber=2" in target else None
    with file_of(os.urandom(20 * MIB)) as file:
        job = Job(store, PUT, "left", file, 20 * MIB, port=way.port)
        wait_until(lambda: any("partNumber=2" in target for _, target in way.requests), 30, "its second part is sent")
        job.socket.close()
        job.process.wait(30 * PATIENCE)
    # Five tries take longer.
    assert len([target for _, target in way.requests if "partNumber=2" in target]) < 5
    assert store.uploads() == [] and not any("left" in key for key in store.keys())


def test_the_list_has_the_objects_of_the_instance_alone(store):
    for name in ("list-1", "list-2"):
        put(store, name, name.encode() * 10)
    store.put(f"{PREFIX}ffffffff/list-3", b"of another one")
    with file_of() as file:
        assert status(Job(store, LIST, "", file).end()) == DONE
        file.seek(0)
        found = [OBJECT.unpack(record) for record in iter(lambda: file.read(OBJECT.size), b"")]
    names = {key.rstrip(b"\0").decode(): (size, at) for key, size, at in found}
    assert all(key.startswith(f"{PREFIX}{INSTANCE}/") for key in names)
    assert names[f"{PREFIX}{INSTANCE}/list-1"][0] == 60
    assert abs(names[f"{PREFIX}{INSTANCE}/list-2"][1] / 1e6 - time.time()) < 600


def test_a_list_has_pages(store, way):
    """Objects that are put beside the server: it has them as well."""
    folder = store.home / "data" / BUCKET / PREFIX / INSTANCE
    folder.mkdir(parents=True, exist_ok=True)
    names = {f"page-{number:04}" for number in range(2100)}
    for name in names:
        (folder / name).write_bytes(b"x")
    try:
        with file_of() as file:
            assert status(Job(store, LIST, "", file, port=way.port).end()) == DONE
            file.seek(0)
            found = [OBJECT.unpack(record)[0] for record in iter(lambda: file.read(OBJECT.size), b"")]
    finally:
        for name in names:
            (folder / name).unlink()
    assert len([target for _, target in way.requests if "list-type=2" in target]) == 3
    found = [key.rstrip(b"\0").decode().rsplit("/", 1)[1] for key in found]
    assert len(found) == len(set(found)) and names <= set(found)


def test_uploads_of_today_stay_and_old_ones_go(store):
    status_of, text = store.ask("POST", f"{PREFIX}{INSTANCE}/begun", (("uploads", ""),))
    assert status_of == 200
    upload = text.partition(b"<UploadId>")[2].partition(b"<")[0].decode()
    with file_of() as file:
        assert Job(store, LIST, "", file).end()[4] == 0
    assert store.uploads() == [f"{PREFIX}{INSTANCE}/begun"]
    # Two days later, as the server sees it.
    old = time.time() - 2 * 86400
    for folder in (store.home / "data" / BUCKET).rglob(f"*{upload}*"):
        os.utime(folder, (old, old))
    status_of, _ = store.ask("POST", "other/begun", (("uploads", ""),))
    assert status_of == 200
    for folder in (store.home / "data" / BUCKET).rglob("*"):
        if folder.is_dir() and folder.name != BUCKET:
            os.utime(folder, (old, old))
    with file_of() as file:
        assert Job(store, LIST, "", file).end()[4] == 1
    assert store.uploads() == ["other/begun"]


def test_old_uploads_go_whatever_stands_between_them():
    """Those of others, which the server was not asked for; one by a name that we give nothing; one that it keeps."""
    def upload(key):
        return f"<Upload><Key>{key}</Key><UploadId>u</UploadId><Initiated>2001-01-01T00:00:00Z</Initiated></Upload>"

    own = f"{PREFIX}{INSTANCE}/"
    text = "".join(map(upload, [f"other/{number}" for number in range(70)] + [own + "a b", own + "../x", own + "kept", own + "old"]))

    def answer(method, target):
        if method == "DELETE":
            return whole("", "403 Forbidden" if "/kept?" in target else "204 No Content")
        return whole(page() if "list-type=2" in target else
                     f"<ListMultipartUploadsResult>{text}</ListMultipartUploadsResult>")

    with lying(answer) as liar:
        answer, _ = list_of(liar)
        deleted = [target for method, target in liar.requests if method == "DELETE"]
    assert deleted == [f"/{BUCKET}/{own}{name}?uploadId=u" for name in ("kept", "old")]
    assert (status(answer), answer[4]) == (DENIED, 1), answer


@pytest.mark.skipif(ASAN, reason="a sanitizer has memory of its own")
def test_its_memory_has_a_bound(store, tmp_path):
    """Of a GiB it holds little: the file is read as it is sent."""
    size = 1 << 30
    with open(tmp_path / "big", "w+b") as file:
        for _ in range(size // (16 * MIB)):
            file.write(os.urandom(MIB) * 16)
        file.seek(0)
        job = Job(store, PUT, "big", file, size)
        peak = 0
        while job.process.poll() is None:
            with contextlib.suppress(OSError, StopIteration):
                with open(f"/proc/{job.process.pid}/status", encoding="ascii") as lines:
                    peak = max(peak, int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))))
            time.sleep(0.02)
        answer = job.end(600)
    assert status(answer) == DONE, answer
    print(f"peak {peak} KiB")
    assert 0 < peak < 40 * 1024
    with open(tmp_path / "back", "w+b") as back:
        assert status(Job(store, GET, answer[6], back, size).end(600)) == DONE
    assert subprocess.run(["cmp", tmp_path / "big", tmp_path / "back"], check=False).returncode == 0
    assert status(Job(store, DELETE, answer[6]).end()) == DONE


def test_a_certificate_is_checked(tmp_path):
    """The control: the same server, trusted."""
    files = certificate(tmp_path, "s3.example")
    store = Store(tls=files)
    trusted = "/etc/ssl/certs/ca-certificates.crt"
    try:
        answer = put(store, "secret", b"x")
        assert status(answer) == TLS, answer
        both = tmp_path / "both"
        with open(trusted, "rb") as now:
            both.write_bytes(now.read() + files[0].read_bytes())
        subprocess.run(["mount", "--bind", str(both), trusted], check=True)
        try:
            answer = put(store, "secret", b"x")
            assert status(answer) == DONE, answer
        finally:
            subprocess.run(["umount", trusted], check=True)
    finally:
        store.done()


def test_it_ends_with_a_signal_of_nobody(store):
    """A job that never comes: the end of the socket ends it."""
    with file_of() as file:
        job = Job(store, GET, f"{PREFIX}none", file, 1)
        job.end()
    assert job.process.returncode != -signal.SIGKILL


@contextlib.contextmanager
def lying(answer):
    liar = Liar(answer)
    try:
        yield liar
    finally:
        liar.done()


def list_of(liar):
    """(answer, objects: key, bytes, time)"""
    with file_of() as file:
        answer = Job(liar, LIST, "", file).end()
        file.seek(0)
        found = [OBJECT.unpack(record) for record in iter(lambda: file.read(OBJECT.size), b"")]
    return answer, [(key.rstrip(b"\0").decode(), size, at) for key, size, at in found]


def page(*contents):
    return "<ListBucketResult>" + "".join(f"<Contents>{text}</Contents>" for text in contents) + "</ListBucketResult>"


def test_a_list_leads_to_nothing_of_others():
    """A server that gives no heed to the prefix, and one that does not say when an object was written."""
    ours = f"{PREFIX}{INSTANCE}/ours"
    text = page(f"<Key>{PREFIX}ffffffff/theirs</Key><LastModified>2001-01-01T00:00:00Z</LastModified>",
                "<Key>other/theirs</Key>", f"<Key>{ours}</Key><Size>5</Size>")
    with lying(lambda method, target: whole(text if "list-type=2" in target else "<ListMultipartUploadsResult/>")) as liar:
        answer, found = list_of(liar)
    assert status(answer) == DONE
    assert found == [(ours, 5, 2**64 - 1)]


def test_an_answer_without_an_end_is_left():
    def endless(_method, _target):
        yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<ListBucketResult>"
        while True:
            yield b" " * 65536

    with lying(endless) as liar:
        begin = time.monotonic()
        assert status(list_of(liar)[0]) == SERVER
        assert status(get(liar, f"{PREFIX}x", 1000)[0]) == SIZE
        with file_of(b"x") as file:
            assert status(Job(liar, PUT, "x", file, 1).end()) == SERVER
    assert time.monotonic() - begin < 20 * PATIENCE


@pytest.mark.parametrize(("doctype", "expected"), [("", DONE), ("<!DOCTYPE a [<!ENTITY b 'of another one'>]>", SERVER)])
def test_a_list_declares_no_entity(doctype, expected):
    text = doctype + page(f"<Key>{PREFIX}{INSTANCE}/{'&b;' if doctype else 'b'}</Key>")
    with lying(lambda method, target: whole(text)) as liar:
        answer, found = list_of(liar)
    assert status(answer) == expected
    assert len(found) == (expected == DONE)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_404_of_a_proxy_says_nothing_of_an_object(method):
    with lying(lambda method, target: whole("404 page not found", "404 Not Found")) as liar:
        key = f"{PREFIX}{INSTANCE}/there"
        answer = get(liar, key, 5)[0] if method == "GET" else Job(liar, DELETE, key).end()
    assert status(answer) == SERVER


def test_a_redirection_is_not_followed(store):
    def elsewhere(_method, target):
        return whole("", "307 Temporary Redirect", f"Location: http://127.0.0.1:{other.port}{target}\r\n")

    with lying(lambda method, target: whole("stolen")) as other, lying(elsewhere) as liar:
        answer, content = get(liar, f"{PREFIX}x", 6)
        assert (status(answer), content, other.requests) == (SERVER, b"", [])
        # It would have been taken there.
        answer, content = get(other, f"{PREFIX}x", 6)
        assert (status(answer), content) == (DONE, b"stolen")


@pytest.mark.parametrize("is_there", [True, False])
def test_an_upload_whose_last_answer_was_lost_is_asked_for(store, way, is_there):
    lost = []

    def rule(method, target):
        if method == "POST" and "uploadId=" in target and not lost:
            lost.append(target)
            return "cut"
        return None

    # In the middle of its answer, when the object is there; or of the request, when it is not.
    way.rule = rule
    way.cuts_answers = is_there
    content = os.urandom(20 * MIB)
    answer = put(store, f"lost-{is_there}", content, port=way.port)
    assert status(answer) == DONE and lost
    assert get(store, f"{PREFIX}{INSTANCE}/lost-{is_there}", len(content))[1] == content
    assert not [key for key in store.uploads() if key.startswith(PREFIX)]


@pytest.mark.parametrize(("code", "size", "expected"), [("InternalError", 9, SERVER), ("NoSuchUpload", 0, SIZE),
                                                       ("NoSuchUpload", 9, DONE)])
def test_the_end_of_an_upload_may_be_an_error(code, size, expected):
    """The status is 200: what it says stands in its body. An upload that is not there any more may have been ended by a
    try whose answer was lost, so the object's size decides."""
    def answer(method, target):
        if method == "HEAD":
            return [f"HTTP/1.1 200 OK\r\nContent-Length: {size * MIB}\r\nConnection: close\r\n\r\n".encode()]
        if method == "POST" and "uploads=" in target:
            return whole("<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
        if method == "POST":
            return whole(f"<Error><Code>{code}</Code></Error>", more="")
        return whole("", more='ETag: "e"\r\n')

    with lying(answer) as liar:
        assert status(put(liar, "wrong", bytes(9 * MIB))) == expected
    given_up = ("DELETE", f"/{BUCKET}/{PREFIX}{INSTANCE}/wrong?uploadId=u") in liar.requests
    assert given_up == (expected == SERVER)
