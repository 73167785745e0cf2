"""Predictions in the files that people want: by ending, with keys, probabilities and intervals, once after a kill."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import zarr
from distributed import Client

import daskkern
from daskkern.arrays import HostArray
from daskkern.cli.main import main
from daskkern.data.ingest import ingest
from daskkern.errors import DaskkernError, DataError, SpecError, StoreError
from daskkern.evaluation.predict import predict_table, write_predictions
from daskkern.evaluation.tables import writing
from daskkern.evaluation.tables.scoring import score_rows
from daskkern.evaluation.tables.tasks import ScoringPlace
from daskkern.models import KernelModel, load_model
from tests.support.object_server import ObjectServer

N = 9_000  # three blocks
COLOURS = ("blue", "green", "red")


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.normal(size=n), "colour": rng.choice(COLOURS, n), "age": rng.uniform(0, 90, n)})
    frame["label"] = np.where((frame["size"] > 0) == (frame["colour"] == "red"), "yes", "no")
    frame["price"] = 2 * frame["size"] + (frame["colour"] == "red")
    frame["id"] = [f"{number:07d}" for number in range(n)]
    frame["number"] = np.arange(n)
    frame["day"] = pd.to_datetime("2026-01-01") + pd.to_timedelta(rng.integers(0, 3, n), unit="D")
    frame.loc[rng.uniform(size=n) < 0.1, "age"] = np.nan
    return frame


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of classes and of a quantity, calibrated, and rows as a store, as CSV and as Parquet of row groups."""
    folder = tmp_path_factory.mktemp("predictions")
    table(400, 0).to_parquet(folder / "train.parquet", index=False)
    rows = table(N, 1)
    rows.to_csv(folder / "rows.csv", index=False)
    pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), folder / "rows.parquet", row_group_size=1500)
    kinds = (
        ("label", ["price"], daskkern.KernelClassifier(loss="logistic", calibrate=True)),
        ("price", ["label"], daskkern.KernelRegressor(calibrate=True)),
    )
    for target, others, estimator in kinds:
        store = folder / f"{target}.zarr"
        ingest(folder / "train.parquet", store, target=target, drop=[*others, "id", "number", "day"], scale="standard")
        estimator.set_params(kernel="gaussian:1.5", basis=daskkern.Landmarks(50), max_epochs=1, random_state=0)
        estimator.fit(store).save(folder / f"{target}.model")
    ingest(folder / "rows.parquet", folder / "rows.zarr", target="label", like=folder / "label.zarr", shuffle=False)
    return folder


def model_of(place: Path, target: str = "label") -> KernelModel:
    return load_model(place / f"{target}.model")


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


def read(path: str | Path) -> pd.DataFrame:
    name = str(path)
    if name.endswith(".arrow"):
        return pa.ipc.open_file(name).read_all().to_pandas()
    return pd.read_parquet(name) if name.endswith(".parquet") else pd.read_csv(name, dtype={"id": str})


def expected(place: Path) -> tuple[pd.DataFrame, HostArray, HostArray]:
    """Return the rows, and the labels and probabilities that the model gives for features that are made by hand."""
    rows, model = table(N, 1), model_of(place)
    assert model.encoding is not None
    filled = {column.name: column.fill for column in model.encoding}
    names = {"size": rows["size"], **{f"colour={c}": rows["colour"] == c for c in COLOURS}}
    X = pd.DataFrame({**names, "age": rows["age"].fillna(filled["age"])}).astype(np.float64)
    return rows, model.predict(X), model.predict_proba(X)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz", ".arrow"])
