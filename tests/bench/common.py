"""What benches of whole services share."""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

# Sections behind [identity]: no bound of one owner's or of all that a bench could reach.
UNBOUNDED = """
[supervisor]
launches_per_second = 100000
[limits]
memory = 65536GiB
pids = 4194304
sessions = 20000
[workspace]
sessions = 20000
memory = 0
[owner]
sessions = 20000
memory = 0
launches_per_second = 0
changes_per_second = 0
cpu_per_day = 0s
[host]
sessions = 20000
"""


def keep(path, name, found):
    """One member of the file of --json; the others stay."""
    if path is None:
        return
    file = Path(path)
    known = json.loads(file.read_text()) if file.exists() else {}
    known[name] = found
    file.write_text(json.dumps(known, indent=2) + "\n")
