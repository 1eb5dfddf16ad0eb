"""One suite for every provider: each row of conformance_rows.py, through the HTTP API, has the result that
docs/providers.md says. The table of results is printed at the end."""
import pytest

from conformance_rig import PROVIDERS, NotSupported, World, documented
from conformance_rows import ROWS


@pytest.fixture(name="world", scope="module", params=PROVIDERS, ids=lambda provider: provider.name)
def fixture_world(request):
    with request.param.serving() as daemon:
        world = World(request.param, daemon)
        yield world
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{world.table()}")


@pytest.mark.parametrize("title", ROWS)
def test_row(world, title):
    world.results[title] = "FAILED"
    try:
        ROWS[title](world)
        world.results[title] = "pass"
    except NotSupported as said:
        world.results[title] = f"not supported: {said}"
    assert world.results[title] == documented()[world.provider.name][title]


def test_the_table_has_every_row():
    table = documented()
    assert list(table) == [provider.name for provider in PROVIDERS]
    for rows in table.values():
        assert list(rows) == list(ROWS)
