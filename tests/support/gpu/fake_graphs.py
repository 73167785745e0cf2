"""Recordings of a stand-in's work: what was given to it, with its places, to be done again.

As with CUDA graphs, work that is recorded has no say later: numbers of the host are as they were, arrays are where they
were, and what waits for the GPU, or copies from the host, cannot be recorded. Graphs share the memory of a pool: one
that is launched overwrites what lies there of others.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.support.gpu.fake_pool import FakePool

_here = threading.local()


@contextmanager
def using_allocator(allocator: Callable[[int], Any]) -> Iterator[None]:
    """Within the context, this thread's arrays lie in the memory of a pool, of whose `malloc`; or of an allocator."""
    before = getattr(_here, "allocator", None)
    _here.allocator = allocator
    try:
        yield
    finally:
        _here.allocator = before


def noted(array: np.ndarray) -> None:
    """Take note of an array that was made."""
    allocator = getattr(_here, "allocator", None)
    if allocator is None or not array.flags.owndata:
        return
    pool = getattr(allocator, "__self__", None)
    if isinstance(pool, FakePool):
        pool.hold(array)
        _here.__dict__.setdefault("arrays", []).append(weakref.ref(array))
    else:
        allocator(array.nbytes)


def _overwrite(kept: list[weakref.ref[np.ndarray]]) -> None:
    """Fill what lies in the pool, except for some arrays, with what must not be read."""
    spared = {id(array()) for array in kept}
    for one in getattr(_here, "arrays", []):
        array = one()
        if array is not None and id(array) not in spared:
            array.fill(np.nan if array.dtype.kind == "f" else 111)


def is_recording() -> bool:
    """Return whether this thread's work is recorded."""
    return getattr(_here, "work", None) is not None


def record(work: Callable[[], object]) -> None:
    """Add to the recording, if there is one, what does the same again."""
    if is_recording():
        _here.work.append(work)


def refuse(what: str) -> None:
    """Raise RuntimeError while work is recorded."""
    if is_recording():
        raise RuntimeError(f"the current stream is capturing: {what}")


class Graph:
    """What was recorded."""

    def __init__(self, work: list[Callable[[], object]], told: Callable[[str], None]) -> None:
        self.work, self._told = work, told
        self._own = list(getattr(_here, "arrays", []))[getattr(_here, "begun", 0) :]

    def launch(self, stream: object = None) -> None:
        """Do it again."""
        del stream
        self._told("graph")
        _overwrite(self._own)
        for one in self.work:
            one()


def begin() -> None:
    """Begin to record this thread's work."""
    assert not is_recording()
    _here.work, _here.begun = [], len(getattr(_here, "arrays", []))


def end() -> list[Callable[[], object]]:
    """Return what was recorded."""
    work: list[Callable[[], object]] = _here.work
    _here.work = None
    return work
