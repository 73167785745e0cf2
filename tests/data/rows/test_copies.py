"""Copies among rows are found, and rows that are equal for other reasons are not taken for such."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from daskkern.arrays import HostArray
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.copies import Copies, find_copies
from daskkern.data.rows.rows import ALL, Fields, Rows, take
from daskkern.data.rows.subset import MergedRows, RowsWithout
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter

N = 300


def _data(seed: int = 0) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 4))
    X[:, 1] = rng.integers(0, 3, N)
    return X, X[:, :1] + 0.1 * rng.standard_normal((N, 1))


def _found(X: HostArray, y: HostArray, **how: object) -> Copies | None:
    return find_copies(ArrayRows(X, y, dtype=np.float64, chunk_rows=32, **how))  # type: ignore[arg-type]


@pytest.mark.parametrize("sparse", [False, True])
def test_repeated_rows_are_found_wherever_they_are(sparse: bool) -> None:
    X, y = _data()
    times = np.random.default_rng(1).integers(1, 4, N)
    numbers = np.random.default_rng(2).permutation(np.repeat(np.arange(N), times))
    given = scipy.sparse.csr_array(X[numbers]) if sparse else X[numbers]
    found = _found(given, y[numbers])
    assert found is not None
    first = np.sort(np.unique(numbers, return_index=True)[1])
    np.testing.assert_array_equal(found.excluded, np.setdiff1d(np.arange(numbers.size), first))
    np.testing.assert_array_equal(found.weight, times[numbers[first]])


def test_rows_that_all_occur_as_often_have_no_weight() -> None:
    X, y = _data()
    found = _found(np.tile(X, (3, 1)), np.tile(y, (3, 1)))
    assert found is not None
    assert found.weight is None
    np.testing.assert_array_equal(found.excluded, np.arange(N, 3 * N))


def test_weights_of_copies_are_added() -> None:
    X, y = _data()
    weight = np.arange(2 * N) + 1.0
    found = _found(np.tile(X, (2, 1)), np.tile(y, (2, 1)), weight=weight)
    assert found is not None
    np.testing.assert_array_equal(found.weight, weight[:N] + weight[N:])


def test_a_zero_of_either_sign_is_the_same() -> None:
    X, y = _data()
    X[:, 2] = 0.0
    other = X.copy()
    other[:, 2] = -0.0
    assert _found(np.concatenate([X, other]), np.tile(y, (2, 1))) is not None


def _grid() -> tuple[HostArray, HostArray]:
    X = np.random.default_rng(0).integers(0, 2, (2000, 6)).astype(np.float64)
    return X, X.sum(axis=1, keepdims=True) % 2


def _measured_again() -> tuple[HostArray, HostArray]:
    X, y = _data()
    return np.tile(X, (3, 1)), np.tile(y, (3, 1)) + np.random.default_rng(1).standard_normal((3 * N, 1))


def _few() -> tuple[HostArray, HostArray]:
    X, y = _data()
    return np.concatenate([X, X[:10]]), np.concatenate([y, y[:10]])


def _other_targets() -> tuple[HostArray, HostArray]:
    X, y = _data()
    return np.tile(X, (2, 1)), np.concatenate([y, y + 1])


def _constant() -> tuple[HostArray, HostArray]:
    return np.zeros((500, 3)), np.zeros((500, 1))


@pytest.mark.parametrize("make", [_data, _grid, _measured_again, _few, _other_targets, _constant])
def test_other_rows_are_no_copies(make: object) -> None:
    assert _found(*make()) is None  # type: ignore[operator]


def test_labels_must_agree_wherever_features_do() -> None:
    X, y = _data()
    codes = (y.ravel() > 0).astype(np.int64)
    twice = np.tile(codes, 2)
    assert _found(np.tile(X, (2, 1)), twice, classes=("a", "b")) is not None
    twice[-1] = 1 - twice[-1]
    assert _found(np.tile(X, (2, 1)), twice, classes=("a", "b")) is None


def test_many_rows_are_looked_at_in_part_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60_000, 2)), rng.standard_normal((60_000, 1))
    read: list[int] = []
    whole = ArrayRows.read

    def counted(self: ArrayRows, start: int, stop: int, fields: Fields = ALL) -> object:
        read.append(stop - start)
        return whole(self, start, stop, fields)

    monkeypatch.setattr(ArrayRows, "read", counted)
    assert _found(X, y) is None
    first = sum(read)
    read.clear()
    found = _found(np.tile(X, (2, 1)), np.tile(y, (2, 1)))
    assert found is not None
    assert found.excluded.size == 60_000
    assert sum(read) > 2 * first


@pytest.mark.parametrize("kind", ["store", "arrays"])
def test_merged_rows_are_the_others_with_their_weights(kind: str, tmp_path: Path) -> None:
    X, y = _data()
    numbers = np.concatenate([np.arange(N), np.arange(40)])
    with StoreWriter(tmp_path / "s", n_features=4, task="regression", chunk_rows=50) as writer:
        writer.append(X[numbers].astype(np.float32), y[numbers])
    rows: Rows = StoreRows(open_store(tmp_path / "s")) if kind == "store" else ArrayRows(X[numbers], y[numbers])
    found = find_copies(rows)
    assert found is not None
    assert found.weight is not None
    merged = MergedRows(rows, found.excluded, found.weight)
    plain = RowsWithout(rows, found.excluded)
    some = np.array([0, 7, 39, 40, 120, N - 1])
    for block, other in ((merged.read(30, 60), plain.read(30, 60)), (take(merged, some), take(plain, some))):
        np.testing.assert_array_equal(block.X, other.X)
        np.testing.assert_array_equal(block.y, other.y)
    np.testing.assert_array_equal(merged.read(30, 60).weight, np.where(np.arange(30, 60) < 40, 2, 1))
    np.testing.assert_array_equal(take(merged, some).weight, [2, 2, 2, 1, 1, 1])
    assert merged.read(0, 5, Fields.X).weight is None
    assert merged.encoded().has_weight
