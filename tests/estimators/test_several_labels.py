"""Several labels a row: one output each, from arrays, sparse tables, dask arrays, stores and disk."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

import daskkern
from daskkern import KernelClassifier, Landmarks, permutation_importance
from daskkern.calibration import calibration_error
from daskkern.data.ingest import DaskArrays, ingest
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError, ModelError, SpecError
from daskkern.evaluation.plot_data import observe
from daskkern.evaluation.score import score_store

X, Y = make_multilabel_classification(1500, 12, n_classes=4, n_labels=2, random_state=0)
TRAIN, TEST = slice(0, 500), slice(500, 1500)
SETTINGS: dict[str, Any] = {"kernel": "gaussian:median", "max_epochs": 5, "device": "cpu"}


@pytest.fixture(scope="module")
def fitted() -> KernelClassifier:
    return KernelClassifier(**SETTINGS).fit(X[TRAIN], Y[TRAIN])


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("loss", ["squared_hinge", "squared", "logistic", "hinge"])
def test_each_label_is_that_of_a_fit_to_it_alone_and_its_probability_is_calibrated(loss: str) -> None:
    settings = {**SETTINGS, "loss": loss, "alpha": 1e-3, "dtype": "float64"}
    model = KernelClassifier(**settings).fit(X[TRAIN], Y[TRAIN])
    for label in (0, 3):
        alone = KernelClassifier(**settings).fit(X[TRAIN], Y[TRAIN, label]).decision_function(X[TEST])
        scores = model.decision_function(X[TEST])[:, label]
        np.testing.assert_allclose(scores, alone, atol=0.02 * np.abs(alone).max())
    predicted, p = model.predict(X[TEST]), model.predict_proba(X[TEST])
    assert predicted.shape == p.shape == (1000, 4)
    assert predicted.dtype == np.int64
    np.testing.assert_array_equal(predicted, p > 0.5)
    worth = [log_loss(Y[TEST, k], p[:, k]) for k in range(4)]
    constant = [log_loss(Y[TEST, k], np.full(1000, Y[TRAIN, k].mean())) for k in range(4)]
    assert np.mean(worth) < 0.75 * np.mean(constant)
    pairs = np.stack([1 - p.ravel(), p.ravel()], axis=1)
    assert calibration_error(pairs, Y[TEST].ravel(), np.ones(4000)) < 0.06


@pytest.mark.long
def test_a_sparse_table_lists_and_dask_arrays_give_the_same(fitted: KernelClassifier) -> None:
    expected = fitted.decision_function(X[TEST])
    for labels in (scipy.sparse.csr_matrix(Y[TRAIN]), Y[TRAIN].tolist(), Y[TRAIN].astype(bool)):
        np.testing.assert_array_equal(
            KernelClassifier(**SETTINGS).fit(X[TRAIN], labels).decision_function(X[TEST]), expected
        )
    lazy_X, lazy_Y = da.from_array(X, chunks=(300, 12)), da.from_array(Y, chunks=(300, 4))
    lazily = KernelClassifier(**SETTINGS, basis=Landmarks(100)).fit(lazy_X[TRAIN], lazy_Y[TRAIN])
    np.testing.assert_array_equal(lazily.predict(lazy_X).compute(), lazily.predict(X))
    np.testing.assert_array_equal(lazily.predict_proba(lazy_X).compute(), lazily.predict_proba(X))
    assert lazily.decision_function(lazy_X).shape == (1500, 4)
    assert lazily.score(lazy_X, lazy_Y) == pytest.approx(lazily.score(X, Y))


@pytest.mark.parametrize("dtype", ["boolean", "Int64", "Float64", "bool[pyarrow]", "double[pyarrow]"])
def test_frames_of_nullable_and_arrow_dtypes_are_scored(fitted: KernelClassifier, dtype: str) -> None:
    labels = pd.DataFrame(Y[TEST].astype(bool)).astype(dtype)
    assert fitted.score(X[TEST], labels) == fitted.score(X[TEST], Y[TEST])
    labels.iloc[3, 1] = pd.NA
    with pytest.raises(DataError, match="label nan in a table of several labels"):
        fitted.score(X[TEST], labels)


@pytest.mark.long
def test_stores_scores_and_saved_models(fitted: KernelClassifier, tmp_path: Path) -> None:
    ingest(
        DaskArrays(da.from_array(X[TEST], chunks=(500, 12)), da.from_array(1.0 * Y[TEST], chunks=(500, 4))),
        tmp_path / "s",
    )
    found = score_store(fitted.model_, open_store(tmp_path / "s"))
    predicted, p = fitted.predict(X[TEST]), fitted.predict_proba(X[TEST])
    assert found.accuracy == pytest.approx(accuracy_score(Y[TEST], predicted))
    assert fitted.score(str(tmp_path / "s")) == pytest.approx(found.accuracy)
    assert found.log_loss == pytest.approx(np.mean([log_loss(Y[TEST, k], p[:, k]) for k in range(4)]), rel=1e-4)
    assert found.roc_auc == pytest.approx(roc_auc_score(Y[TEST], fitted.decision_function(X[TEST])), abs=1e-3)
    assert found.calibration_error < 0.05
    of_store = KernelClassifier(**SETTINGS, basis=Landmarks(50)).fit(str(tmp_path / "s"))
    assert of_store.predict(str(tmp_path / "s")).shape == (1000, 4)
    fitted.save(tmp_path / "m")
    model = daskkern.load(tmp_path / "m")
    np.testing.assert_array_equal(model.predict(X[TEST]), predicted)
    np.testing.assert_array_equal(model.predict_proba(X[TEST]), p)


def test_early_stopping_validation_rows_and_partial_fits() -> None:
    early = KernelClassifier(**SETTINGS, early_stopping=True).fit(X[TRAIN], Y[TRAIN])
    assert early.model_.calibration.method == "validation"
    watched = KernelClassifier(**SETTINGS).fit(X[TRAIN], Y[TRAIN], validation=(X[TEST], Y[TEST]))
    assert watched.model_.calibration.n_rows == 1000
    model = KernelClassifier(**SETTINGS, basis=Landmarks(60))
    for part in (slice(0, 250), slice(250, 500)):
        model.partial_fit(X[part], Y[part])
    assert model.score(X[TEST], Y[TEST]) > 0.3


def test_a_label_that_all_rows_or_none_have() -> None:
    labels = np.column_stack([Y[TRAIN, 0], np.zeros(500), np.ones(500)])
    model = KernelClassifier(**SETTINGS).fit(X[TRAIN], labels)
    np.testing.assert_array_equal(model.predict(X[TEST])[:, 1:], [[0, 1]] * 1000)
    assert np.isfinite(model.predict_proba(X[TEST])).all()


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"loss": "multinomial_logistic"}, SpecError, "makes classes exclude each other"),
        ({"class_weight": "balanced"}, SpecError, "pass sample_weight"),
        ({"loss": "huber"}, SpecError, "huber"),
    ],
)
def test_what_several_labels_cannot_have(settings: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        KernelClassifier(**{**SETTINGS, **settings}).fit(X[:50], Y[:50])


def test_tables_of_other_values_and_sets_are_refused(fitted: KernelClassifier) -> None:
    with pytest.raises(DataError, match="other values than 0 and 1"):
        KernelClassifier(**SETTINGS).fit(X[:50], 1 + Y[:50])
    with pytest.raises(DataError, match="expected 0 and 1 only"):
        KernelClassifier(**SETTINGS).fit(da.from_array(X[:50]), da.from_array(1 + Y[:50]))
    gap, text = 1.0 * Y[:50], Y[:50].astype(str)
    gap[3, 1] = np.nan
    for labels in (gap, text):
        with pytest.raises(ValueError, match=r"NaN|other values than 0 and 1"):
            KernelClassifier(**SETTINGS).fit(X[:50], labels)
    with pytest.raises(DataError, match="label nan in a table of several labels"):
        KernelClassifier(**SETTINGS).fit(da.from_array(X[:50]), da.from_array(gap))
    for labels in (2 * Y[TEST], 0.5 * Y[TEST]):
        with pytest.raises(DataError, match="expected 0 and 1 only"):
            observe(fitted.model_, X[TEST], labels)
        with pytest.raises(DataError, match="expected 0 and 1 only"):
            permutation_importance(fitted, X[TEST], labels, n_repeats=1)
        for lazy in (X[TEST], da.from_array(X[TEST], chunks=(400, -1))):
            for given in (labels, da.from_array(labels, chunks=(400, -1)), scipy.sparse.csr_matrix(labels)):
                if isinstance(lazy, da.Array) and scipy.sparse.issparse(given):
                    continue
                with pytest.raises(DataError, match="expected 0 and 1 only"):
                    fitted.score(lazy, given)
    with pytest.raises(ModelError, match="a model of several labels a row has no sets"):
        fitted.predict_set(X[:5])
