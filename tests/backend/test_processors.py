"""Processors that a process may use, and threads of a product."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from distributed import Client
from distributed.utils import set_thread_state

from daskkern.backend import concurrency
from daskkern.backend.concurrency import compute_threads, product_threads
from daskkern.backend.processors import cpu_count
from daskkern.backend.tiles import for_each, in_tile_pool
from daskkern.errors import SpecError

_LARGE = 1e12


def _host(folder: Path, groups: str, files: dict[str, str]) -> Path:
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = folder / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("groups", "files", "processors"),
    [
        ("0::/\n", {}, 8),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 3),
        ("0::/\n", {"cpu.max": "10000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "nonsense\n"}, 8),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000\n", "a/cpu.max": "400000 100000\n"}, 1),
        ("3:cpu,cpuacct:/\n", {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 8),
        (
            "4:memory:/x\n3:cpu,cpuacct:/j\n0::/\n",
            {"cpu,cpuacct/j/cpu.cfs_quota_us": "400000\n", "cpu,cpuacct/j/cpu.cfs_period_us": "100000\n"},
            4,
        ),
        ("1:cpu:/j\n", {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ("1:cpu:/j\n", {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "0\n"}, 8),
        ("garbage\n", {}, 8),
    ],
)
def test_quotas_of_control_groups_count(
    groups: str, files: dict[str, str], processors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert cpu_count(_host(tmp_path, groups, files)) == processors


def test_affinity_counts_without_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert cpu_count(tmp_path) == 3


def _n_threads(expected: int) -> int:
    """Return how many threads take tiles in the context of the caller.

    Each waits for the `expected` others, for long on a busy machine, and then a little for one more.
    """
    seen: set[int] = set()
    met, more = threading.Barrier(expected), threading.Barrier(expected + 1)

    def work(number: int) -> None:
        seen.add(threading.get_ident())
        with suppress(threading.BrokenBarrierError):
            if number < expected:
                met.wait(60.0)
            more.wait(0.5)

    for_each(range(expected + 1), work)
    return len(seen)


def _usual(monkeypatch: pytest.MonkeyPatch, expected: int, size: float = _LARGE) -> int:
    monkeypatch.setattr(concurrency, "cpu_count", lambda: 3)
    with product_threads(None, size):
        return _n_threads(expected)


def test_a_large_product_takes_all_processors_and_a_small_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert _usual(monkeypatch, 3) == 3
    assert not in_tile_pool()
    assert _usual(monkeypatch, 1, size=1e6) == 1
    with product_threads(2, _LARGE):
        assert in_tile_pool()
        assert _n_threads(2) == 2


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("text", "threads"), [("2", 2), ("2,4", 2), ("16", 3), ("", 3), ("0", 3), ("all", 3)])
def test_the_usual_limit_of_threads_is_kept(text: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert _usual(monkeypatch, threads) == threads


def test_who_has_decided_before_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    with compute_threads(1):
        assert _usual(monkeypatch, 1) == 1
        with product_threads(3, _LARGE):
            assert _n_threads(1) == 1
    inside: list[bool] = []
    with compute_threads(2):  # neither thread may start others from inside a tile
        for_each(range(4), lambda _: inside.append(in_tile_pool()))
    assert inside == [True] * 4


def test_a_task_of_a_worker_is_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with set_thread_state(key="task"):
        assert _usual(monkeypatch, 1) == 1
        with product_threads(2, _LARGE):
            assert _n_threads(2) == 2
    assert _usual(monkeypatch, 3) == 3


@pytest.mark.long
@pytest.mark.cluster
def test_a_task_of_a_cluster_is_one_thread(client2: Client) -> None:
    def count() -> int:
        with product_threads(None, 1e12):
            return _n_threads(1)

    os_threads = client2.submit(count, pure=False).result(timeout=60)
    assert os_threads == 1


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True, np.float64(2)])
def test_threads_are_a_number_of_them(wrong: object) -> None:
    sentence = r"got threads=.*; expected a whole number of 1 or more, or None for all"
    with pytest.raises(SpecError, match=sentence), product_threads(wrong, 1.0):  # type: ignore[arg-type]
        pass
