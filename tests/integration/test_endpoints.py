"""Endpoints and egress rules from the api's side: what is refused when it is asked for, what is told
of what is in force, and what a session's environment has."""
import json
import os
import signal

import pytest

from harness import CONFIG, RUNTIME, SESSIONS, Daemon, ctl, wait_until

MARK = "zq95mark"
CONFIGURED = CONFIG + f"""
[endpoint:iceberg_rest_uri]
companions = token.{MARK}.example:443 *.s3.{MARK}.example:9000
[endpoint:iceberg_warehouse]
production_buckets = lake/prod
[endpoint:datahub_gms_url]
production = gms.prod.example 203.0.113.0/24:8080
[endpoint:polaris_base_url]
production = polaris.shared.example
companions = polaris.shared.example:8181
shared_host = trust_credentials
[network]
allow_private = 10.1.0.0/16
host_services = localhost:8181
component_allow = pypi.example:443
"""
# Names beside the six that production's settings have too: never inherited, never set.
NEIGHBOURS = """REDIS_URL REDIS_PUBSUB_URL CACHE_REDIS_URL POSTGRES_DSN POSTGRES_ASYNC_DSN ICEBERG_S3_WAREHOUSE
    ICEBERG_REST_OAUTH2_SERVER_URI ICEBERG_REST_CREDENTIAL ICEBERG_REST_TOKEN ICEBERG_REST_EXTRA_PROPERTIES_JSON
    S3_ENDPOINT_URL S3_ACCESS_KEY_ID S3_SECRET_ACCESS_KEY KAFKA_ADMIN_BOOTSTRAP SCHEMA_REGISTRY_URL
    AIRBYTE_BASE_URL AIRBYTE_API_URL AIRBYTE_AUTH_TOKEN DAGSTER_WEBSERVER_URL DAGSTER_GRAPHQL_URL TRINO_URI
    MLFLOW_TRACKING_URI NEO4J_URI RAY_ADDRESS DASK_SCHEDULER_ADDRESS CELERY_BROKER_URL
    CELERY_RESULT_BACKEND""".split()
OUTSIDE = "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_ENDPOINT_URL DATAHUB_GMS_TOKEN HTTP_PROXY https_proxy".split()


@pytest.fixture(name="own", scope="module")
def fixture_own():
    """A service that itself has all the neighbours in its environment."""
    planted = {f"ALPHASWARM_{name}": MARK for name in NEIGHBOURS} | dict.fromkeys(OUTSIDE, MARK)
    before = {name: os.environ.get(name) for name in planted}
    os.environ.update(planted)
    try:
        daemon = Daemon(config=CONFIGURED)
        daemon.deaths_expected = True  # one test ends a worker
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    yield daemon
    daemon.done()


@pytest.fixture(name="ann")
def fixture_ann(own):
    return own.client("ann", workspace="blue")


def refused(client, body, prefix=SESSIONS):
    """The only item of a 422, which holds nothing of what was sent."""
    answer = client.post(prefix, body)
    assert answer.status == 422, answer.body
    assert MARK.encode() not in answer.body
    (item,) = answer.json["detail"]
    return item["loc"], item["msg"]


def environment(client, session):
    return dict(line.split("=", 1) for line in client.shell(session, "env").text.splitlines() if "=" in line)


def egress(client, session, prefix=SESSIONS):
    answer = client.get(f"{prefix}/{session}/egress")
    assert answer.status == 200, answer.body
    return answer.json


