"""Fits on rows that were not ingested: the model of their store, here, on a cluster, and from the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from distributed import Client

from daskkern import AutoKernelRegressor, KernelClassifier, KernelRegressor, TableFiles, load
from daskkern.basis import AllRows, Landmarks
from daskkern.cli.main import main
from daskkern.data.ingest import ingest
from daskkern.errors import DataError
from daskkern.training.direct.ingest_gain import IngestGain

EXACT = {"solver": "direct", "basis": AllRows(), "alpha": 1e-3, "calibrate": False, "kernel": "gaussian:3"}
QUICK = {"basis": Landmarks(20), "alpha": 1e-6, "max_epochs": 2, "calibrate": False, "kernel": "gaussian:3"}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "lake").mkdir()
    for number, n in enumerate((70, 50)):
        frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "c": rng.choice(["red", "blue"], n)})
        frame["y"] = np.sin(frame.a) + (frame.c == "red")
        frame.to_parquet(tmp_path / "lake" / f"{number}.parquet", index=False)
    return tmp_path / "lake"


@pytest.fixture
def cube() -> xr.Dataset:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(10, 3, 4)), rng.normal(size=(3, 4))
    y = np.sin(a) + b
    y[2, 1, 1] = np.nan
    a[4, 0, 0] = np.nan
    dims = ("time", "lat", "lon")
    return xr.Dataset(
        {"a": (dims, a), "b": (dims[1:], b), "y": (dims, y)}, coords={"lat": [0.0, 10.0, 20.0], "lon": np.arange(4.0)}
    )


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_model_of_a_lake_is_that_of_its_store(lake: Path, tmp_path: Path) -> None:
    ingest(lake, tmp_path / "store", target="y")
    X = np.random.default_rng(1).normal(size=(20, 4))
    stored = KernelRegressor(**EXACT).fit(tmp_path / "store").predict(X)
    fitted = KernelRegressor(**EXACT).fit(lake, target="y", validation=lake / "1.parquet")
    np.testing.assert_allclose(fitted.predict(X), stored, rtol=1e-5)
    assert fitted.model_.feature_names == ("a", "b", "c=blue", "c=red")
    assert fitted.model_.target_names == ("y",)
    assert [column.kind for column in fitted.model_.encoding] == ["number", "number", "onehot"]


def test_a_cube_is_fitted_and_predicted_cell_by_cell(cube: xr.Dataset) -> None:
    fitted = KernelRegressor(**EXACT).fit(cube, target="y", sample_dims=("time", "lat", "lon"))
    keep = np.isfinite(cube.a.values) & np.isfinite(cube.y.values)
    table = np.stack([cube.a.values, np.broadcast_to(cube.b.values, cube.a.shape)], axis=-1)
    expected = KernelRegressor(**EXACT).fit(table[keep], cube.y.values[keep])
    there = np.isfinite(cube.a.values)
    found = fitted.predict(cube)
    np.testing.assert_allclose(found.values[there], expected.predict(table[there]), rtol=1e-4, atol=1e-5)
    assert np.isnan(found.values).sum() == 1
    xr.testing.assert_equal(found.coords.to_dataset(), cube.coords.to_dataset())
    lazy = fitted.predict(cube.chunk(time=4))
    assert lazy.chunks is not None
    np.testing.assert_allclose(lazy.values, found.values, rtol=1e-5)


def test_weights_and_targets_may_be_arrays_of_labels(cube: xr.Dataset) -> None:
    weight = np.cos(np.deg2rad(cube.lat)).broadcast_like(cube.y).rename("area")
    fitted = KernelRegressor(**EXACT).fit(cube[["a", "b"]], cube.y, sample_weight=weight)
    named = KernelRegressor(**EXACT).fit(cube.assign(area=weight), target="y", sample_weight="area")
    np.testing.assert_allclose(fitted.predict(cube).values, named.predict(cube).values)
    plain = KernelRegressor(**EXACT).fit(cube, target="y")
    assert np.nanmax(np.abs(fitted.predict(cube).values - plain.predict(cube).values)) > 1e-6


def test_classes_of_cells_have_probabilities_along_a_dim(cube: xr.Dataset) -> None:
    kinds = (cube.y > 0).astype(int).where(cube.y.notnull())
    settings = {**QUICK, "calibrate": True, "loss": "logistic"}
    fitted = KernelClassifier(**settings).fit(cube[["a", "b"]].assign(kind=kinds), target="kind")
    assert fitted.classes_.tolist() == [0, 1]
    found = fitted.predict_proba(cube)
    assert found.dims == ("time", "lat", "lon", "class")
    np.testing.assert_allclose(found.sum("class").values[0], 1.0, rtol=1e-5)
    assert np.isnan(found.values[4, 0, 0]).all()
    assert set(np.unique(fitted.predict(cube).values[0])) <= {0.0, 1.0}


def test_zarr_arrays_are_fitted_without_being_loaded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 2)).astype("f4"), rng.normal(size=120)
    group = zarr.open_group(tmp_path / "pair.zarr", mode="w")
    arrays = group.create_array("X", data=X, chunks=(50, 2)), group.create_array("y", data=y)
    expected = KernelRegressor(**EXACT).fit(X, y).predict(X)
    np.testing.assert_allclose(KernelRegressor(**EXACT).fit(*arrays).predict(X), expected, rtol=1e-4, atol=1e-6)
    by_name = KernelRegressor(**EXACT).fit(tmp_path / "pair.zarr", target="y")
    np.testing.assert_allclose(by_name.predict(X), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind",
    ["lake", pytest.param("stored", marks=pytest.mark.repeated), pytest.param("held", marks=pytest.mark.repeated)],
)
def test_ranks_read_their_own_groups(client2: Client, lake: Path, cube: xr.Dataset, tmp_path: Path, kind: str) -> None:
    X: Any = {"lake": lake, "held": cube}.get(kind)
    if kind == "stored":
        cube.chunk(time=5).to_zarr(tmp_path / "cube.zarr", zarr_format=3, consolidated=False)
        X = xr.open_zarr(tmp_path / "cube.zarr", consolidated=False)
    here = KernelRegressor(**QUICK).fit(X, target="y").model_
    there = KernelRegressor(**QUICK, client=client2).fit(X, target="y").model_
    rows = np.random.default_rng(1).normal(size=(9, here.n_features))
    np.testing.assert_allclose(there.scores(rows), here.scores(rows), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("X", "named", "words"),
    [
        (np.ones((4, 2)), {"target": "y"}, "got target=.*with X of type ndarray; it names parts of"),
        ("lake", {"drop": "a"}, "which column of .*lake is the target"),
        ("lake", {"target": "y", "coords": "lat"}, "is not a Zarr group"),
        ("lake", {"target": ["y", "y"]}, "give a name, or a list of different names"),
    ],
)
def test_names_that_do_not_suit_are_refused(lake: Path, X: Any, named: dict[str, Any], words: str) -> None:
    rows = lake if isinstance(X, str) else X
    with pytest.raises(DataError, match=words):
        KernelRegressor(**QUICK).fit(rows, target_or_none(rows), **named)


def target_or_none(X: Any) -> Any:
    return np.arange(len(X)) if isinstance(X, np.ndarray) else None


def test_commands_read_lakes_and_cubes(
    capfd: pytest.CaptureFixture[str], lake: Path, cube: xr.Dataset, tmp_path: Path
) -> None:
    settings = ("--landmarks", 20, "--kernel", "gaussian:3", "--alpha", "1e-6", "--epochs", 2, "--workers", 0)
    code, out, err = run(capfd, "fit", lake, "--target", "y", *settings, "--out", tmp_path / "m1")
    assert code == 0, err
    assert "reads 120 rows x 4 features from" in out
    assert "1 column of text became 2 features" in out
    cube.to_zarr(tmp_path / "cube.zarr", zarr_format=3, consolidated=False)
    words = ("fit", tmp_path / "cube.zarr", "--target", "y", "--sample-dims", "time,lat,lon", "--coords", "lat")
    code, out, err = run(capfd, *words, *settings, "--out", tmp_path / "m2")
    assert code == 0, err
    assert "reads 118 rows x 3 features from" in out
    assert "118 of 120 cells by time, lat, lon" in out
    code, out, err = run(
        capfd, "predict", tmp_path / "m2", tmp_path / "cube.zarr", "--out", tmp_path / "predicted.zarr"
    )
    assert code == 0, err
    assert "120 cells are in" in out
    found = xr.open_zarr(tmp_path / "predicted.zarr", consolidated=False).y
    assert np.isnan(found.values).sum() == 1
    assert float(((found - cube.y) ** 2).mean()) < float(cube.y.var())
    xr.testing.assert_equal(found.lon, cube.lon)
    code, out, err = run(capfd, "plan", lake, "--target", "y", *settings)
    assert code == 0, err
    assert "ingesting first: it saves nothing in one fit" in out
    code, out, err = run(capfd, "plan", lake, "--target", "y", *settings, "--set", "disk=1")
    assert code == 0, err
    assert "ingesting first: reading takes" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lake", "--drop", "a"), "got --drop without --target"),
        (("lake", "--target", "q"), "q"),
        (("lake",), "name what is predicted with --target"),
        (("nowhere", "--target", "y"), "there is no file, folder or store at"),
        (("lake", "--target", "y", "--sample-dims", "time"), "is not a Zarr group"),
    ],
)
def test_wrong_command_lines_have_one_line(
    capfd: pytest.CaptureFixture[str], lake: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    code, _, err = run(capfd, "fit", lake.parent / words[0], *words[1:], "--out", tmp_path / "m", "--workers", 0)
    assert code in (1, 2)
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_wrong_options_are_refused_before_rows_are_read(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for option, message in (("--kernel", "kernel 'two' is unknown"), ("--groups", "got groups='two'")):
        for command in (("fit", "nothing", "--out", tmp_path / "m"), ("plan", "nothing")):
            code, _, err = run(capfd, *command, "--target", "y", option, "two")
            assert (code, message in err) == (2, True), err


def test_rows_that_cannot_be_used_leave_no_checkpoint(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = np.where(np.arange(300) == 7, np.inf, 1.0)
    pd.DataFrame({"a": values, "y": np.arange(300) / 7}).to_parquet(tmp_path / "rows.parquet")
    code, _, err = run(
        capfd, "fit", tmp_path / "rows.parquet", "--target", "y", "--out", tmp_path / "m", "--workers", 0
    )
    assert (code, "inf" in err) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_columns_may_be_named_one_by_one(capfd: pytest.CaptureFixture[str], lake: Path, tmp_path: Path) -> None:
    dropped = ("--drop", "b", "--drop", "a")
    run(capfd, "fit", lake, "--target", "y", *dropped, "--out", tmp_path / "m", "--landmarks", 20, "--workers", 0)
    names = load(tmp_path / "m").feature_names
    assert names is not None
    assert not {"a", "b"} & set(names)


def test_a_checkpoint_records_the_columns(capfd: pytest.CaptureFixture[str], lake: Path, tmp_path: Path) -> None:
    settings = ("--landmarks", 20, "--kernel", "gaussian:3", "--alpha", "1e-6", "--workers", 0)
    first = ("fit", lake, "--target", "y", "--drop", "b", *settings, "--epochs", 3)
    code, _, err = run(capfd, *first, "--out", tmp_path / "m", "--checkpoint", tmp_path / "state")
    assert code == 0, err
    recorded = json.loads((tmp_path / "state" / "resumption" / "zarr.json").read_text())["attributes"]
    assert "b" in json.dumps(recorded)
    code, _, err = run(capfd, *first, "--out", tmp_path / "m", "--checkpoint", tmp_path / "state", "--resume")
    assert code == 0, err


def test_what_ingesting_would_save_is_arithmetic() -> None:
    gain = IngestGain(direct_s=10.0, store_s=2.0, ingest_s=24.0, n_bytes=10**9)
    assert gain.pays_after == 3.0
    assert "would save about 56 s of reading in 10 epochs" in gain.in_words(10)
    assert "it pays after 3 epochs; this fit has 2" in gain.in_words(2)
    assert "it never pays" in IngestGain(1.0, 2.0, 3.0, 10).in_words(5)
    kept = IngestGain(direct_s=10.0, store_s=2.0, ingest_s=24.0, n_bytes=10**9, kept=True)
    assert "about 10 s in each further one on the same rows; decoding takes 10 s, once a fit" in kept.in_words(10)


@pytest.mark.long
def test_a_search_reads_a_lake_where_it_lies(lake: Path) -> None:
    found = AutoKernelRegressor(max_seconds=20.0).fit(TableFiles(lake, where="a < 3"), target="y")
    assert found.model_.feature_names == ("a", "b", "c=blue", "c=red")
    assert found.score(lake) > 0.5
    with pytest.raises(DataError, match="with X of type ndarray; it names parts"):
        AutoKernelRegressor().fit(np.ones((3, 2)), [1, 2, 3], target="y")
