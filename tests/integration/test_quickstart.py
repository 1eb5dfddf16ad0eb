"""The quickstart from a copy of the checkout whose path has a space in it."""
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from harness import PATIENCE, ROOT, Client, is_zombie, wait_until

pytestmark = pytest.mark.quickstart


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """What a clean clone holds; the second user of the module finds it built."""
    place = tmp_path_factory.mktemp("quick start") / "sand box"
    place.mkdir()
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        source = ROOT / name
        if source.is_file():
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    yield place
    quickstart(place, "--stop")
    shutil.rmtree(place)


def quickstart(place, *words, cwd="/"):
    return subprocess.run([str(place / "quickstart"), *map(str, words)], capture_output=True,
                          text=True, timeout=900 * PATIENCE, cwd=cwd, check=False)


def test_demonstration_twice_in_a_row(checkout):
    for _ in range(2):
        result = quickstart(checkout)
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
        lines = result.stdout.splitlines()
        assets = len(list((checkout / "tests/data/components").glob("*.yaml")))
        assert lines[-1] == f"quickstart: ok: {assets} assets executed, session removed"
        assert lines[-2].startswith("manifest only: nothing was materialised")
        assert "isolation: as promised" in result.stdout
        assert any(line.startswith("nothing is left") for line in lines)
    assert not [n for n in os.listdir("/run") if n.startswith("sandboxd-qs-")]


def test_every_program_of_an_installation_is_built(checkout):
    lists = [*ROOT.glob("*/CMakeLists.txt"), *ROOT.glob("*/*/CMakeLists.txt"), *ROOT.glob("*/*.cmake")]
    texts = {path: path.read_text() for path in lists if path != ROOT / "cmake/Product.cmake"}
    assert not [path for path, text in texts.items() if "install(TARGETS" in text]
    installed = {name for text in texts.values() for name in re.findall(r"sandboxd_product\((\S+)", text)}
    assert {"sandboxd", "sandboxctl", "sandboxd-helper", "sandbox-shim", "sandbox-canary"} <= installed
    assert installed <= set(os.listdir(checkout / "build/release/bin"))


def test_a_later_prefix_is_the_one_of_the_programs(checkout, tmp_path):
    """The README's package is made in the folder that the quickstart has configured."""
    for words, folder in (([], "/usr/local/libexec/sandboxd"), (["-DCMAKE_INSTALL_PREFIX=/usr"], "/usr/libexec/sandboxd")):
        subprocess.run(["cmake", "-S", str(checkout), "--preset", "release", "-B", str(tmp_path), *words],
                       capture_output=True, timeout=300 * PATIENCE, check=True)
        commands = (tmp_path / "compile_commands.json").read_text()
        assert set(re.findall(r'SANDBOXD_LIBEXECDIR=[\\"]*([^\\"]+)', commands)) == {folder}


def test_missing_directory_is_an_error(checkout):
    for words, text in ((["/nonexistent"], "no such directory"), ([""], "no such directory"),
                        (["/etc/passwd"], "not a directory")):
        result = quickstart(checkout, *words)
        assert result.returncode == 1 and text in result.stderr


def test_wrong_usage_says_how(checkout):
    for words in (["--bogus"], ["/tmp", "/tmp"], ["--stop", "/tmp"]):
        result = quickstart(checkout, *words)
        assert result.returncode == 2 and result.stderr.startswith("usage: ./quickstart")


def test_directory_with_random_names(checkout, tmp_path):
    for name in ("good.yaml", "Größe.yaml", "two words.yaml", "notes.txt", "stored.yml"):
        (tmp_path / name).write_text("type: a.B\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.yaml").symlink_to("/etc/passwd")
    (tmp_path.parent / "by a link").symlink_to(tmp_path)
    result = quickstart(checkout, tmp_path.parent / "by a link")
    assert result.returncode == 1, result.stdout
    assert result.stdout.count("refused") >= 2
    assert result.stdout.count("ignored") == 3
    assert "written  stored.yml (becomes no asset" in result.stdout
    assert "2 files refused; 1 asset executed, session removed" in result.stderr


def test_stop_after_the_service_was_killed(checkout):
    """Its sessions live on until it is started again: --stop does that, and ends them."""
    served = quickstart(checkout, "--serve")
    assert served.returncode == 0, served.stderr
    control = Path(served.stdout.splitlines()[-1][len("quickstart: socket "):])
    Client(control, user="alice", scopes="data:read data:write").create()
    pid = int((control.parent.parent / "pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_zombie(pid), 10, "it is dead")
    stopped = quickstart(checkout, "--stop")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert "nothing is left" in stopped.stdout and not control.exists()


def test_serve_and_stop(checkout):
    for _ in range(2):
        served = quickstart(checkout, "--serve")
        assert served.returncode == 0, served.stderr
        last = served.stdout.splitlines()[-1]
        assert last.startswith("quickstart: socket ")
        path = last[len("quickstart: socket "):]
        caller = Client(path, user="alice", scopes="data:read data:write")
        assert caller.get("/dagster/sandbox/sessions").status == 200
    session = caller.create()
    assert caller.run(session, "/bin/echo", "hi").out == b"hi\n"
    curl = subprocess.run(
        ["curl", "-sS", "--unix-socket", path, "-H", "X-Sandbox-User: alice", "-H",
         "X-Sandbox-Scopes: data:read data:write",
         f"http://localhost/dagster/sandbox/sessions/{session}"], capture_output=True, check=False)
    assert json.loads(curl.stdout)["id"] == session
    assert quickstart(checkout, "--stop").returncode == 0
    assert not Path(path).exists()
    with pytest.raises((OSError, http.client.HTTPException)):
        caller.get("/healthz")
    assert quickstart(checkout, "--stop").returncode == 0
