"""FastAPI in front, with the example of docs/proxy."""
import pytest

for module in ("websockets", "fastapi", "uvicorn", "aiohttp"):
    pytest.importorskip(module, reason=f"python3-{module} is not installed")

from proxy_cases import *  # noqa: E402,F401,F403
from proxy_rig import FastApi  # noqa: E402


@pytest.fixture(scope="module")
def proxy(daemon):
    started = FastApi(daemon)
    yield started
    started.done()