@pytest.mark.parametrize("name, value, says", [
    ("iceberg_rest_uri", f"{MARK}:8181", "must begin with http:// or https://"),
    ("iceberg_rest_uri", f"ftp://{MARK}/", "must begin with http:// or https://"),
    ("polaris_base_url", f"http://{MARK}@a.example/", "user information"),
    ("polaris_base_url", f"http://a.example:0/{MARK}", "no valid port"),
    ("polaris_base_url", f"http://0x7f.1/{MARK}", "no valid host"),
    ("polaris_base_url", f"http://a.example/{MARK}\u0085", "control characters"),
    ("alpha_vantage_base_url", f"http://a.example/{MARK}#x", "fragment"),
    ("iceberg_warehouse", f"gs://{MARK}/x", "must be a path, s3://"),
    ("iceberg_warehouse", f"s3://{MARK}/../prod", "in its path"),
    ("iceberg_warehouse", f"s3://lake/prod/{MARK}", "production's bucket"),
    ("iceberg_warehouse", "s3://lake", "production's bucket"),
    ("kafka_bootstrap", f"{MARK}.example", "must be host:port"),
    ("kafka_bootstrap", f"{MARK}.example:9092,gms.prod.example:9092", "production host"),
    ("datahub_gms_url", f"https://GMS.Prod.Example./{MARK}", "production host"),
    ("iceberg_rest_uri", f"http://203.0.113.9:8080/{MARK}", "production host"),
    ("datahub_gms_url", f"http://localhost:8182/{MARK}", "host_services do not list"),
    ("datahub_gms_url", f"http://127.0.0.1:8181/{MARK}", "host_services do not list"),
    ("datahub_gms_url", f"http://[::1]:8181/{MARK}", "host_services do not list"),
    ("datahub_gms_url", f"http://10.2.0.1/{MARK}", "outside allow_private"),
    ("datahub_gms_url", f"http://169.254.169.254/{MARK}", "no session may reach"),
])
def test_a_value_is_refused_by_its_field(ann, name, value, says):
    loc, msg = refused(ann, {"env_overrides": {name: value}})
    assert loc == ["body", "env_overrides", name]
    assert says in msg


@pytest.mark.parametrize("prefix", [SESSIONS, RUNTIME])
@pytest.mark.parametrize("rules, says", [
    (["gms.prod.example:443"], "item 0 names a production host"),
    (["a.example", f"http://{MARK}"], "item 1 is no host with ports"),
    (["*.shared.example"], "item 0 names a production host"),
    ([7], "item 0 should be a valid string"),
    (["a.example"] * 65, "at most 64 items"),
])
def test_a_rule_is_refused_by_its_number(ann, prefix, rules, says):
    loc, msg = refused(ann, {"egress": {"allow": rules}}, prefix)
    assert loc == ["body", "egress", "allow"]
    assert says in msg


def test_what_is_in_force_is_told_without_endpoints(own, ann):
    session = ann.create(env_overrides={
        "iceberg_rest_uri": f"https://lake.{MARK}.example/catalog",
        "polaris_base_url": "http://polaris.shared.example:8181",
        "kafka_bootstrap": f"b1.{MARK}.example:9092,b2.{MARK}.example:9092",
    }, egress={"allow": ["pkg.example:443", "*.cdn.example:80,443"]})
    told = egress(ann, session)
    assert MARK not in json.dumps(told)
    assert told["session_id"] == session
    labels = [(rule["label"], rule["action"]) for rule in told["rules"]]
    assert labels == [
        ("endpoint:datahub_gms_url", "refuse"), ("endpoint:datahub_gms_url", "refuse"),
        ("endpoint:iceberg_rest_uri", "allow"),
        ("companion:iceberg_rest_uri", "allow"), ("companion:iceberg_rest_uri", "allow"),
        ("endpoint:polaris_base_url", "allow"), ("companion:polaris_base_url", "allow"),
        ("endpoint:kafka_bootstrap", "allow"), ("endpoint:kafka_bootstrap", "allow"),
        ("allow", "allow"), ("allow", "allow"), ("profile", "allow"),
    ]
    assert [(rule["host"], rule["ports"]) for rule in told["rules"] if rule["host"]] == [
        ("pkg.example", "443"), ("*.cdn.example", "80,443"), ("pypi.example", "443")]
    assert told["production_reachable_by_credentials"] == ["polaris_base_url"]
    start = ann.frames(ann.execute(session))[0]
    assert start["metadata"]["production_reachable_by_credentials"] == ["polaris_base_url"]
    # Of another tenant, as for every route.
    assert own.client("eve", workspace="red").get(f"{SESSIONS}/{session}/egress").status == 404
    ann.remove(session)


