"""Stores, models and checkpoints of an earlier version: they open and give the same numbers, or one sentence.

``made_on_2026_11_23.zip`` holds what commit c4682bb of 2026-11-23 wrote, before fits learned a scaling: a table of 240
rows with words and gaps, its store, a classifier fitted to the store, a regressor fitted to arrays with a checkpoint,
and some of their predictions.
"""

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern import KernelClassifier, KernelRegressor
from daskkern.cli.main import main
from daskkern.data.ingest import ingest
from daskkern.data.storage.store import open_store
from daskkern.errors import StoreError
from daskkern.models import load_model

ARCHIVE = Path(__file__).parents[1] / "support" / "files" / "made_on_2026_11_23.zip"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_a_store_is_whole_and_can_be_fitted(files: Path) -> None:
    store = open_store(files / "rows.zarr")
    store.verify()
    assert (store.info.n_rows, store.info.n_features, store.info.classes) == (240, 7, ("no", "yes"))
    assert KernelClassifier(device="cpu", random_state=0).fit(files / "rows.zarr").score(files / "rows.zarr") > 0.95


def test_a_store_is_what_an_ingestion_makes_today(files: Path) -> None:
    ingest(
        files / "rows.csv", files / "new.zarr", target="y", chunk_rows=60, categorical="onehot", missing="mean"
    )  # fmt: skip
    old, new = (open_store(files / name) for name in ("rows.zarr", "new.zarr"))
    assert old.info.encoding == new.info.encoding
    for name in ("X", "y"):
        np.testing.assert_array_equal(old.array(name)[:], new.array(name)[:])


def test_a_classifier_gives_the_same_scores(files: Path) -> None:
    model = load_model(files / "classifier.zarr")
    X = np.asarray(open_store(files / "rows.zarr").array("X")[:20])
    expected = np.load(files / "decisions.npy")
    np.testing.assert_allclose(model.decisions(model.scores(model.check(X))), expected, rtol=1e-4, atol=1e-5)


def test_a_classifier_scores_the_raw_table(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["score", str(files / "classifier.zarr"), str(files / "rows.csv")])
    assert not ended.value.code
    assert "accuracy" in capsys.readouterr().out


def test_a_regressor_gives_the_same_values(files: Path) -> None:
    predictor = daskkern.load(files / "regressor.zarr")
    np.testing.assert_allclose(
        predictor.predict(np.load(files / "X.npy")), np.load(files / "values.npy"), rtol=1e-4, atol=1e-5
    )


def test_a_checkpoint_is_refused_in_one_sentence(files: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 4)).astype(np.float32)
    model = KernelRegressor(
        "gaussian:2", max_epochs=4, random_state=0, device="cpu", alpha=1e-3, warm_start=True,
        checkpoint=str(files / "checkpoint.zarr"),
    )  # fmt: skip
    with pytest.raises(
        StoreError, match="has version 1, this daskkern reads 2 and 3; resume with the daskkern that wrote it, or"
    ):
        model.fit(X, X[:, 0])
    assert (files / "checkpoint.zarr").is_dir()
    shutil.rmtree(files / "checkpoint.zarr")
    assert model.fit(X, X[:, 0]).n_iter_ == 4
