"""Documents of the shapes that projects use, and hostile ones, through the loader."""
import json

import pytest

from harness import DATA, PATIENCE, SESSIONS


BROKEN = {"wrong_indent.yaml"}


@pytest.fixture(scope="module")
def loaded(daemon):
    caller = daemon.client("loader")
    session = caller.create()
    names = []
    for path in sorted((DATA / "components").iterdir()):
        if path.suffix in (".yaml", ".yml") and path.is_file():
            assert caller.write(session, path.name, path.read_text()).status == 200, path
            names.append(path.name)
    summary = caller.post(f"{SESSIONS}/{session}/load").json
    yield caller, session, names, summary
    caller.remove(session)


def test_assets_are_the_yaml_files_sorted(loaded):
    _, _, names, summary = loaded
    stems = [name[:-5] for name in sorted(names) if name.endswith(".yaml")]
    assert summary["asset_keys"] == [["sandbox", stem] for stem in stems]
    assert sorted(summary["components"]) == sorted(names)


def test_only_broken_documents_have_problems(loaded):
    _, _, names, summary = loaded
    files = {problem["file"] for problem in summary["sandbox"]["problems"]}
    assert files == BROKEN and BROKEN <= set(names), summary["sandbox"]["problems"]
    for problem in summary["sandbox"]["problems"]:
        assert problem["line"] >= 1 and problem["column"] >= 1 and problem["text"]


def test_problem_is_on_the_frame_and_hides_nothing(loaded):
    caller, session, names, _ = loaded
    frames = caller.frames(caller.execute(session))
    marked = {
        frame["asset_key"][1]
        for frame in frames
        if frame["stage"] == "materialize" and frame.get("metadata", {}).get("problem")
    }
    assert marked == {name[:-5] for name in BROKEN}
    assert frames[-1]["stage"] == "done"
    assert frames[-1]["result"]["asset_count"] == len(
        [name for name in names if name.endswith(".yaml")])


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [" + ", ".join([f"*{chr(97 + i)}"] * 9) + "]\n"
    for i in range(8)
)
HOSTILE = {
    "alias_bomb": "type: a.B\n" + BOMB,
    "recursive": "type: a.B\nattributes: &a [*a]\n",
    "flow_nesting": "type: a.B\nattributes: " + "[" * 200000,
    "flow_maps": "type: a.B\nattributes: " + "{a: " * 50000,
    "block_nesting": "type: a.B\nattributes:\n" + "".join(
        " " * (i + 1) + "a:\n" for i in range(900)),
    "long_scalar": "type: a.B\nattributes:\n  a: " + "x" * (1024 * 1024 - 100) + "\n",
    "tabs": "type: a.B\n\tattributes: {}\n",
    "duplicate": "type: a.B\ntype: c.D\n",
    "empty": "",
    "comment": "# nothing\n",
    "python_tag": "type: !!python/object/apply:os.system [id]\n",
    "many_documents": "---\ntype: a.B\n" * 5000,
    "many_aliases": "type: a.B\nattributes:\n  a: &a 1\n  b: [" + "*a, " * 20000 + "*a]\n",
    "line_separator": "type: a.B\nattributes: {a: 'x\u2028y\u0085z'}\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_document_is_reported_or_harmless(alice, session, name):
    assert alice.write(session, name, HOSTILE[name]).status == 200
    assert alice.write(session, "good", "type: a.B\n").status == 200
    summary = alice.post(f"{SESSIONS}/{session}/load")
    assert summary.status == 200, summary
    assert ["sandbox", "good"] in summary.json["asset_keys"]
    assert ["sandbox", name] in summary.json["asset_keys"]
    files = {problem["file"] for problem in summary.json["sandbox"]["problems"]}
    assert "good.yaml" not in files
    if name not in ("long_scalar", "line_separator", "many_documents", "recursive"):
        assert f"{name}.yaml" in files
    assert len(json.dumps(summary.json["sandbox"]["problems"])) < 1 << 20


def test_files_that_a_command_left_are_not_followed(alice, session):
    alice.shell(session, "ln -s /etc/passwd /session/link.yaml; mkfifo /session/pipe.yaml; "
                         "mkdir /session/dir.yaml; ln -s / /session/root")
    alice.write(session, "good", "type: a.B\n")
    summary = alice.post(f"{SESSIONS}/{session}/load").json
    assert summary["asset_keys"] == [["sandbox", "good"]]


def test_written_over_a_symlink_replaces_the_link(alice, session):
    alice.shell(session, "ln -s /session/other /session/demo.yaml; echo safe > /session/other")
    assert alice.write(session, "demo", "type: a.B\n").status == 200
    assert alice.shell(session, "cat /session/other").out == b"safe\n"


def test_folder_that_cannot_be_entered_is_a_problem_not_an_error(alice, session):
    """The request has done what it was for: what is wrong with the folder stands in the summary."""
    alice.write(session, "one", "type: a.B\n")
    assert alice.post(f"{SESSIONS}/{session}/load").json["asset_keys"] == [["sandbox", "one"]]
    assert alice.run(session, "/bin/chmod", "000", "/session").code == 0
    answer = alice.post(f"{SESSIONS}/{session}/load")
    assert answer.status == 200, answer
    assert answer.json["asset_keys"] == []
    problems = answer.json["sandbox"]["problems"]
    assert [(p["file"], p["text"]) for p in problems] == [
        ("", "the loader failed at step cwd: EACCES")]
    frames = alice.frames(alice.execute(session))
    assert [frame["stage"] for frame in frames] == ["start", "error"]
    assert alice.run(session, "/bin/chmod", "700", "/session", cwd="/").code == 0
    assert alice.post(f"{SESSIONS}/{session}/load").json["asset_keys"] == [["sandbox", "one"]]


def test_component_count_is_bounded(alice, session):
    statuses = [alice.write(session, f"c{i}", "type: a.B\n").status for i in range(201)]
    assert statuses[:200] == [200] * 200
    assert statuses[200] == 429


def test_more_records_than_the_ring_holds(daemon):
    """1.7 MiB of records, more than the shim keeps unacknowledged."""
    caller = daemon.client("many")
    session = caller.create()
    script = "cd /session; i=0; while [ $i -lt 200 ]; do cp n.txt n$i.yaml; i=$((i+1)); done"
    documents = "for d in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do echo 'a: 1'; echo ---; done"
    assert caller.shell(session, f"({documents}) >n.txt; {script}").code == 0
    frames = caller.frames(caller.execute(session))
    assert frames[-1]["stage"] == "done", frames[-1]
    assert frames[-1]["result"]["asset_count"] == 200
    assert frames[-1]["result"]["problem_count"] == 3200
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    caller.remove(session)


def test_files_beyond_the_limit_and_long_names_hide_nothing(daemon):
    caller = daemon.client("beyond")
    session = caller.create()
    long = "n" * 200
    script = (f"echo 'type: a.B' >{long}.yaml;"
              " i=0; while [ $i -lt 205 ]; do echo 'type: a.B' > n$i.yaml; i=$((i+1)); done")
    assert caller.shell(session, script).code == 0
    frames = caller.frames(caller.execute(session))
    assert frames[-1]["stage"] == "done", frames[-1]
    assert frames[-1]["result"]["asset_count"] == 200
    assert [p["file"] for p in frames[-1]["result"]["problems"]] == [""]
    caller.remove(session)
