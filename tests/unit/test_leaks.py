"""The leak check itself: a test on real processes that leaves something behind fails, whatever it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

LEAVES = {
    "a child": ("import subprocess, sys\n", 'subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])'),
    "a process whose parent is gone": (
        "import subprocess\n",
        'subprocess.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 &"], check=True)',
    ),
    "a socket file": (
        "import os, socket, tempfile\n",
        'socket.socket(socket.AF_UNIX).bind(os.path.join(tempfile.gettempdir(), "wire"))',
    ),
    "a temporary folder": ("import tempfile\n", "tempfile.mkdtemp()"),
}


def run(pytester: pytest.Pytester, before: str, body: str) -> pytest.RunResult:
    """Run one test in a process of its own, under our conftest but with little patience."""
    pytester.makeconftest(CONFTEST.read_text().replace("LEAVE_WITHIN_S = 5.0", "LEAVE_WITHIN_S = 0.3"))
    pytester.makeini("[pytest]\nmarkers =\n    cluster: real processes\n")
    pytester.makepyfile(f"{before}import pytest\n\n@pytest.mark.cluster\ndef test_it():\n    {body}\n")
    return pytester.runpytest_subprocess("-p", "no:cacheprovider")


@pytest.mark.parametrize("what", LEAVES)
def test_what_is_left_behind_is_found(pytester: pytest.Pytester, what: str) -> None:
    result = run(pytester, *LEAVES[what])
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*left*after the test*"])


def test_a_tidy_test_passes(pytester: pytest.Pytester) -> None:
    tidy = 'subprocess.run([sys.executable, "-c", "print(1)"], check=True)'
    run(pytester, "import subprocess, sys\n", tidy).assert_outcomes(passed=1)
