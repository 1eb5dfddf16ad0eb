"""The examples of the documents are run as they stand."""
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def literal_after(text, heading):
    """The first literal block behind a heading of an mdoc page, as a reader sees it."""
    block = re.search(r"\.Sh %s\n.*?\.Bd -literal[^\n]*\n(.*?)\n\.Ed" % heading, text, re.S).group(1)
    return block.replace("\\e", "\\")


def run(script, socket):
    return subprocess.run(
        ["bash", "-euc", f"sock={socket}\n{script}"], capture_output=True, text=True, timeout=60, check=False
    )


def test_examples_of_the_api_manual_work(daemon):
    script = literal_after((ROOT / "docs/man/sandboxd-api.7").read_text(encoding="utf-8"), "EXAMPLES")
    result = run(script, daemon.control)
    assert result.returncode == 0, result.stderr
    # Answers end without a newline; every one is JSON, a frame of the stream, or an event line.
    assert '"components":["daily.yaml"]' in result.stdout
    assert '"asset_keys":[["sandbox","daily"]]' in result.stdout
    frames = [json.loads(line[6:]) for line in result.stdout.splitlines() if line.startswith("data: ")]
    assert [frame["stage"] for frame in frames] == ["start", "materialize", "done"]
    assert '"folder_removed":true' in result.stdout
    assert '"detail"' not in result.stdout


def test_curl_of_the_readme_works(daemon):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"^(curl --unix-socket.*?)\n```", readme, re.S | re.M).group(1)
    result = run(command, daemon.control)
    assert result.returncode == 0, result.stderr
    made = json.loads(result.stdout)
    assert made["status"] == "open"
    daemon.root.delete(f"/dagster/sandbox/sessions/{made['id']}")


def test_every_route_is_in_the_api_manual(daemon):
    page = (ROOT / "docs/man/sandboxd-api.7").read_text(encoding="utf-8").replace("\\", "")
    missing = []
    for path in daemon.root.get("/openapi.json").json["paths"]:
        tail = re.sub(r"\{[^}]*\}", "ID", path)
        for prefix in ("/dagster/sandbox", "/v1/sandboxes"):
            tail = tail[len(prefix):] or "/" if tail.startswith(prefix) else tail
        if tail not in page:
            missing.append(path)
    # Only sandboxctl uses these; sandboxctl(1) describes what it shows of them.
    assert missing == ["/v1/sandboxes/{id}/proof", "/v1/sandboxes/{id}/trace"]
