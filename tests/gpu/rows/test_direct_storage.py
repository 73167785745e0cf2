"""Stores that GPUDirect Storage reads to a GPU, on a stand-in for kvikio, beside the same rows through the host."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from daskkern.basis import Landmarks
from daskkern.data.rows.rows import ALL, RowBlock
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.rank_tables import RankTable
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import StoreError
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.gpu.fake_gpu import FakeGpu
from tests.support.gpu.fake_kvikio import FakeKvikio

N, D, CHUNK = 230, 5, 32
SCALINGS = {
    "none": Scaling(),
    "standard": Scaling("standard", (1.0,) * D, (2.0,) * D),
    "bent": Scaling("auto", (1.0,) * D, (2.0,) * D, (0.0, 0.5, 0.0, 2.0, 0.0)),
    "bent in all": Scaling("auto", (1.0,) * D, (2.0,) * D, (0.5,) * D),
    "ranks": Scaling(
        "ranks", (0.0, 1.0, 1.0, 0.0, 1.0), (1.0, 2.0, 2.0, 1.0, 2.0), (),
        (RankTable(0, (0.0, 1.0, 4.0), (-1.0, 0.5, 2.0)), RankTable(3, (-1.0, 1.0), (0.0, 1.0))),
    ),
}  # fmt: skip


@pytest.fixture
def cupy_here(stand_in: FakeGpu) -> Iterator[ModuleType]:
    with stand_in.installed() as module:
        yield module


@pytest.fixture
def kvikio() -> Iterator[FakeKvikio]:
    fake = FakeKvikio()
    with fake.installed():
        yield fake
    assert fake.n_open == 0


@pytest.fixture(params=["float32", "float64", "float16", "uint8"])
def store(request: Any, tmp_path: Path) -> Path:
    return _written(tmp_path / "rows.zarr", request.param)


@pytest.fixture
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "daskkern.data.storage.store_rows.DIRECT_BYTES", 2 * CHUNK * D
    )  # two chunks of uint8, one of others


def _written(path: Path, dtype: str) -> Path:
    rng = np.random.default_rng(0)
    X = (1 + 2 * rng.normal(size=(N, D))).clip(0, 200).astype(dtype)
    with StoreWriter(path, n_features=D, task="regression", dtype=dtype, chunk_rows=CHUNK) as writer:
        writer.append(X, X[:, 0].astype(float))
    return path


def _rows(path: Path, **others: Any) -> StoreRows:
    return StoreRows(open_store(path), **others)


def _blocks(rows: StoreRows, xp: ModuleType) -> list[RowBlock]:
    found = rows.blocks_on(xp)
    assert found is not None
    return list(found)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_are_those_that_the_host_reads(
    store: Path, scaling: str, dtype: str, cupy_here: ModuleType, kvikio: FakeKvikio, small_reads: None
) -> None:
    rows = _rows(store, dtype=dtype, scaling=SCALINGS[scaling])
    blocks = _blocks(rows, cupy_here)
    assert len(blocks) > 2
    assert all(isinstance(block.X, cupy_here.ndarray) for block in blocks)
    X = np.concatenate([block.X.get() for block in blocks])
    expected = rows.read(0, N)
    assert X.dtype == expected.X.dtype
    np.testing.assert_array_equal(X, expected.X)
    np.testing.assert_array_equal(np.concatenate([block.y for block in blocks]), expected.y)
    assert kvikio.n_read >= N * D * np.dtype(open_store(store).array("X").dtype).itemsize


@pytest.mark.parametrize("after", [0, 2, 4, 6])  # chunks
def test_what_kvikio_cannot_read_comes_through_the_host(
    after: int, tmp_path: Path, cupy_here: ModuleType, kvikio: FakeKvikio, small_reads: None
) -> None:
    rows = _rows(_written(tmp_path / "rows.zarr", "float32"))
    kvikio.fails_after = after * CHUNK * D * 4
    X = np.concatenate([block.X.get() for block in _blocks(rows, cupy_here)])
    np.testing.assert_array_equal(X, rows.read(0, N, ALL).X)


def test_a_caller_that_stops_leaves_no_read_behind(
    tmp_path: Path, cupy_here: ModuleType, kvikio: FakeKvikio, small_reads: None
) -> None:
    blocks: Any = _rows(_written(tmp_path / "rows.zarr", "float32")).blocks_on(cupy_here)
    next(blocks)
    assert kvikio.n_open > 0
    blocks.close()  # the fixture looks at what is open


def test_a_chunk_that_is_missing_is_named(
    tmp_path: Path, cupy_here: ModuleType, kvikio: FakeKvikio, small_reads: None
) -> None:
    rows = _rows(_written(tmp_path / "rows.zarr", "float32"))
    shutil.rmtree(tmp_path / "rows.zarr" / "X" / "c" / "3")
    with pytest.raises(StoreError, match=r"rows \d+ to \d+ of .* cannot be read"):
        _blocks(rows, cupy_here)


def test_elsewhere_the_threads_of_the_fit_read(tmp_path: Path, cupy_here: ModuleType) -> None:
    rows = _rows(_written(tmp_path / "rows.zarr", "float32"))
    assert rows.blocks_on(cupy_here) is None  # no kvikio
    with FakeKvikio(gds=False).installed():
        assert rows.blocks_on(cupy_here) is None
    with FakeKvikio().installed():
        assert rows.blocks_on(np) is None
        assert rows.blocks_on(cupy_here) is not None


@pytest.mark.parametrize("sampling", ["fresh", "fixed"])
def test_a_fit_reads_its_features_past_the_host(
    sampling: str, tmp_path: Path, cupy_here: ModuleType, kvikio: FakeKvikio, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = StoreSource.at(_written(tmp_path / "rows.zarr", "float32"))
    settings = FitSettings(
        Gaussian(3.0), Squared(), Landmarks(40), EigenPro(window=2), batch_size=20, sampling=sampling, device="gpu",
        keep_blocks="never", max_epochs=3, dtype="float64",
    )  # fmt: skip
    found = fit(source, settings).model
    assert N * D * 4 <= kvikio.n_read < N * D * 4 + CHUNK * D * 4  # once
    expected = fit(source, replace(settings, device="cpu")).model
    np.testing.assert_allclose(found.coef, expected.coef, rtol=0, atol=1e-7 * np.abs(expected.coef).max())
