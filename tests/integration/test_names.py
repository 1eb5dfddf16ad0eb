"""Every row of tests/data/names.tsv through the real API."""
import pytest

from harness import DATA, SESSIONS


def rows():
    """(row, status, JSON text) of each line."""
    for line in (DATA / "names.tsv").read_text().splitlines():
        if not line.startswith("#"):
            yield pytest.param(*line.split("\t"), id=line.split("\t")[0])


@pytest.fixture(scope="module")
def shared(daemon):
    caller = daemon.client("namer")
    session = caller.create()
    yield caller, session
    caller.remove(session)


@pytest.mark.parametrize("row,status,name", list(rows()))
def test_component_name(shared, row, status, name):
    caller, session = shared
    text = bytes.fromhex(name[4:]) if name.startswith("hex:") else name.encode()
    body = b'{"name":' + text + b',"body":"type: a.B\\n"}'
    answer = caller.request("POST", f"{SESSIONS}/{session}/components", raw_body=body)
    assert answer.status == int(status), answer
    if answer.status == 400:
        assert answer.body == b'{"detail":"invalid component name"}'
    if answer.status == 422:
        assert all(set(item) == {"type", "loc", "msg"} for item in answer.json["detail"])


def test_only_accepted_names_are_stored(shared):
    caller, session = shared
    stored = caller.get(f"{SESSIONS}/{session}").json["components"]
    assert sorted(stored) == sorted(["X.yaml", "a.YAML.yaml", "a.yaml", "a.yml", "x.yaml",
                                     "x" * 128 + ".yaml"])
    listed = caller.run(session, "/bin/ls", "/session").text.split()
    assert {name for name in listed if name.endswith((".yaml", ".yml"))} == set(stored)


def test_yml_is_stored_and_never_an_asset(shared):
    caller, session = shared
    loaded = caller.post(f"{SESSIONS}/{session}/load").json
    files = sorted(["X.yaml", "a.yaml", "x.yaml", "a.YAML.yaml", "x" * 128 + ".yaml"])
    assert loaded["asset_keys"] == [["sandbox", name[:-5]] for name in files]
