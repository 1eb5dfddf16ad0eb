"""Whose a sandbox of /v1 is, and what its errors say."""
import pytest

from harness import RUNTIME


@pytest.mark.parametrize("workspace,own", [("blue", "blue"), (None, "user:ana")])
def test_the_organisation_is_the_callers(daemon, workspace, own):
    caller = daemon.client("ana", workspace=workspace)
    for body in ({}, {"organization_uuid": None}, {"organization_uuid": own}):
        made = caller.post(RUNTIME, body)
        assert made.status == 201 and made.json["organization_uuid"] == own, made
        url = f"{RUNTIME}/{made.json['sandbox_uuid']}"
        assert caller.get(url).json["organization_uuid"] == own
        assert caller.delete(url).status == 200
    for other in ("green", "user:bob", "user:", own + "x"):
        refused = caller.post(RUNTIME, {"organization_uuid": other})
        assert refused.status == 403, refused
        assert refused.json == {"detail": "organization_uuid is of another one", "code": "denied", "retryable": False}
    for wrong in (7, "", "a b", "x" * 42):
        refused = caller.post(RUNTIME, {"organization_uuid": wrong})
        assert refused.status == 422 and refused.json["detail"][0]["loc"] == ["body", "organization_uuid"], refused


def test_the_operator_says_whose_it_is(daemon):
    made = daemon.root.post(RUNTIME, {"organization_uuid": "blue"}).json
    assert made["organization_uuid"] == "blue"
    url = f"{RUNTIME}/{made['sandbox_uuid']}"
    assert daemon.client("ana", workspace="blue").get(url).status == 200
    assert daemon.client("ana", workspace="green").get(url).status == 404
    assert daemon.client("ana").get(url).status == 404
    assert daemon.root.delete(url).status == 200
    made = daemon.root.post(RUNTIME, {}).json
    assert made["organization_uuid"] is None
    daemon.root.delete(f"{RUNTIME}/{made['sandbox_uuid']}")


def test_a_workspace_of_that_name_is_nobodys_user(daemon):
    """`user:ana` as a workspace is another's than ana without one."""
    made = daemon.client("ana").post(RUNTIME, {}).json
    url = f"{RUNTIME}/{made['sandbox_uuid']}"
    assert daemon.client("bob", workspace="user:ana").get(url).status == 404
    assert daemon.client("ana").delete(url).status == 200


def test_errors_have_a_code(daemon):
    caller = daemon.client("ana", scopes="data:read")
    refused = caller.post(RUNTIME, {})
    assert (refused.status, refused.json["code"], refused.json["retryable"]) == (403, "denied", False), refused
    caller = daemon.client("ana")
    made = caller.post(RUNTIME, {"name": "one"}).json["sandbox_uuid"]
    refused = caller.post(RUNTIME, {"name": "one"})
    assert (refused.status, refused.json["code"], refused.json["retryable"]) == (409, "conflict", False), refused
    assert caller.delete(f"{RUNTIME}/{made}").status == 200
    # The routes of Dagster say what they always said.
    refused = caller.post("/dagster/sandbox/janitor")
    assert refused.status == 403
    assert set(refused.json) == {"detail"}, refused
