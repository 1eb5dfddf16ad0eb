"""The runners of the suites: asked how they are used they say it, and start nothing."""
import os
import re
import subprocess

import pytest

from harness import BUILD, ROOT, SLOW

RUNNERS = sorted(str(path.relative_to(ROOT)) for path in [ROOT / "tests/run", *ROOT.glob("tests/*/run")])


def run(runner, *words):
    return subprocess.run([ROOT / runner, *words], capture_output=True, text=True, timeout=60 * SLOW, check=False,
                          env={**os.environ, "SANDBOX_BUILD": str(BUILD)})


@pytest.mark.parametrize("word", ["-h", "--help"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_its_usage(runner, word):
    done = run(runner, word)
    assert (done.returncode, done.stderr) == (0, "") and runner in done.stdout, done
    assert not re.search(r"\d passed, ", done.stdout), done


@pytest.mark.parametrize("suite", ["egress", "escape"])
def test_a_row_that_is_none(suite):
    done = run(f"tests/{suite}/run", "Z99")
    assert done.returncode != 0 and "no such row: Z99" in done.stderr, done
