"""Sorted targets are told from unsorted ones, and ingestion shuffles them."""

from pathlib import Path

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.data.ingest import ingest
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.shuffle.detection import order_note, target_order
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows

N = 4000


def _rows(y: HostArray, chunk_rows: int = 100, n_features: int = 1) -> ArrayRows:
    classes = tuple(range(int(y.max()) + 1)) if y.dtype.kind == "i" else None
    return ArrayRows(np.zeros((len(y), n_features), np.float32), y, classes=classes, chunk_rows=chunk_rows)


def _naive_share(columns: HostArray, chunk_rows: int) -> float:
    """Share of the variance between chunks, corrected for their number, by the textbook."""
    blocks = np.array_split(columns, len(columns) // chunk_rows)
    within = sum(((block - block.mean(axis=0)) ** 2).sum() for block in blocks)
    total = ((columns - columns.mean(axis=0)) ** 2).sum()
    n = len(columns)
    return float(1 - within / total * (n - 1) / (n - len(blocks)))


def test_the_share_is_that_of_the_textbook(rng: np.random.Generator) -> None:
    codes = np.sort(rng.integers(0, 5, N))
    codes[::3] = rng.permutation(codes[::3])
    assert target_order(_rows(codes)).share == pytest.approx(_naive_share(np.eye(5)[codes], 100))
    y = np.arange(N) + rng.normal(size=N) * 900
    ranks = np.argsort(np.argsort(y))[:, None].astype(float)
    assert target_order(_rows(y)).share == pytest.approx(_naive_share(ranks, 100))


SORTED = {
    "classes": lambda rng: np.sort(rng.integers(0, 10, N)),
    "many classes": lambda rng: np.sort(rng.integers(0, 500, N)),
    "many classes in some order": lambda rng: rng.permutation(500)[np.sort(rng.integers(0, 500, N))],
    "rare class last": lambda rng: (np.arange(N) >= N * 0.95).astype(int),
    "quantity": lambda rng: np.sort(rng.normal(size=N)),
    "falling": lambda rng: -np.sort(rng.normal(size=N)),
    "heavy tails": lambda rng: np.sort(rng.pareto(0.5, size=N)),
    "up and down": lambda rng: np.sin(np.arange(N) / 300) + rng.normal(size=N) / 3,
    "second of two": lambda rng: np.stack([rng.normal(size=N), np.sort(rng.normal(size=N))], axis=1),
}
UNSORTED = {
    "classes": lambda rng: rng.integers(0, 10, N),
    "many classes": lambda rng: rng.integers(0, 500, N),
    "rare class": lambda rng: (rng.random(N) < 0.002).astype(int),
    "alternating": lambda rng: np.arange(N) % 2,
    "quantity": lambda rng: rng.normal(size=N),
    "heavy tails": lambda rng: rng.pareto(0.5, size=N),
    "constant": lambda rng: np.ones(N),
    "runs within chunks": lambda rng: np.arange(N) // 10 % 5,
}


@pytest.mark.parametrize("name", SORTED)
def test_sorted_targets_are_found(name: str, rng: np.random.Generator) -> None:
    assert target_order(_rows(SORTED[name](rng))).is_sorted


@pytest.mark.parametrize("name", UNSORTED)
@pytest.mark.parametrize("chunk_rows", [3, 100, 1500])
def test_unsorted_targets_are_left_alone(name: str, chunk_rows: int, rng: np.random.Generator) -> None:
    if name == "runs within chunks" and chunk_rows < 50:
        chunk_rows = 50
    assert not target_order(_rows(UNSORTED[name](rng), chunk_rows)).is_sorted


def test_one_chunk_is_never_sorted() -> None:
    assert not target_order(_rows(np.arange(N) // 400, chunk_rows=N)).is_sorted


def test_large_targets_are_sampled(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _rows(np.arange(100_000) // 10_000, chunk_rows=100)
    read = []
    original = rows.read
    monkeypatch.setattr(rows, "read", lambda *words: read.append(words[:2]) or original(*words))
    assert target_order(rows).is_sorted
    assert len(read) == 256


def test_the_note_speaks_only_of_what_a_window_cannot_mend() -> None:
    y = np.arange(N) // 400
    assert order_note(_rows(y)) is None  # all rows fit into one window
    note = order_note(_rows(y, n_features=10_000))
    assert note is not None
    assert "the target is sorted" in note
    assert "daskkern shuffle" in note
    assert order_note(_rows(np.arange(N) % 10, n_features=10_000)) is None


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("requested", "shuffled"), [(None, True), (True, True), (False, False)])
def test_ingestion_shuffles_sorted_rows(tmp_path: Path, requested: bool | None, shuffled: bool) -> None:
    y = np.arange(1000) // 100
    np.savez(tmp_path / "d.npz", X=np.arange(1000.0)[:, None], y=y)
    report = ingest(tmp_path / "d.npz", tmp_path / "s", chunk_rows=50, shuffle=requested)
    block = StoreRows(open_store(tmp_path / "s")).read(0, 1000)
    assert block.X is not None
    np.testing.assert_array_equal(block.y, block.X[:, 0] // 100)
    assert (not np.array_equal(block.y, y)) == shuffled == report.shuffled
    assert any("target is sorted" in note for note in report.notes) == (requested is None)
    assert target_order(StoreRows(open_store(tmp_path / "s"))).is_sorted != shuffled
