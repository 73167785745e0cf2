"""How tests are dealt to the processes of a run: file by file, but for files of a few long tests without fixtures."""

from xdist.scheduler import LoadFileScheduling

APART = (
    "tests/benchmarks/test_tiny_runs.py",
    "tests/training/planning/test_memory_measured.py",
)
"""Files whose tests share nothing: each test goes to the next process that is free, so that all end together."""


def unit_of(nodeid: str) -> str:
    """Return the name of what is dealt together with a test: its file, or the test alone."""
    file = nodeid.partition("::")[0]
    return nodeid if file in APART else file


class Dealing(LoadFileScheduling):
    """Deals files, and the tests of some files one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
