"""A turn of a data app: `npm ci` and a Vite build in the template data-app, suspended to an object store, resumed by a fresh
service, and opened in a browser through the file API.

tests/templates/run starts it and says by the environment what it needs: DATA_APP is the image, NPM_REGISTRY the registry's
URL, NPM_RELAY a Unix socket that leads to it (relay.py). Sessions meet the registry as a server of the test's world
(egress_rig.py): it has a public address there, the name server of the world knows its name, and what comes is carried to
the real one. So the rule, the resolver and the worker for egress do here what they do where the address is the
registry's own, wherever this host's names lead to, and npm sees the registry's certificate.
"""
import contextlib
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

from egress_rig import WORLD, hosted_world  # noqa: E402
from harness import BIN, RUNTIME, Daemon, wait_until  # noqa: E402
from postgres_rig import Postgres  # noqa: E402
from relay import serve  # noqa: E402
from s3_rig import Store  # noqa: E402

MIB = 1 << 20
REGISTRY = urllib.parse.urlsplit(os.environ["NPM_REGISTRY"])
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
APP = "/session/app"
# Vite 5 is the last one for the Node of Debian 12. React is what most pages of the kind are made of.
FILES = {
    "package.json": json.dumps({"name": "shop", "private": True, "type": "module", "scripts": {"build": "vite build"},
                                "dependencies": {"react": "^18.3.0", "react-dom": "^18.3.0"},
                                "devDependencies": {"vite": "^5.4.0"}}),
    "index.html": '<!doctype html><title>shop</title><div id="root"></div><script type="module" src="/main.js"></script>\n',
    "main.js": 'import { createElement, useEffect, useState } from "react";\n'
               'import { createRoot } from "react-dom/client";\n'
               "function Total() {\n"
               "  const [rows, set] = useState([]);\n"
               '  useEffect(() => { fetch("/rows.json").then((answer) => answer.json()).then(set); }, []);\n'
               '  return createElement("p", null, "total=" + rows.reduce((sum, row) => sum + row.amount, 0));\n'
               "}\n"
               'createRoot(document.getElementById("root")).render(createElement(Total));\n',
    "public/rows.json": json.dumps([{"amount": 4000}, {"amount": 711}]),
}
SHOWN = "total=4711"
# What its users brought along: cannot be compressed.
FILL = "mkdir data && for i in 1 2 3 4 5 6 7 8 9 10; do head -c 20971520 /dev/urandom >data/$i || exit 1; done"
SUMS = "find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum"


class Service(Daemon):
    """Its configuration has credentials."""

    def configure(self, config):
        super().configure(config)
        os.chmod(self.config, 0o600)

    def take_template(self):
        subprocess.run([str(BIN / "sandboxctl"), "template", "import", "data-app", os.environ["DATA_APP"],
                        "--state-dir", str(self.state)], check=True, timeout=300)


class App:
    """The sandbox and who works in it."""

    def __init__(self, caller, session):
        self.caller = caller
        self.session = session

    def post(self, what, body=None):
        answer = self.caller.post(f"{RUNTIME}/{self.session}/{what}", body, timeout=600)
        assert answer.status == 200, answer
        return answer.json

    def try_resume(self):
        answer = self.caller.post(f"{RUNTIME}/{self.session}/resume", timeout=600)
        assert answer.status in (200, 404), answer
        return answer.json if answer.status == 200 else None

    def put(self, path, content):
        answer = self.caller.request("PUT", f"{RUNTIME}/{self.session}/files?path={path}", raw_body=content, timeout=600)
        assert answer.status == 200, answer

    def get(self, path):
        return self.caller.get(f"{RUNTIME}/{self.session}/files?path={urllib.parse.quote(path)}", timeout=600)

    def allow(self, *rules):
        answer = self.caller.request("PUT", f"{RUNTIME}/{self.session}/egress", {"allow": list(rules)})
        assert answer.status == 200, answer

    def try_run(self, script):
        variables = {"NPM_CONFIG_REGISTRY": REGISTRY.geturl(), "NODE_EXTRA_CA_CERTS": "/session/authorities.pem",
                     "NPM_CONFIG_CAFILE": "/session/authorities.pem", "NPM_CONFIG_AUDIT": "false",
                     "NPM_CONFIG_FUND": "false", "NPM_CONFIG_UPDATE_NOTIFIER": "false", "NPM_CONFIG_FETCH_RETRIES": "0"}
        return self.caller.shell(self.session, script, cwd=APP, envs=variables, timeout_ms=600000, timeout=600)

    def run(self, script):
        done = self.try_run(script)
        assert done.code == 0, done
        return done.text


@contextlib.contextmanager
def step(name):
    """How long it took is printed."""
    begin = time.monotonic()
    yield
    print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)


class Registry:
    """It as the world has it: how many connections came."""

    def __init__(self, world):
        self.n = 0
        world.names[REGISTRY.hostname] = [f"{WORLD}.3"]
        threading.Thread(target=serve, args=(world.listen(f"{WORLD}.3", REGISTRY.port or 443), self.dial), daemon=True).start()

    def dial(self):
        self.n += 1
        outside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        outside.connect(os.environ["NPM_RELAY"])
        return outside


