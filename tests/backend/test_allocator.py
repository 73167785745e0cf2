"""Memory that ranks use again: the thresholds of glibc, and that they are put back."""

import ctypes
import os
import subprocess
import sys

import pytest

from daskkern.backend.allocator import KEPT, LARGEST, ReusedMemory, find_glibc


class Library:
    """Notes the calls that it is given in place of glibc."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def mallopt(self, which: int, value: int) -> int:
        self.calls.append(("mallopt", which, value))
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.calls.append(("malloc_trim", pad, 0))
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    return Library()


def test_overlapping_uses_raise_thresholds_once_and_the_last_puts_them_back(library: Library) -> None:
    memory, calls = ReusedMemory(lambda: library), library.calls
    with memory.held():
        with memory.held():
            pass
        assert calls == [("mallopt", -3, LARGEST), ("mallopt", -1, KEPT)]
        del calls[:]
    assert calls == [("mallopt", -3, 128 << 10), ("mallopt", -1, 65536), ("malloc_trim", 0, 0)]


def test_other_thresholds_are_set(library: Library) -> None:
    with ReusedMemory(lambda: library, kept=1 << 20, largest=1 << 19).held():
        assert library.calls == [("mallopt", -3, 1 << 19), ("mallopt", -1, 1 << 20)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_TRIM_THRESHOLD_", None), ("MALLOC_TRIM_THRESHOLD_", "x"), ("MALLOC_MMAP_THRESHOLD_", "1")],
)
def test_what_the_user_or_glibc_decides_is_left_alone(
    name: str, value: str | None, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    with ReusedMemory(lambda: library).held():
        pass
    assert library.calls == []


PAGES = """
import resource, numpy as np
from daskkern.backend.allocator import ReusedMemory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(125_000)  # 1 MB, 244 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
outside = faults()
with ReusedMemory().held():
    faults()
    inside = faults()
print(outside, inside, faults())
"""


@pytest.mark.long
@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="this C library is not glibc: nothing is set there"
)
def test_arrays_are_made_of_memory_that_is_there() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PAGES],
        env={"MALLOC_TRIM_THRESHOLD_": "65536", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    outside, inside, after = map(int, run.stdout.split())
    assert outside > 50 * 200
    assert inside < outside / 20
    assert after > 50 * 200


_FAULTS = """
import resource, sys
import numpy as np
from daskkern.backend.allocator import reuse_large_arrays
reuse_large_arrays()
kept = [np.ones(1000) for _ in range(100)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    arrays = [np.ones(6 << 20, np.uint8) for _ in range(3)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(find_glibc() is None, reason="needs glibc")
def test_large_arrays_are_reused_where_thresholds_grow() -> None:
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", _FAULTS]
    found = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    pages = 3 * (6 << 20) // os.sysconf("SC_PAGE_SIZE")
    assert int(found.stdout) < 3 * pages  # of 20 times as many that are touched