def test_rules_are_changed_kept_and_part_of_a_rebuild(own, ann):
    session = ann.create(egress={"allow": ["one.example:443"]})
    path = f"{SESSIONS}/{session}/egress"

    def allowed(client):
        return [rule["host"] for rule in egress(client, session)["rules"] if rule["label"] == "allow"]

    assert allowed(ann) == ["one.example"]
    for body in ({}, {"allow": "x"}, {"allow": [f"{MARK}:"]}, {"allow": [], "deny": []}):
        answer = ann.request("PUT", path, body)
        assert answer.status == 422 and MARK.encode() not in answer.body
    assert allowed(ann) == ["one.example"]
    answer = ann.request("PUT", path, {"allow": ["two.example:443", "three.example"]})
    assert answer.status == 200, answer.body
    assert allowed(ann) == ["two.example", "three.example"]
    reader = own.client("ann", workspace="blue", scopes="data:read")
    assert reader.request("PUT", path, {"allow": []}).status == 403
    assert allowed(reader) == ["two.example", "three.example"]
    os.kill(own.worker_pid("sandboxd-api"), signal.SIGKILL)

    def answers():
        try:
            return ann.get(path, timeout=5).status == 200
        except OSError:
            return False
    wait_until(answers, 15, "the next worker answers")
    assert allowed(ann) == ["two.example", "three.example"]
    assert ann.request("PUT", path, {"allow": []}).status == 200
    assert allowed(ann) == []
    ann.remove(session)


def test_neighbours_of_the_six_are_absent(own, ann):
    """The service itself has them: none is inherited."""
    session = ann.create(env_overrides={"iceberg_rest_uri": "https://lake.example/catalog"})
    inside = environment(ann, session)
    assert [name for name in inside if name.removeprefix("ALPHASWARM_") in NEIGHBOURS + OUTSIDE] == []
    assert MARK not in json.dumps(inside)
    ours = {name for name in inside if name.startswith("ALPHASWARM_")}
    assert ours == {f"ALPHASWARM_{name}" for name in (
        "ICEBERG_REST_URI", "ICEBERG_WAREHOUSE", "POLARIS_BASE_URL", "ALPHA_VANTAGE_BASE_URL",
        "DATAHUB_GMS_URL", "KAFKA_BOOTSTRAP")}
    ann.remove(session)


def test_libraries_own_variables_name_the_sandbox(ann):
    session = ann.create(env_overrides={"iceberg_rest_uri": "https://lake.example/catalog",
                                        "datahub_gms_url": "http://gms.example:8080"})
    inside = environment(ann, session)
    assert inside["PYICEBERG_CATALOG__DEFAULT__URI"] == "https://lake.example/catalog"
    assert inside["PYICEBERG_CATALOG__DEFAULT__WAREHOUSE"] == "/session/iceberg"
    assert inside["DATAHUB_GMS_URL"] == "http://gms.example:8080"
    assert inside["DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT"] == "1"
    assert inside["DATAHUB_TELEMETRY_ENABLED"] == "false"
    ann.remove(session)
    # A closed endpoint leaves them out: an empty one would be no setting but a wrong one.
    session = ann.create()
    inside = environment(ann, session)
    assert "PYICEBERG_CATALOG__DEFAULT__URI" not in inside and "DATAHUB_GMS_URL" not in inside
    ann.remove(session)


def test_a_service_of_this_host_has_a_name_inside(ann):
    session = ann.create(env_overrides={"iceberg_rest_uri": "http://localhost:8181/catalog"})
    inside = environment(ann, session)
    assert inside["ALPHASWARM_ICEBERG_REST_URI"] == "http://host.sandbox.internal:8181/catalog"
    assert inside["PYICEBERG_CATALOG__DEFAULT__URI"] == "http://host.sandbox.internal:8181/catalog"
    ann.remove(session)


def test_doctor_names_the_endpoints_whose_production_needs_a_look(own):
    """One has an address beside its name, and one trusts credentials."""
    told = own.root.get("/v1/config").json["production"]
    assert told == {"known_by_name_only": [], "reachable_by_credentials": ["polaris_base_url"]}
    rows = {row["name"]: row for row in json.loads(ctl(own, "-o", "json", "doctor").stdout)}
    assert rows["production names"]["state"] == "ok"
    shared = rows["shared hosts"]
    assert (shared["state"], shared["found"]) == ("degraded", "polaris_base_url") and "credentials" in shared["cost"]
    # The control: without a service nothing is found, and nothing fails.
    alone = {row["name"]: row for row in json.loads(ctl(own, "-o", "json", "doctor", socket_path="/nowhere").stdout)}
    assert alone["shared hosts"]["state"] == "ok" and "not known" in alone["shared hosts"]["found"]
