"""The sum as the last line, whatever pytest prints before it."""


def pytest_terminal_summary(terminalreporter):
    global SUM
    count = {kind: len(terminalreporter.stats.get(kind, [])) for kind in
             ("passed", "failed", "error", "skipped")}
    SUM = f"{count['passed']} passed, {count['failed'] + count['error']} failed, " \
          f"{count['skipped']} skipped"


def pytest_unconfigure():
    print(SUM, flush=True)


SUM = "0 passed, 1 failed, 0 skipped"
