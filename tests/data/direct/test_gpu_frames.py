"""Frames and chunks of arrays on a GPU, by stand-ins: taken where they are, and copied to the host when asked."""

import shutil
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from daskkern import KernelClassifier, KernelRegressor
from daskkern.basis import AllRows, Landmarks
from daskkern.data.direct.opening import TableChoice, open_table
from daskkern.data.direct.table_reader import table_reader
from daskkern.data.rows.grouped_rows import GroupedRows, RowTargets
from daskkern.errors import DataError
from daskkern.estimators.frame_blocks import lazy_features
from tests.support.gpu.fake_arrays import FakeArray
from tests.support.gpu.fake_gpu import FakeGpu

EXACT: dict[str, Any] = {"solver": "direct", "basis": AllRows(), "alpha": 1e-3, "calibrate": False}
EXACT["kernel"] = "gaussian:3"


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not on PATH; install a C++ compiler")
    return FakeGpu(tmp_path_factory.mktemp("cuda"))


class FakeGpuFrame:
    """A partition as cuDF has it: it becomes an Arrow table when it is asked to, and a NumPy array never."""

    def __init__(self, held: pd.DataFrame) -> None:
        self._held, self.columns = held, held.columns

    def __len__(self) -> int:
        return len(self._held)

    iloc = None  # cuDF has it

    def head(self, n: int) -> "FakeGpuFrame":
        return FakeGpuFrame(self._held.head(n))

    def to_arrow(self, preserve_index: bool = True) -> pa.Table:
        return pa.Table.from_pandas(self._held, preserve_index=preserve_index)

    def to_cupy(self, dtype: Any = None, copy: bool = False, na_value: Any = None) -> FakeArray:
        if self._held.isna().any(axis=None):
            raise ValueError("Column must have no nulls.")
        return FakeArray(np.asfortranarray(self._held.to_numpy(dtype)))

    def __getitem__(self, names: Sequence[str]) -> "FakeGpuFrame":
        return FakeGpuFrame(self._held[names])

    def __array__(self, *args: Any) -> Any:
        raise TypeError("implicit conversion to a host NumPy array is not allowed")


def frame(n: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"a": rng.normal(size=n), "b": rng.integers(0, 5, n), "c": rng.choice(["x", "z"], n)})
    return made.assign(y=np.sin(made.a) + (made.c == "x"))


def on_gpu(whole: pd.DataFrame, npartitions: int) -> Any:
    """A dask dataframe whose partitions are on the GPU, as far as a fit uses it."""
    rows = np.array_split(np.arange(len(whole)), npartitions)
    parts = [FakeGpuFrame(whole.iloc[part]) for part in rows]
    return _FakeDaskFrame([dask.delayed(part, traverse=False) for part in parts], list(whole.columns))


class _FakeDaskFrame:
    """The part of dask-cudf's frames that a fit calls: lazy partitions, columns, lengths."""

    def __init__(self, parts: Sequence[Any], columns: Sequence[str]) -> None:
        self._parts, self.columns, self.npartitions = list(parts), list(columns), len(parts)

    @property
    def _meta(self) -> FakeGpuFrame:
        return dask.compute(self._parts[0])[0].head(0)

    def compute(self) -> Any:
        return list(dask.compute(*self._parts))

    def __dask_graph__(self) -> Any:
        return dask.delayed(self._parts).__dask_graph__()

    def __dask_keys__(self) -> Any:
        return [part.key for part in self._parts]

    def __dask_tokenize__(self) -> Any:
        return [part.key for part in self._parts]

    @property
    def partitions(self) -> "list[Any]":
        return self._parts

    def __getitem__(self, names: Sequence[str]) -> "_FakeDaskFrame":
        return _FakeDaskFrame([part[names] for part in self._parts], names)

    def map_partitions(self, function: Any) -> "_FakeDaskFrame":
        return _FakeDaskFrame([dask.delayed(function)(part) for part in self._parts], [])

    def to_delayed(self) -> "list[Any]":
        return self._parts


@pytest.mark.parametrize("on_device", [False, True])
def test_partitions_are_groups_of_rows(on_device: bool) -> None:
    whole = frame()
    lazy = on_gpu(whole, 3) if on_device else dd.from_pandas(whole, npartitions=3)
    opened = open_table(lazy, TableChoice(("y",)))
    reader = table_reader(opened.table, opened.decision)
    rows = GroupedRows(reader, opened.table.n_features, RowTargets("regression", 1))
    block = rows.read(0, rows.n_rows)
    assert opened.table.feature_names == ("a", "b", "c=x", "c=z")
    expected = np.column_stack([whole.a, whole.b, whole.c == "x", whole.c == "z"]).astype("f4")
    np.testing.assert_allclose(block.X, expected)
    np.testing.assert_allclose(block.y[:, 0], whole.y)


