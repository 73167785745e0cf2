"""Estimators predict and score table files by their path or URL, encoded as the training rows were."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from daskkern import AllRows, KernelClassifier, KernelRegressor
from daskkern.cli.score import predict_command
from daskkern.data.ingest import ingest
from daskkern.data.remote.stores import RemoteStore
from daskkern.errors import DaskkernError, SpecError
from daskkern.evaluation.predict import write_predictions
from tests.support.object_server import ObjectServer

N = 150


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=N), "town": rng.choice(["Bonn", "Ulm", "Graz"], N), "age": rng.random(N)}
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "town"] = None
    return frame.assign(
        price=frame["x"] + (frame["town"] == "Ulm"), kind=np.where(frame["x"] + (frame["town"] == "Ulm") > 0, "a", "b")
    )


def written(frame: pd.DataFrame, folder: Path, ending: str) -> Path:
    place = folder / f"table.{ending}"
    if ending == "parquet":
        frame.to_parquet(place, index=False, row_group_size=40)
    else:
        frame.to_csv(place, index=False)
    return place


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_files_are_predicted_and_scored_as_the_frame_is(frame: pd.DataFrame, tmp_path: Path, ending: str) -> None:
    place = written(frame.drop(columns="price"), tmp_path, ending)
    model = KernelClassifier("gaussian:1", "squared", AllRows(), solver="direct", alpha=1e-3, device="cpu")
    model.fit(written(frame.drop(columns="price"), tmp_path, "parquet"), target="kind")
    features = frame.drop(columns=["price", "kind"])
    np.testing.assert_array_equal(model.predict(place), model.predict(features))
    np.testing.assert_allclose(model.decision_function(str(place)), model.decision_function(features), atol=1e-6)
    assert model.score(place) == model.score(features, frame["kind"]) > 0.9
    assert model.model_.classes == ("a", "b")


def test_behind_a_url(frame: pd.DataFrame, tmp_path: Path, objects: ObjectServer) -> None:
    from obstore.fsspec import FsspecStore

    numbers = frame.drop(columns="kind")
    system = FsspecStore("s3", client_options={"allow_http": True})  # type: ignore[call-overload]
    for part in range(2):
        half = written(numbers.iloc[part * N // 2 :][: N // 2], tmp_path, "parquet")
        system.pipe_file(f"{objects.bucket}/by-path/day={part}/part.parquet", half.read_bytes())
    lake = objects.url("by-path")
    model = KernelRegressor("gaussian:1", "squared", AllRows(), solver="direct", alpha=1e-3, device="cpu")
    model.fit(lake, target="price", drop="day")
    features = numbers.drop(columns="price")
    np.testing.assert_allclose(model.predict(lake), model.predict(features), atol=1e-5)
    np.testing.assert_allclose(
        model.predict(f"{lake}/day=1/part.parquet"), model.predict(features[N // 2 :]), atol=1e-5
    )
    assert model.score(lake) == pytest.approx(model.score(features, numbers["price"]), abs=1e-6)
    with pytest.raises(DaskkernError, match="nowhere"):
        model.predict(objects.url("nowhere"))


def test_a_place_is_asked_for_its_metadata_once(
    frame: pd.DataFrame, tmp_path: Path, objects: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from obstore.fsspec import FsspecStore

    numbers = frame[["x", "price"]]
    ingest(numbers, objects.url("says-nothing"), target="price")
    model = KernelRegressor("gaussian:1", "squared", AllRows(), solver="direct", alpha=1e-3, device="cpu")
    model.fit(objects.url("says-nothing"))
    asked: list[str] = []
    get = RemoteStore.get

    async def counted(self: RemoteStore, key: str, *more: Any, **how: Any) -> Any:
        asked.append(key)
        return await get(self, key, *more, **how)

    monkeypatch.setattr(RemoteStore, "get", counted)
    for use in (model.predict, model.score):
        asked.clear()
        use(objects.url("says-nothing"))
        assert asked.count("zarr.json") == 1
    model.save(tmp_path / "model")
    out = str(tmp_path / "p.csv")
    table = objects.url("says-nothing-of-a-table")
    FsspecStore("s3", client_options={"allow_http": True}).pipe_file(  # type: ignore[call-overload]
        f"{table.removeprefix('s3://')}/part.parquet", written(numbers, tmp_path, "parquet").read_bytes()
    )
    for place in (objects.url("says-nothing"), table):
        asked.clear()
        words = [str(tmp_path / "model"), place, "--out", out, "--overwrite", "--device", "cpu"]
        predict_command.main(words, standalone_mode=False)
        assert asked.count("zarr.json") == 1, place
        np.testing.assert_allclose(pd.read_csv(out)["prediction"], model.predict(numbers[["x"]]), atol=1e-5)
    with pytest.raises(SpecError, match="both for the rows and for their predictions"):
        write_predictions(model.model_, objects.url("says-nothing/"), objects.url("says-nothing"), overwrite=True)


def test_what_cannot_be_scored_says_so(frame: pd.DataFrame, tmp_path: Path) -> None:
    model = KernelRegressor("gaussian:1", "squared", AllRows(), solver="direct", alpha=1e-3, device="cpu")
    model.fit(written(frame.drop(columns="kind"), tmp_path, "parquet"), target="price")
    bare = written(frame.drop(columns=["kind", "price"]), tmp_path, "csv")
    assert model.predict(bare).shape == (N,)
    with pytest.raises(DaskkernError, match="'price'"):
        model.score(bare)
    with pytest.raises(DaskkernError, match="brings its own"):
        model.score(bare, frame["price"])
    with pytest.raises(DaskkernError, match="none"):
        model.predict(tmp_path / "none.csv")
