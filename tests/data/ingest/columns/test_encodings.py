"""Categories, missing values and rows that must be like a store, against scikit-learn where it has them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from daskkern.arrays import HostArray
from daskkern.data.ingest import IngestReport, ingest
from daskkern.data.schema.encoding import ColumnEncoding, encoding_from_json
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DataError, SpecError, StoreError

Left = Callable[[], list[str]]
FORMATS = ["csv", "parquet", "feather", "arrows"]


@pytest.fixture
def people(rng: np.random.Generator) -> pd.DataFrame:
    n = 200
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.integers(18, 30, n)),
            "town": [None if x < 0.2 else "Lyon" if x < 0.6 else "Ulm" for x in rng.random(n)],
            "wage": rng.normal(size=n),
            "job": pd.Series(rng.choice(["cook", "poet", "clerk"], n), dtype="object"),
            "label": np.arange(n) % 2,
        }
    )


def save(table: pd.DataFrame, path: Path, kind: str) -> Path:
    path = path.with_suffix(f".{kind}")
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "parquet":
        pq.write_table(arrow, path, row_group_size=30)
    elif kind == "feather":
        pa.feather.write_feather(arrow, path, chunksize=30)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, arrow.schema) as writer:
            writer.write_table(arrow, max_chunksize=30)
    return path


def rows(path: Path) -> HostArray:
    store = open_store(path)
    store.verify()
    X = StoreRows(store, np.float64).read(0, store.info.n_rows).X
    assert isinstance(X, np.ndarray)
    return X


def go(source: object, out: Path, **settings: object) -> IngestReport:
    return ingest(source, out, shuffle=False, **{"target": "label", **settings})  # type: ignore[arg-type]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("categorical", ["onehot", "ordinal"])
@pytest.mark.parametrize(
    ("missing", "strategy"), [("mean", "mean"), ("most_frequent", "most_frequent"), ("constant", "constant")]
)
def test_encodings_are_those_of_scikit_learn(
    tmp_path: Path, people: pd.DataFrame, kind: str, categorical: str, missing: str, strategy: str
) -> None:
    report = go(save(people, tmp_path / "d", kind), tmp_path / "s", categorical=categorical, missing=missing)
    texts = SimpleImputer(
        strategy="constant" if missing == "constant" else "most_frequent", fill_value="missing", missing_values=None
    )
    encoder = OneHotEncoder(sparse_output=False) if categorical == "onehot" else OrdinalEncoder()
    reference = make_column_transformer(
        (SimpleImputer(strategy=strategy, fill_value=0), ["age"]),
        (make_pipeline(texts, encoder), ["town"]),
        ("passthrough", ["wage"]),
        (encoder, ["job"]),
    )
    frame = people.assign(town=people["town"].astype(object).where(people["town"].notna(), None))
    np.testing.assert_allclose(rows(tmp_path / "s"), reference.fit_transform(frame).astype(np.float64), rtol=1e-6)
    towns = ["Lyon", "Ulm"] + ["missing"] * (missing == "constant")
    names = ["age", *(f"town={town}" for town in towns), "wage", "job=clerk", "job=cook", "job=poet"]
    expected = names if categorical == "onehot" else ["age", "town", "wage", "job"]
    assert open_store(tmp_path / "s").info.feature_names == tuple(expected)
    assert "missing numbers in 1 column were replaced" in report.notes[-1]


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_like_a_store_get_its_columns(tmp_path: Path, people: pd.DataFrame, kind: str) -> None:
    settings = {"categorical": "onehot", "missing": "mean", "scale": "standard"}
    go(save(people, tmp_path / "d", kind), tmp_path / "s", **settings)
    few = people.iloc[[3, 4, 5, 6]].assign(town=[None, "Ulm", None, "Ulm"], wage=[np.nan, 1, 2, 3], label=[1, 1, 1, 0])
    few = few[["label", "job", "wage", "town", "age"]].assign(note="not a column of the training data")
    report = ingest(save(few, tmp_path / "few", kind), tmp_path / "t", like=tmp_path / "s", shuffle=False)
    ours, theirs = open_store(tmp_path / "t").info, open_store(tmp_path / "s").info
    assert (ours.feature_names, ours.encoding, ours.scaling) == (theirs.feature_names, theirs.encoding, theirs.scaling)
    assert (report.task, report.classes, report.class_counts) == ("classification", (0, 1), (1, 3))
    town, lyon = few["town"].fillna("Lyon"), theirs.feature_names.index("town=Lyon")  # type: ignore[union-attr]
    stored = np.asarray(open_store(tmp_path / "t").array("X")[:])
    np.testing.assert_array_equal(stored[:, lyon], town == "Lyon")
    np.testing.assert_allclose(stored[0, theirs.feature_names.index("wage")], people["wage"].mean(), rtol=1e-5)  # type: ignore[union-attr]
    without = save(few.drop(columns="label"), tmp_path / "without", kind)
    assert ingest(without, tmp_path / "u", like=tmp_path / "s").task is None
    for change, words in (
        ({"town": "Rome"}, "row 0 of .* has 'Rome' in column 'town', a category that the training data do not have"),
        ({"label": 7}, "hold the label 7, which no training row has .*; remove those rows or move"),
    ):
        bad = save(few.assign(**change), tmp_path / "bad", kind)
        with pytest.raises(DataError, match=words):
            ingest(bad, tmp_path / "v", like=tmp_path / "s")
    with pytest.raises(DataError, match="has no column 'wage', which the training rows had"):
        ingest(save(few.drop(columns="wage"), tmp_path / "bad", kind), tmp_path / "v", like=tmp_path / "s")


def test_what_a_like_store_decides_cannot_be_asked(tmp_path: Path, people: pd.DataFrame) -> None:
    source = save(people.drop(columns=["age", "town", "job"]), tmp_path / "d", "csv")
    go(source, tmp_path / "s")
    assert open_store(tmp_path / "s").info.encoding is None
    with pytest.raises(SpecError, match="leave out --drop"):
        ingest(source, tmp_path / "t", like=tmp_path / "s", drop=["wage"])
    for settings in ({"scale": "minmax"}, {"categorical": "onehot"}, {"missing": "mean"}):
        with pytest.raises(SpecError, match="together with --like, which takes it from"):
            ingest(source, tmp_path / "t", like=tmp_path / "s", **settings)  # type: ignore[arg-type]
    np.savez(tmp_path / "d.npz", X=np.ones((3, 2)), y=[0, 1, 0])
    with pytest.raises(DataError, match="has 2 features, but the training rows had 1"):
        ingest(tmp_path / "d.npz", tmp_path / "t", like=tmp_path / "s")
    with pytest.raises(StoreError, match="there is no store at"):
        ingest(source, tmp_path / "t", like=tmp_path / "nowhere")
    for settings, words in (
        ({"features": "X"}, "--features was given, but it applies to hdf5 and zarr files only, not to csv"),
        ({"index_base": 1}, "--index-base was given, but it applies to svmlight files only, not to csv"),
    ):
        with pytest.raises(SpecError, match=words):
            go(source, tmp_path / "t", **settings)
    with pytest.raises(
        SpecError, match="--categorical was given, but it applies to csv, parquet, arrow, orc, json lines and dask"
    ):
        ingest(tmp_path / "d.npz", tmp_path / "t", categorical="onehot")
    (tmp_path / "d.svm").write_text("1 1:2\n2 1:3\n")
    with pytest.raises(SpecError, match="got --missing mean for sparse rows"):
        ingest(tmp_path / "d.svm", tmp_path / "t", missing="mean")
    with pytest.raises(SpecError, match="got categorical 'hash'; choose one of auto, refuse, onehot, ordinal"):
        go(source, tmp_path / "t", categorical="hash")


@pytest.mark.parametrize("kind", FORMATS)
def test_texts_and_gaps_are_refused_on_request(tmp_path: Path, people: pd.DataFrame, left: Left, kind: str) -> None:
    source = save(people, tmp_path / "d", kind)
    with pytest.raises(DataError, match=r"row \d+ of .* has no value in column 'age'.*--missing mean|column 'town'"):
        go(source, tmp_path / "s", drop=["job"], categorical="refuse", missing="refuse")
    with pytest.raises(DataError, match="has no value in column 'town'"):
        go(source, tmp_path / "s", categorical="onehot", missing="refuse", drop=["age"])
    with pytest.raises(DataError, match="has no value in column 'age'"):
        go(source, tmp_path / "s", missing="mean", target="age", drop=["town", "job"])
    assert left() == [source.name]


@pytest.mark.parametrize("kind", FORMATS)
def test_the_default_encodes_words_and_fills_gaps_and_says_so(tmp_path: Path, people: pd.DataFrame, kind: str) -> None:
    people["rank"] = pd.array(np.where(np.arange(200) % 9 == 0, None, np.arange(200) % 4), dtype="Int64")
    report = go(save(people, tmp_path / "d", kind), tmp_path / "s")
    requested = go(save(people, tmp_path / "e", kind), tmp_path / "t", categorical="onehot", missing="mean")
    names = ["age", "town=Lyon", "town=Ulm", "town=missing", "wage", "job=clerk", "job=cook", "job=poet", "rank"]
    assert open_store(tmp_path / "s").info.feature_names == tuple(names)
    found = dict(zip(names, rows(tmp_path / "s").T, strict=True))
    np.testing.assert_array_equal(found["town=missing"], people["town"].isna())
    others = ["age", "wage", "job=cook", "rank"]
    theirs = dict(zip(open_store(tmp_path / "t").info.feature_names or (), rows(tmp_path / "t").T, strict=True))
    for name in others:
        np.testing.assert_array_equal(found[name], theirs[name])
    assert "2 columns of text became 6 features, one for each category (--categorical onehot)" in report.notes
    assert any("missing numbers in 2 columns were replaced (mean)" in note for note in report.notes)
    assert not any("columns of text" in note for note in requested.notes)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_default_leaves_tables_of_whole_numbers_as_they_are(tmp_path: Path, kind: str) -> None:
    table = pd.DataFrame({"a": np.arange(50), "b": np.arange(50) % 7, "label": np.arange(50) % 2})
    reports = [
        go(save(table, tmp_path / name, kind), tmp_path / f"{name}.zarr", **settings)
        for name, settings in (("d", {}), ("e", {"categorical": "refuse", "missing": "refuse"}))
    ]
    stores = [open_store(tmp_path / f"{name}.zarr") for name in "de"]
    assert stores[0].array("X").dtype == stores[1].array("X").dtype
    assert [store.info.encoding for store in stores] == [None, None]
    assert reports[0].notes == reports[1].notes


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_of_names_are_refused_by_default(tmp_path: Path, kind: str) -> None:
    table = pd.DataFrame({"name": [f"n{i}" for i in range(30)], "x": 1.0, "label": np.arange(30) % 2})
    words = "column 'name' of .* has 30 different texts in 30 rows, so it does not look like a category.*--drop name"
    with pytest.raises(DataError, match=words):
        go(save(table, tmp_path / "d", kind), tmp_path / "s")
    assert go(save(table, tmp_path / "d", kind), tmp_path / "s", categorical="onehot").n_features == 31


def test_numbers_with_a_text_among_them_are_refused_by_default(tmp_path: Path) -> None:
    values = [str(i / 7) for i in range(60)]
    values[5] = values[9] = "red"
    table = pd.DataFrame({"a": values, "label": np.arange(60) % 2})
    with pytest.raises(DataError, match=r"column 'a' of .* holds numbers, but texts such as 'red' in 2 of 60 rows"):
        go(save(table, tmp_path / "d", "csv"), tmp_path / "s")
    table["a"] = table["a"].replace("red", "?")
    report = go(save(table, tmp_path / "d", "csv"), tmp_path / "s")
    assert "2 missing numbers in 1 column were replaced (mean)" in report.notes


def test_gaps_of_arrays_are_refused_by_default(tmp_path: Path, X: HostArray) -> None:
    X[3, 2] = np.nan
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(103) % 2)
    with pytest.raises(DataError, match="row 3"):
        ingest(tmp_path / "d.npz", tmp_path / "s")


def test_gaps_of_arrays_are_filled_too(tmp_path: Path, X: HostArray) -> None:
    X[::7, 2] = np.nan
    np.savez(tmp_path / "d.npz", X_train=X, y_train=np.arange(103) % 2, X_test=X[:20], y_test=np.arange(20) % 2)
    ingest(tmp_path / "d.npz", tmp_path / "s", missing="mean", out_test=tmp_path / "t", shuffle=False)
    mean = np.nanmean(X[:, 2].astype(np.float64))
    np.testing.assert_allclose(rows(tmp_path / "s"), np.where(np.isnan(X), mean, X), rtol=1e-6)
    np.testing.assert_allclose(rows(tmp_path / "t"), np.where(np.isnan(X), mean, X)[:20], rtol=1e-6)
    assert open_store(tmp_path / "t").info.encoding == open_store(tmp_path / "s").info.encoding
    ingest(tmp_path / "d.npz", tmp_path / "u", like=tmp_path / "s", shuffle=False)
    np.testing.assert_array_equal(rows(tmp_path / "u"), rows(tmp_path / "s"))


def test_columns_that_are_no_categories_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.data.ingest.columns.categories.MOST_ONEHOT", 5)
    frame = pd.DataFrame({"name": [f"n{i}" for i in range(9)], "x": 1.0, "label": np.arange(9) % 2})
    with pytest.raises(DataError, match=r"'name' of .* has more than 5 different texts.*--categorical codes"):
        go(save(frame, tmp_path / "d", "csv"), tmp_path / "s", categorical="onehot")
    frame["name"] = None
    with pytest.raises(DataError, match=r"'name' of .* has no values at all|no value"):
        go(
            save(frame.astype({"name": "string"}), tmp_path / "d", "parquet"),
            tmp_path / "s",
            categorical="onehot",
            missing="mean",
        )


def test_a_folder_of_parquet_files(tmp_path: Path, people: pd.DataFrame) -> None:
    folder = tmp_path / "set"
    (folder / "inner").mkdir(parents=True)
    save(people[:80], folder / "part-0", "parquet")
    save(people[80:], folder / "inner" / "part-1", "parquet")
    (folder / "_SUCCESS").touch()
    report = go(folder, tmp_path / "s", drop=["age", "town", "job"])
    assert (report.n_files, report.n_rows) == (2, 200)
    (folder / "year=2026").mkdir()
    save(people, folder / "year=2026" / "part-2", "parquet")
    with pytest.raises(DataError, match=r"hold different columns \(none and year\)"):
        go(folder, tmp_path / "t", drop=["age", "town", "job"])


@pytest.mark.parametrize("kind", ["feather", "arrows"])
def test_damaged_arrow_files_are_sentences(tmp_path: Path, people: pd.DataFrame, kind: str) -> None:
    source = save(people, tmp_path / "d", kind)
    source.write_bytes(source.read_bytes()[:200])
    with pytest.raises(DataError, match="cannot be read as an Arrow file or stream"):
        go(source, tmp_path / "s")


@pytest.mark.parametrize(
    "value",
    [
        3,
        [],
        [3],
        [{"name": 3, "kind": "number", "categories": [], "fill": None}],
        [{"name": "a", "kind": "hash", "categories": [], "fill": None}],
        [{"name": "a", "kind": "number", "categories": ["x"], "fill": None}],
        [{"name": "a", "kind": "number", "categories": [], "fill": "x"}],
        [{"name": "a", "kind": "onehot", "categories": [], "fill": None}],
        [{"name": "a", "kind": "onehot", "categories": ["x", "x"], "fill": None}],
        [{"name": "a", "kind": "ordinal", "categories": ["x"], "fill": "y"}],
    ],
)
def test_hostile_encodings_are_refused(tmp_path: Path, people: pd.DataFrame, value: object) -> None:
    assert encoding_from_json(value) is None
    go(save(people, tmp_path / "d", "csv"), tmp_path / "s", drop=["age", "town", "job"])
    metadata = json.loads((tmp_path / "s" / "zarr.json").read_text())
    metadata["attributes"]["encoding"] = value
    (tmp_path / "s" / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(StoreError, match="attribute 'encoding'"):
        open_store(tmp_path / "s")


def test_an_encoding_survives_json() -> None:
    columns = (ColumnEncoding("a", fill=2.5), ColumnEncoding("b", "onehot", ("x", "y"), "y"), ColumnEncoding("c"))
    assert encoding_from_json(json.loads(json.dumps([column.to_json() for column in columns]))) == columns


def test_labels_of_another_type_are_told_from_other_labels(tmp_path: Path, people: pd.DataFrame) -> None:
    go(save(people, tmp_path / "d", "parquet"), tmp_path / "s")
    texts = save(people.assign(label=people["label"].astype(str)), tmp_path / "t", "parquet")
    with pytest.raises(DataError, match=r"hold the label '0', which has another type in the training rows .*; store"):
        ingest(texts, tmp_path / "u", like=tmp_path / "s")
