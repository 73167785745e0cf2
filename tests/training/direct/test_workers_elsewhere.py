"""Rows that are named by a relative path are those of this process, also where a worker runs in another folder."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import deltalake
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.orc
import pytest
import xarray as xr
import zarr
from distributed import Client
from sklearn.base import clone
from zarr.storage import LocalStore

from daskkern import KernelClassifier, KernelFeatures, KernelRegressor, RandomFeatures, TableFiles
from daskkern.basis import AllRows
from daskkern.data.ingest import ingest
from daskkern.data.rows.rows import Fields
from daskkern.data.shuffle.parallel import shuffle_store_on
from daskkern.data.storage.check_parallel import check_store_on
from daskkern.data.storage.store import open_store
from daskkern.estimators.inputs import lazy_source
from daskkern.evaluation.tables.opening import open_rows
from daskkern.evaluation.tables.rows import InputRows
from daskkern.training.direct.registry import direct_rows
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.sources import StoreSource

pytestmark = pytest.mark.cluster

QUICK = {"solver": "direct", "basis": AllRows(), "alpha": 1e-3, "calibrate": False, "kernel": "gaussian:3"}


def _written(folder: Path, sign: float) -> None:
    """Write the same 120 rows in many formats; features and target have this sign."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2))
    y = sign * (X[:, 0] + 3.0)
    X = sign * X
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    (folder / "lake" / "k=1").mkdir(parents=True)
    frame.to_parquet(folder / "lake" / "k=1" / "0.parquet", index=False)
    frame.to_parquet(folder / "rows.parquet", index=False)
    pyarrow.orc.write_table(pa.Table.from_pandas(frame), folder / "rows.orc")
    frame.to_json(folder / "rows.jsonl", orient="records", lines=True)
    frame.to_csv(folder / "rows.csv", index=False)
    deltalake.write_deltalake(str(folder / "delta"), pa.Table.from_pandas(frame))
    group = zarr.open_group(folder / "pair.zarr", mode="w")
    group.create_array("X", data=X, chunks=(50, 2))
    group.create_array("y", data=y)
    cube = xr.Dataset({"a": ("row", X[:, 0]), "b": ("row", X[:, 1]), "y": ("row", y)})
    cube.to_zarr(folder / "cube.zarr", zarr_format=3, consolidated=False)
    ingest(folder / "rows.parquet", folder / "store", target="y", shuffle=False)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the folders ``here`` and ``there``, with rows of the same names."""
    both = tmp_path_factory.mktemp("both")
    for name, sign in (("here", 1.0), ("there", -1.0)):
        _written(both / name, sign)
    return both


@pytest.fixture
def elsewhere(client2: Client, folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A cluster whose workers run in a folder that has other rows of the same names as the current folder."""
    monkeypatch.chdir(folders / "here")
    before = client2.run(os.getcwd)
    client2.run(os.chdir, str(folders / "there"))
    yield client2
    for worker, folder in before.items():
        client2.run(os.chdir, folder, workers=[worker])


def _local_files() -> Any:
    return pads.dataset("lake", filesystem=fsspec.filesystem("file"))


def _below_a_folder() -> Any:
    return pads.dataset(".", filesystem=pafs.SubTreeFileSystem("lake", pafs.LocalFileSystem()))


def _held_cube() -> Any:
    return xr.open_zarr(LocalStore("cube.zarr"), consolidated=False, chunks=None)


def _chunked_cube() -> Any:
    return xr.open_zarr(LocalStore("cube.zarr"), consolidated=False)


ROWS = {
    "a folder": lambda: "lake",
    "a URL of a folder": lambda: "file://lake",
    "a file": lambda: "rows.orc",
    "lines": lambda: "rows.jsonl",
    "chosen files": lambda: TableFiles("rows.parquet"),
    "a dataset": lambda: pads.dataset("lake"),
    "a partitioned dataset": lambda: pads.dataset("lake", partitioning="hive"),
    "a dataset of fsspec": _local_files,
    "a dataset below a folder": _below_a_folder,
    "datasets": lambda: pads.dataset([pads.dataset("lake"), pads.dataset("rows.parquet")]),
    "a dask dataframe": lambda: dd.read_parquet("rows.parquet"),
    "a group of arrays": lambda: "pair.zarr",
    "a cube": lambda: "cube.zarr",
    "an open cube": _held_cube,
    "a chunked cube": _chunked_cube,
}


def _mean_of_targets(source: RowSource) -> float:
    return float(np.mean(source.open("float64").read(0, 100, Fields.y).y))


def _seen_there(client: Client, source: RowSource) -> float:
    """Return the mean of the targets as a worker reads them: 3 for those here, -3 for those there."""
    remote, kept = source.for_cluster(client)
    mean = float(client.submit(_mean_of_targets, remote, pure=False).result(60))
    for one in kept:
        one.release()
    return mean