@pytest.fixture(name="turn", scope="module")
def fixture_turn(tmp_path_factory):
    """The whole of it up to the resume; what was seen on the way is looked at by the tests."""
    seen = {}
    rule = f"{REGISTRY.hostname}:{REGISTRY.port or 443}"
    with contextlib.ExitStack() as stack:
        registry = Registry(stack.enter_context(hosted_world(tmp_path_factory)))
        store = Store()
        stack.callback(store.done)
        postgres = Postgres()
        stack.callback(postgres.done)
        postgres.ready()
        config = postgres.config() + store.config()
        with contextlib.ExitStack() as first:
            one = Service(config)
            first.callback(one.done)
            with step("import of the template"):
                one.take_template()
            caller = one.client("ana")
            app = App(caller, caller.create_runtime(template="data-app", workspace={"include": [APP]}))
            for path, text in FILES.items():
                app.put(f"{APP}/{path}", text.encode())
            app.put("/session/authorities.pem", Path(AUTHORITIES).read_bytes())
            with step("npm without a rule"):
                seen["without a rule"] = app.try_run("npm install --package-lock-only"), registry.n
            app.allow(rule)
            with step("npm install --package-lock-only"):
                app.run("npm install --package-lock-only")
            with step("npm ci"):
                seen["npm ci"] = app.run("npm ci")
            with step("vite build"):
                seen["build"] = app.run("npm run build")
            seen["connections"] = registry.n
            with step("200 MiB"):
                app.run(FILL)
            seen["bytes"] = int(app.run("du -sb .").split()[0])
            seen["sums"] = app.run(SUMS)
            seen["page"] = app.get(f"{APP}/dist/index.html").body
            with step("suspend"):
                seen["suspend"] = app.post("suspend", {"durable": "wait"})
            seen["objects"] = {key: len(store.get(key)) for key in store.keys()}
            with step("stop of the service"):
                assert one.stop() == 0
            with step("removal of all that it had"):
                first.pop_all().close()
        assert not one.home.exists()
        registry.n = 0
        with contextlib.ExitStack() as second:
            two = Service(config)
            second.callback(two.done)
            two.take_template()
            app.caller = two.client("ana")
            # 404 for what is left of the first service's lease.
            with step("resume, with the wait for it"):
                seen["resume"] = wait_until(app.try_resume, 90)
            yield app, seen, registry


def test_the_registry_is_reached_by_a_rule_alone(turn):
    _, seen, _ = turn
    refused, n = seen["without a rule"]
    assert refused.code != 0 and REGISTRY.hostname.encode() in refused.err and n == 0, ("the control", refused)
    assert re.search(r"added \d+ packages", seen["npm ci"]) and seen["connections"] > 0, seen
    assert re.search(r"dist/assets/index-\S+\.js", seen["build"]), seen["build"]


def test_a_large_workspace_goes_to_the_store(turn):
    _, seen, _ = turn
    assert seen["bytes"] > 200 * MIB
    assert seen["suspend"]["durable"] is True, seen["suspend"]
    assert len(seen["objects"]) == 1 and min(seen["objects"].values()) > 200 * MIB, seen["objects"]


def test_a_fresh_service_has_all_of_it(turn):
    app, seen, registry = turn
    assert seen["resume"]["resumed"] == "snapshot", seen["resume"]
    assert app.run(SUMS) == seen["sums"]
    app.allow()
    app.run("rm -r dist && npm run build")
    assert registry.n == 0, "what is built with is there"
    assert app.get(f"{APP}/dist/index.html").body == seen["page"]


class Front(http.server.BaseHTTPRequestHandler):
    """The folder of the build as a site: each request is one of the file API."""

    KINDS = {".html": "text/html", ".js": "text/javascript", ".json": "application/json"}

    def do_GET(self):  # pylint: disable=invalid-name
        path = self.path if self.path != "/" else "/index.html"
        answer = self.server.app.get(f"{APP}/dist{path}")
        self.send_response(answer.status)
        self.send_header("Content-Type", self.KINDS.get(Path(path).suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        self.server.paths.append((path, answer.status))

    def log_message(self, *_):
        pass


def test_the_page_runs_in_a_browser(turn, tmp_path):
    app, seen, _ = turn
    browser = shutil.which("chromium")
    if not browser:
        pytest.skip("there is no chromium")
    assert SHOWN.encode() not in seen["page"], "the control: it is the script's"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front) as site:
        site.app, site.paths = app, []
        threading.Thread(target=site.serve_forever, daemon=True).start()
        # Of root, so without its own sandbox; the namespaces are the test's.
        done = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                               f"--user-data-dir={tmp_path}", "--virtual-time-budget=10000", "--dump-dom",
                               f"http://127.0.0.1:{site.server_address[1]}/"],
                              capture_output=True, text=True, timeout=120, check=False, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
        site.shutdown()
    assert f"<p>{SHOWN}</p>" in done.stdout, (done, site.paths)
    assert ("/rows.json", 200) in site.paths and any(path.endswith(".js") for path, _ in site.paths), site.paths
