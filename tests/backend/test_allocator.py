"""Memory that ranks use again: the thresholds of glibc, and that they are put back."""

import ctypes
import subprocess
import sys

import pytest

from daskkern.backend.allocator import KEPT, LARGEST, ReusedMemory


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