def test_the_ending_of_out_decides_the_file(
    ending: str, place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"preds{ending}"
    code, said, err = run(
        capfd, "predict", place / "label.model", place / "rows.parquet", "--out", out, "--keep", "id,day"
    )
    assert code == 0, err
    assert f"{N:,} predictions are in {out} (columns id, day, prediction, probability_no, probability_yes)" in said
    assert out.is_file()
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    rows, labels, probabilities = expected(place)
    found = read(out)
    assert found["id"].tolist() == rows["id"].tolist()
    assert pd.to_datetime(found["day"]).tolist() == rows["day"].tolist()
    assert found["prediction"].tolist() == labels.tolist()
    np.testing.assert_allclose(
        found[["probability_no", "probability_yes"]], probabilities, atol=1e-3
    )  # of features in float64


def test_rows_of_csv_and_of_a_store_are_predicted_alike(place: Path, tmp_path: Path) -> None:
    model, files = model_of(place), {}
    for name in ("rows.csv", "rows.parquet", "rows.zarr"):
        write_predictions(model, str(place / name), tmp_path / f"{name}.parquet")
        files[name] = pq.read_table(tmp_path / f"{name}.parquet")
    assert files["rows.parquet"].equals(files["rows.zarr"])
    assert files["rows.csv"]["prediction"].equals(files["rows.zarr"]["prediction"])
    kept = predict_table(model, str(place / "rows.csv"), keep=["id", "number", "colour"])
    assert kept["id"][7].as_py() == "0000007"  # as it is written
    assert kept["number"].to_pylist() == list(range(N))
    assert kept["colour"].to_pylist() == table(N, 1)["colour"].tolist()
    assert predict_table(model, str(place / "rows.zarr"), keep=["label"])["label"][0].as_py() in ("no", "yes")
    with pytest.raises(SpecError, match="has no column 'id' to keep, only its features and targets"):
        predict_table(model, str(place / "rows.zarr"), keep=["id"])
    with pytest.raises(DataError, match=r"has no column 'idd' to keep; did you mean 'id'\?"):
        predict_table(model, str(place / "rows.csv"), keep=["idd"])


@pytest.mark.parametrize("name", ["preds.xlsx", "preds.json", "preds.parquet.tmp"])
def test_an_unknown_ending_is_refused(
    name: str, place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capfd, "predict", place / "label.model", place / "rows.csv", "--out", tmp_path / name)
    assert code == 2
    assert "use .parquet, .csv, .csv.gz, .arrow or .zarr, or a name without an ending" in err
    assert list(tmp_path.iterdir()) == []


def test_what_the_model_offers_becomes_columns(place: Path, tmp_path: Path) -> None:
    model, rows = model_of(place, "price"), str(place / "rows.parquet")
    found = predict_table(model, rows, keep=["price"], scores=True, std=True, confidence=0.9).to_pandas()
    assert list(found) == ["price", "prediction", "score", "std", "lower", "upper"]
    inside = (found["lower"] <= found["price"]) & (found["price"] <= found["upper"])
    assert 0.8 < inside.mean() <= 1
    assert (found["std"] > 0).all()
    write_predictions(model, rows, tmp_path / "p.zarr", keep=["id", "day"], std=True, confidence=0.9)
    group = zarr.open_group(tmp_path / "p.zarr", mode="r")
    np.testing.assert_array_equal(group["interval"][:, 1], found["upper"])
    np.testing.assert_array_equal(group["std"][:], found["std"])
    assert group["id"][3] == "0000003"
    classes = model_of(place)
    sets = predict_table(classes, rows, confidence=0.95).to_pandas()
    assert {"in_set_no", "in_set_yes"} < set(sets)
    assert sets["in_set_yes"].dtype == bool
    for wrong, words in (
        ({"std": True}, "a model of classification has no standard deviations"),
        ({"confidence": 2.0}, "confidence"),
    ):
        with pytest.raises(DaskkernError, match=words):
            write_predictions(classes, rows, tmp_path / "q.parquet", **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "q.parquet").exists()


def test_a_place_that_is_taken_is_kept(place: Path, tmp_path: Path) -> None:
    model, rows, out = model_of(place), str(place / "rows.parquet"), tmp_path / "p.parquet"
    out.write_text("mine")
    with pytest.raises(StoreError, match="exists; choose another name, or replace it with --overwrite"):
        write_predictions(model, rows, out)
    assert out.read_text() == "mine"
    write_predictions(model, rows, out, overwrite=True)
    assert pq.read_table(out).num_rows == N
    with pytest.raises(SpecError, match="both for the rows and for their predictions"):
        write_predictions(model, rows, rows, overwrite=True)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(StoreError, match="is a folder"):
        write_predictions(model, rows, tmp_path / "folder.csv", overwrite=True)
    with pytest.raises(SpecError, match=r"got the column 'prediction' to keep, which predictions have, too"):
        predict_table(model, table(10, 0).assign(prediction=1), keep=["prediction"])


def test_a_folder_is_partitioned_as_readers_know_it(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for source in ("rows.parquet", "rows.csv"):  # read part by part, and from the beginning to the end
        out = tmp_path / source.replace(".", "_")
        code, said, err = run(
            capfd, "predict", place / "label.model", place / source, "--out", out, "--keep", "id,number",
            "--partition-by", "day", "--rows-per-file", 5000,
        )  # fmt: skip
        assert code == 0, err
        assert f"6 files, {N:,} rows" in said
        found = pyarrow.dataset.dataset(out, partitioning="hive").to_table().to_pandas().sort_values("number")
        rows, labels, _ = expected(place)
        assert found["prediction"].tolist() == labels.tolist()
        assert [str(day)[:10] for day in found["day"]] == [str(day)[:10] for day in rows["day"]]
        manifest = json.loads((out / "_predictions.json").read_text())
        assert manifest["complete"] is True
        assert manifest["n_rows"] == sum(manifest["files"].values()) == N
    with pytest.raises(StoreError, match="exists; choose another name, or replace it with --overwrite"):
        write_predictions(model_of(place), str(place / "rows.parquet"), tmp_path / "rows_parquet", rows_per_file=5000)
    with pytest.raises(SpecError, match=r"got --partition-by age, which holds double"):
        write_predictions(model_of(place), str(place / "rows.parquet"), tmp_path / "ages", partition_by=["age"])


@pytest.mark.parametrize("source", ["rows.parquet", "rows.csv"])
def test_a_folder_goes_on_where_it_was_killed(
    source: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rows, out = model_of(place), str(place / source), tmp_path / "parts.csv"
    write_predictions(model, rows, tmp_path / "whole.csv", rows_per_file=2000, keep=["number"])
    predicted: list[int] = []
    original = writing.PredictBlock.__call__

    def killed(self: object, model: KernelModel, block: object) -> object:
        predicted.append(block.first)  # type: ignore[attr-defined]
        if len(predicted) == 4:
            raise KeyboardInterrupt
        return original(self, model, block)  # type: ignore[arg-type]

    monkeypatch.setattr(writing.PredictBlock, "__call__", killed)
    with pytest.raises(KeyboardInterrupt):
        write_predictions(model, rows, out, rows_per_file=2000, keep=["number"])
    (out / ".part-00004.csv.partial-host-1-ab").write_text("half")  # as a kill leaves it
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert set(before) == {"part-00000.csv", "part-00001.csv"}
    with pytest.raises(StoreError, match="holds unfinished predictions of another job"):
        write_predictions(model, rows, out, rows_per_file=2000, keep=["id"])
    write_predictions(model, rows, out, rows_per_file=2000, keep=["number"])
    assert min(predicted[4:]) == 4000
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    names = sorted(path.name for path in out.iterdir())
    assert names == ["_predictions.json", *(f"part-{k:05d}.csv" for k in range(5))]
    for name in names:
        if name.startswith("part"):
            assert (out / name).read_bytes() == (tmp_path / "whole.csv" / name).read_bytes()


def test_an_error_leaves_nothing(place: Path, tmp_path: Path) -> None:
    frame = table(5000, 2)
    frame.loc[4500, "colour"] = "pink"
    for name in ("p.parquet", "p.csv.gz", "p.zarr"):
        with pytest.raises(DataError, match="'pink' in column 'colour', a category that the training data do not have"):
            write_predictions(model_of(place), frame, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="has no rows"):
        write_predictions(model_of(place), frame[:0], tmp_path / "p.parquet")


def test_data_frames_of_all_kinds_are_predicted(place: Path) -> None:
    model, frame = model_of(place), table(300, 3)
    known = predict_table(model, frame, keep=["id"])
    assert known["id"].to_pylist() == frame["id"].tolist()
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    frames = [arrow, frame.sample(frac=1.0, axis=1, random_state=0)]
    polars = pytest.importorskip("polars", reason="pip install polars to try its data frames")
    frames += [polars.from_arrow(arrow), frame.astype({"colour": "category"})]
    for other in frames:
        assert predict_table(model, other, keep=["id"]).to_pydict() == known.to_pydict()


def test_equal_rows_are_equal_bytes(place: Path, tmp_path: Path) -> None:
    frame = table(50, 4)
    for name in ("a.csv.gz", "b.csv.gz"):
        write_predictions(model_of(place), frame, tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).startswith(b'"prediction","probability_no"')


@pytest.mark.timeout(120)
def test_workers_give_what_one_process_gives(client2: Client, place: Path, tmp_path: Path) -> None:
    model = model_of(place)
    for source, name in (("rows.parquet", "q"), ("rows.csv", "p.parquet"), ("rows.zarr", "p.parquet")):
        rows, per_file = str(place / source), 4096 if name == "q" else None
        for who, client in (("one", None), ("two", client2)):
            out = tmp_path / f"{who}.{source}" / name
            write_predictions(model, rows, out, rows_per_file=per_file, client=client)
        ours, theirs = (sorted((tmp_path / f"{who}.{source}").rglob("*.parquet")) for who in ("one", "two"))
        assert [path.name for path in ours] == [path.name for path in theirs]
        assert len(ours) == (3 if name == "q" else 1)
        for mine, yours in zip(ours, theirs, strict=True):
            assert pq.read_table(mine).equals(pq.read_table(yours))
    rows = str(place / "rows.parquet")
    assert score_rows(model, rows, ScoringPlace(client2))[0] == score_rows(model, rows, ScoringPlace())[0]


@pytest.mark.repeated
@pytest.mark.timeout(120)
def test_predictions_in_a_bucket_are_those_on_disk(objects: ObjectServer, place: Path, tmp_path: Path) -> None:
    model, rows = model_of(place), str(place / "rows.parquet")
    objects.faults.fail_every = 7
    write_predictions(model, rows, tmp_path / "p.parquet", keep=["id"])
    write_predictions(model, rows, objects.url("out/p.parquet"), keep=["id"])
    with pytest.raises(StoreError, match="exists; choose another name"):
        write_predictions(model, rows, objects.url("out/p.parquet"))
    store = pytest.importorskip("obstore.store", reason="pip install obstore to write to buckets")
    files = store.S3Store(objects.bucket, endpoint=objects.endpoint, client_options={"allow_http": True})
    found = files.get("out/p.parquet").bytes().to_bytes()
    assert pq.read_table(pa.BufferReader(found)).equals(pq.read_table(tmp_path / "p.parquet"))
    report = write_predictions(model, rows, objects.url("out/days"), partition_by=["day"], rows_per_file=5000)
    assert report.what == f"6 files, {N:,} rows"
    names = sorted(entry["path"] for batch in files.list("out/days") for entry in batch)
    assert len(names) == 7
    assert names[0] == "out/days/_predictions.json"
    assert names[1].startswith("out/days/day=2026-01-01")


def test_missing_and_empty_texts_share_a_folder_without_a_loss(place: Path, tmp_path: Path) -> None:
    rows = table(60, 3)
    rows["of"] = np.array(["", None, "a/b", "="], object)[np.arange(60) % 4]
    rows["and"] = np.arange(60) % 2 == 0
    write_predictions(model_of(place), rows, tmp_path / "p", keep=["number"], partition_by=["of", "and"])
    found = pa.dataset.dataset(tmp_path / "p", partitioning="hive").to_table().to_pandas()
    assert sorted(found["number"]) == list(range(60))
    assert sorted(found[found["of"].isna()]["number"]) == [number for number in range(60) if number % 4 < 2]
    manifest = json.loads((tmp_path / "p" / "_predictions.json").read_text())
    assert manifest["n_rows"] == 60


def test_a_folder_of_a_job_that_fails_at_once_is_gone(place: Path, tmp_path: Path) -> None:
    rows = table(20, 3).assign(colour="mauve")
    for _ in range(2):
        with pytest.raises(DataError, match="mauve"):
            write_predictions(model_of(place), rows, tmp_path / "p", keep=["id"], rows_per_file=10)
        assert list(tmp_path.iterdir()) == []