@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index")  # which dask uses
@pytest.mark.parametrize("kind", ROWS)
def test_named_rows_are_those_of_this_process(elsewhere: Client, kind: str) -> None:
    source, _ = direct_rows(ROWS[kind](), RowRoles(target=("y",), task="regression"))
    assert _seen_there(elsewhere, source) > 2.0


def _arrays() -> tuple[Any, Any]:
    return zarr.open_array("pair.zarr/X"), zarr.open_array("pair.zarr/y")


def test_arrays_are_those_of_this_process(elsewhere: Client) -> None:
    X, y = _arrays()
    assert _seen_there(elsewhere, direct_rows(X, RowRoles(task="regression"), y=y)[0]) > 2.0


def test_lazy_arrays_are_those_of_this_process(elsewhere: Client) -> None:
    X, y = _arrays()
    lazy = da.from_array(X, chunks=X.chunks), da.from_array(y, chunks=X.chunks[:1])
    assert _seen_there(elsewhere, lazy_source(*lazy, None, "regression")[0]) > 2.0


@pytest.mark.parametrize("place", ["store", "group"])
def test_stores_are_those_of_this_process(elsewhere: Client, place: str) -> None:
    source = StoreSource.at("store" if place == "store" else zarr.open_group("store", mode="r"))
    assert _seen_there(elsewhere, source) > 2.0


def _mean_of_blocks(rows: InputRows) -> float:
    return float(np.mean(np.concatenate([block.y for block in rows.blocks((50,)) if block.y is not None])))


@pytest.mark.parametrize("place", ["lake", "file://lake", "rows.orc", "rows.jsonl", "rows.csv", "delta", "store"])
def test_rows_to_score_are_those_of_this_process(elsewhere: Client, place: str) -> None:
    model = KernelRegressor(**QUICK).fit("rows.parquet", target="y").model_
    rows = open_rows(model, place, targets=True).rows
    assert float(elsewhere.submit(_mean_of_blocks, rows, pure=False).result(60)) > 2.0


def test_stores_are_written_shuffled_and_checked_here(elsewhere: Client, folders: Path) -> None:
    ingest("lake", "new", target="y", client=elsewhere)
    shuffle_store_on(elsewhere, "new", "mixed")
    for name in ("new", "mixed"):
        assert check_store_on(elsewhere, name).findings == ()
        assert float(np.mean(open_store(folders / "here" / name).array("y")[:])) > 2.0


@pytest.fixture(scope="module")
def rows_here(folders: Path) -> tuple[np.ndarray, np.ndarray]:
    group = zarr.open_group(folders / "here" / "pair.zarr", mode="r")
    found: Any = group["X"][:], group["y"][:]
    return found


def _lazy(name: str) -> da.Array:
    array: Any = zarr.open_array(f"pair.zarr/{name}")
    return da.from_array(array, chunks=array.chunks[:1] + array.shape[1:])


_OF_ROWS: dict[str, Any] = {
    "predict": KernelRegressor(**QUICK),
    "predict_proba": KernelClassifier("gaussian:3", device="cpu"),
    "decision_function": KernelClassifier("gaussian:3", device="cpu"),
    "transform": KernelFeatures("gaussian:3", RandomFeatures(20), random_state=0),
}


@pytest.mark.parametrize("method", _OF_ROWS)
def test_lazy_results_are_of_the_rows_of_this_process(elsewhere: Client, rows_here: Any, method: str) -> None:
    X, y = rows_here
    model = clone(_OF_ROWS[method]).fit(X, y > 3 if method in ("predict_proba", "decision_function") else y)
    lazy = getattr(model, method)(_lazy("X"))
    found = elsewhere.compute(lazy).result(60)
    np.testing.assert_allclose(found, getattr(model, method)(X), rtol=1e-5, atol=1e-6)


def test_a_lazy_score_is_of_the_targets_of_this_process(elsewhere: Client, rows_here: Any) -> None:
    X, y = rows_here
    model = KernelRegressor(**QUICK).fit(X, y)
    with dask.config.set(scheduler=elsewhere):
        assert model.score(da.from_array(X, chunks=50), _lazy("y"), sample_weight=da.fabs(_lazy("y"))) > 0.9


@pytest.mark.parametrize("cube", [_held_cube, _chunked_cube])
def test_a_lazy_cube_is_that_of_this_process(elsewhere: Client, rows_here: Any, cube: Any) -> None:
    X, y = rows_here
    model = KernelRegressor(**QUICK).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    lazy = model.predict(cube()[["a", "b"]])
    found = elsewhere.compute(lazy).result(60)
    np.testing.assert_allclose(found.values, model.predict(pd.DataFrame(X, columns=["a", "b"])), rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_a_fit_reads_the_rows_of_this_process(elsewhere: Client) -> None:
    fitted = KernelRegressor(**QUICK, client=elsewhere).fit(*_arrays())
    assert float(fitted.model_.scores(np.zeros((1, 2))).item()) > 0.0
