"""Splits are exact for every class and in all, seeded, and do not depend on how rows are read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.data.ingest import ingest
from daskkern.data.ingest.pipeline.split import TEST, VALIDATION, Split, SplitSettings, apportion
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DataError, SpecError

Left = Callable[[], list[str]]
counts_of_classes = st.lists(st.integers(1, 3000), min_size=1, max_size=6).filter(lambda counts: sum(counts) >= 10)


@given(counts_of_classes, st.floats(0.01, 0.9))
def test_every_class_gives_its_share_within_one_row(counts: list[int], share: float) -> None:
    chosen = apportion(share, counts, np.asarray(counts))
    assert np.abs(chosen - share * np.asarray(counts)).max() < 1
    assert chosen.sum() == round(share * sum(counts))


@pytest.mark.long
@given(counts_of_classes, st.integers(0, 5), st.integers(1, 1500))
def test_a_split_in_three_is_exact_however_rows_come(counts: list[int], seed: int, step: int) -> None:
    strata = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    settings = SplitSettings(0.2, 0.3, seed=seed)
    whole = Split(settings, counts).assign(strata)
    pieces = Split(settings, counts)
    parts = np.concatenate([pieces.assign(strata[i : i + step]) for i in range(0, len(strata), step)])
    np.testing.assert_array_equal(whole, parts)
    for stratum, count in enumerate(counts):
        found = np.bincount(parts[strata == stratum], minlength=3)
        assert abs(found[TEST] - 0.2 * count) <= 1
        assert abs(found[VALIDATION] - 0.3 * count) <= 1
        assert found[0] >= 1


def test_every_row_is_equally_likely_to_leave() -> None:
    strata = np.arange(50) % 2
    left = sum(Split(SplitSettings(0.3, seed=seed), [25, 25]).assign(strata) == TEST for seed in range(2000))
    assert abs(left / 2000 - 0.3).max() < 0.05


def _ingested(tmp_path: Path, y: HostArray, **settings: object) -> dict[str, HostArray]:
    n = len(y)
    np.savez(tmp_path / "d.npz", X=np.stack([np.arange(n), np.asarray(y)], axis=1).astype(np.float32), y=y)
    outs = {"out_test": tmp_path / "t", "out_validation": tmp_path / "v"}
    ingest(tmp_path / "d.npz", tmp_path / "s", split=0.2, split_validation=0.1, **outs, **settings)  # type: ignore[arg-type]
    found = {}
    for name in "stv":
        block = StoreRows(open_store(tmp_path / name)).read(0, open_store(tmp_path / name).info.n_rows)
        assert block.X is not None
        assert block.y is not None
        if "scale" not in settings:
            np.testing.assert_array_equal(block.X[:, 1], block.y.reshape(len(block.y)))
        found[name] = block.X.astype(int)
    return found


@pytest.mark.parametrize("shuffle", [True, False])
def test_three_stores_share_all_rows_by_class(tmp_path: Path, left: Left, shuffle: bool) -> None:
    y = np.repeat([0, 1, 2], [600, 300, 100])
    found = _ingested(tmp_path, y, shuffle=shuffle, chunk_rows=64)
    counts = [np.bincount(rows[:, 1]).tolist() for rows in found.values()]
    assert counts == [[420, 210, 70], [120, 60, 20], [60, 30, 10]]
    np.testing.assert_array_equal(np.sort(np.concatenate([rows[:, 0] for rows in found.values()])), np.arange(1000))
    assert (np.diff(found["s"][:, 0]) > 0).all() != shuffle
    assert left() == ["d.npz", "s", "t", "v"]
    for name in "stv":
        open_store(tmp_path / name).verify()


def test_regression_is_split_without_strata(tmp_path: Path) -> None:
    found = _ingested(tmp_path, np.random.default_rng(0).normal(size=500).astype(np.float32).astype(float))
    assert [len(rows) for rows in found.values()] == [350, 100, 50]


def test_parts_are_read_like_the_training_store(tmp_path: Path) -> None:
    y = np.arange(400) % 2
    _ingested(tmp_path, y, scale="standard")
    scalings = [open_store(tmp_path / name).info.scaling for name in "stv"]
    assert scalings[0] == scalings[1] == scalings[2]
    assert scalings[0].kind == "standard"


def test_a_split_that_cannot_be_is_refused(tmp_path: Path, left: Left) -> None:
    np.savez(tmp_path / "d.npz", X=np.ones((10, 1)), y=np.arange(10) % 2)
    source, out, other = tmp_path / "d.npz", tmp_path / "s", tmp_path / "v"
    with pytest.raises(SpecError, match="leave no rows for training"):
        ingest(source, out, split=0.5, split_validation=0.5, out_test=tmp_path / "t", out_validation=other)
    with pytest.raises(SpecError, match="add --out-validation"):
        ingest(source, out, split_validation=0.5)
    with pytest.raises(SpecError, match=r"no rows would go to .*use --split-validation"):
        ingest(source, out, out_validation=other)
    with pytest.raises(SpecError, match="both training and validation"):
        ingest(source, out, split_validation=0.5, out_validation=out)
    with pytest.raises(DataError, match="0 of 10 rows into the validation part"):
        ingest(source, out, split_validation=0.01, out_validation=other)
    assert left() == ["d.npz"]


def test_a_class_of_one_row_stays_in_training(tmp_path: Path) -> None:
    y = np.r_[np.zeros(50, int), np.ones(49, int), 2]
    found = _ingested(tmp_path, y)
    assert 2 in found["s"][:, 1]