def test_frames_are_fitted_by_column_or_with_a_series() -> None:
    whole = frame()
    lazy = dd.from_pandas(whole, npartitions=3)
    named = KernelRegressor(**EXACT).fit(lazy, target="y")
    given = KernelRegressor(**EXACT).fit(lazy[["a", "b", "c"]], lazy.y)
    X = np.random.default_rng(1).normal(size=(5, 4))
    rows = whole[["a", "b", "c"]]
    np.testing.assert_allclose(given.predict(rows), named.predict(rows), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(KernelRegressor(**EXACT).fit(on_gpu(whole, 3), target="y").predict(X), named.predict(X))
    held = KernelRegressor(**EXACT).fit(lazy[["a", "b", "c"]], whole.y.to_numpy())
    np.testing.assert_allclose(held.predict(rows), named.predict(rows), rtol=1e-4, atol=1e-4)
    with pytest.raises(DataError, match="name columns of it, with target="):
        KernelRegressor(**EXACT).fit(lazy, lazy.y, target="y")


def chunks_on_gpu(values: np.ndarray, rows: int) -> da.Array:
    chunks = (tuple(len(part) for part in np.array_split(values, range(rows, len(values), rows))), *values.shape[1:])
    return da.from_array(values, chunks=(rows, *values.shape[1:])).map_blocks(
        FakeArray, dtype=values.dtype, meta=np.empty((0,) * values.ndim, values.dtype), chunks=chunks
    )


def test_chunks_on_a_gpu_are_fitted_and_predicted() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.choice([2, 7], 80)
    lazy, labels = chunks_on_gpu(X, 30), chunks_on_gpu(y, 30)
    settings = {**EXACT, "loss": "squared"}
    found = KernelClassifier(**settings).fit(lazy, labels, sample_weight=chunks_on_gpu(np.ones(80), 30))
    expected = KernelClassifier(**settings).fit(X, y)
    assert found.classes_.tolist() == [2, 7]
    np.testing.assert_allclose(found.decision_function(lazy).compute(), expected.decision_function(X), rtol=1e-4)


def numbers(n: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"a": 5 + rng.normal(size=n), "b": rng.integers(0, 5, n), "c": rng.random(n) > 0.5})
    return made.assign(y=np.sin(made.a) + made.c, w=rng.uniform(1, 2, n))


@pytest.mark.parametrize("scale", [None, "auto"])
def test_columns_of_numbers_do_not_pass_the_host(
    stand_in: FakeGpu, scale: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, read = numbers(), list[str]()
    settings = {
        "kernel": "gaussian:2", "basis": Landmarks(40), "calibrate": False, "max_epochs": 3, "scale": scale,
        "batch_size": 30, "sampling": "fresh", "random_state": 0,
    }  # fmt: skip
    given = {"target": "y", "sample_weight": "w"}
    expected = KernelRegressor(device="cpu", **settings).fit(dd.from_pandas(whole, npartitions=3), **given)
    to_arrow = FakeGpuFrame.to_arrow

    def noted(part: FakeGpuFrame, preserve_index: bool = True) -> pa.Table:
        if "feed.py" in {Path(frame.filename).name for frame in traceback.extract_stack(limit=40)}:
            read.extend(map(str, part.columns))
        return to_arrow(part, preserve_index)

    to_cupy, taken = FakeGpuFrame.to_cupy, list[int]()

    def counted(part: FakeGpuFrame, **given: Any) -> FakeArray:
        taken.append(len(part))
        return to_cupy(part, **given)

    monkeypatch.setattr(FakeGpuFrame, "to_arrow", noted)
    monkeypatch.setattr(FakeGpuFrame, "to_cupy", counted)
    with stand_in.installed():
        found = KernelRegressor(device="gpu", **settings).fit(on_gpu(whole, 3), **given)
    assert set(read) <= {"y", "w"}
    assert sum(taken) == len(whole)
    X = whole[["a", "b", "c"]]
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=0, atol=2e-3)


def test_frames_with_texts_or_gaps_are_encoded_by_the_host(stand_in: FakeGpu) -> None:
    gaps = numbers().assign(a=lambda table: table.a.where(table.a > 4.5))
    with stand_in.installed() as cupy:
        for whole, there in ((numbers(), True), (gaps, False), (frame(), False)):
            opened = open_table(on_gpu(whole, 3), TableChoice(("y",)))
            reader = table_reader(opened.table, opened.decision)
            rows = GroupedRows(reader, opened.table.n_features, RowTargets("regression", 1))
            blocks = rows.blocks_on(cupy)
            assert rows.on_gpus == (blocks is not None) == there
            if blocks is not None:
                X = np.concatenate([block.X.get() for block in blocks])
                np.testing.assert_array_equal(X, rows.read(0, rows.n_rows).X)


def test_numbers_with_targets_beside_them_become_chunks_on_the_gpu(stand_in: FakeGpu) -> None:
    whole = numbers()
    X, y = whole[["a", "b"]], whole.y.to_numpy()
    settings = {"kernel": "gaussian:2", "basis": Landmarks(40), "calibrate": False, "max_epochs": 3, "random_state": 0}
    expected = KernelRegressor(device="cpu", **settings).fit(dd.from_pandas(X, npartitions=3), y)
    with stand_in.installed() as cupy:
        chunks = lazy_features(on_gpu(X, 3), None)
        assert isinstance(chunks._meta, cupy.ndarray)
        assert all(isinstance(chunk, cupy.ndarray) for chunk in dask.compute(*chunks.to_delayed()[:, 0]))
        found = KernelRegressor(device="gpu", **settings).fit(on_gpu(X, 3), y)
        assert list(found.feature_names_in_) == ["a", "b"]
        np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=0, atol=2e-3)
        with pytest.raises(DataError, match="X has no column 'b'"):
            lazy_features(on_gpu(X, 3)[["a"]], found.model_.encoding)
