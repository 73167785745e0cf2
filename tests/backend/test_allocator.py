"""Memory that ranks use again: the thresholds of glibc, and that they are put back."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from daskkern.backend import allocator
from daskkern.backend.allocator import KEPT, LARGEST, ReusedMemory


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """The calls that a C library was given in place of glibc."""
    found: list[tuple[str, int, int]] = []
    library = SimpleNamespace(
        mallopt=lambda which, value: found.append(("mallopt", which, value)) or 1,
        malloc_trim=lambda pad: found.append(("malloc_trim", pad, 0)) or 1,
    )
    monkeypatch.setattr(allocator, "_libc", lambda: library)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    return found


def test_overlapping_uses_raise_thresholds_once_and_the_last_puts_them_back(calls: list[tuple[str, int, int]]) -> None:
    memory = ReusedMemory()
    with memory.held():
        with memory.held():
            pass
        assert calls == [("mallopt", -3, LARGEST), ("mallopt", -1, KEPT)]
        del calls[:]
    assert calls == [("mallopt", -3, 128 << 10), ("mallopt", -1, 65536), ("malloc_trim", 0, 0)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_TRIM_THRESHOLD_", None), ("MALLOC_TRIM_THRESHOLD_", "x"), ("MALLOC_MMAP_THRESHOLD_", "1")],
)
def test_what_the_user_or_glibc_decides_is_left_alone(
    name: str, value: str | None, calls: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    with ReusedMemory().held():
        pass
    assert calls == []


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
