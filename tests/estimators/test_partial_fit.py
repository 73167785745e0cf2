"""``partial_fit``: one epoch on other rows, from where the model is."""

import pickle
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from daskkern import AllRows, KernelClassifier, KernelRegressor, Landmarks, ingest
from daskkern.basis import DoublyStochastic, Linear, NystromFeatures, RandomFeatures
from daskkern.errors import DataError, SpecError
from daskkern.estimators.array_inputs import array_source
from daskkern.events import BatchFinished, Event
from daskkern.kernels import Gaussian, Laplacian
from daskkern.solvers import BSGD, SGD, AdaGrad, EigenPro, NystromSGD, Pegasos
from daskkern.training.checkpoints.commits import Commit
from daskkern.training.run.fit import fit

X, Y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
ORDER = np.random.default_rng(0).permutation(len(X))
X, Y = X[ORDER], Y[ORDER]
TRAIN, TEST = slice(0, 1200), slice(1200, None)

WAYS: dict[str, tuple[Any, Any, float]] = {
    "eigenpro, landmarks": (Landmarks(150), EigenPro(averaging=0.0), 0.0),
    "eigenpro, momentum": (Landmarks(150), EigenPro(averaging=0.0, momentum=0.5, window=1), 0.0),
    "eigenpro, features": (RandomFeatures(200), EigenPro(averaging=0.0), 0.0),
    "nystrom_sgd": (Landmarks(100), NystromSGD(mode="streamed", averaging=0.0), 0.0),
    "sgd, linear": (Linear(), SGD(averaging=0.0), 1e-4),
    "sgd, features": (RandomFeatures(100), SGD(averaging=0.0), 1e-4),
    "adagrad": (Linear(), AdaGrad(l1=1e-3), 1e-4),
    "pegasos": (NystromFeatures(80), Pegasos(averaging=0.0), 1e-4),
}


def _classifier(basis: Any = None, solver: Any = "auto", alpha: float = 0.0, **others: Any) -> KernelClassifier:
    loss = "hinge" if isinstance(solver, Pegasos | BSGD) else "squared_hinge"
    chosen = {"kernel": Gaussian(2.0), "loss": loss, "batch_size": 60, "device": "cpu", **others}
    return KernelClassifier(basis=basis or Landmarks(150), solver=solver, alpha=alpha, **chosen)


def test_a_first_call_of_few_rows_says_that_it_has_chosen_all_landmarks() -> None:
    model = _classifier("auto")
    with pytest.warns(ConvergenceWarning, match=r"first call of partial_fit had 64 rows, of which \d+ are landmarks"):
        model.partial_fit(X[:64], Y[:64], classes=range(10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[64:200], Y[64:200])
        _classifier(Landmarks(50)).partial_fit(X[:64], Y[:64], classes=range(10))
        _classifier(Landmarks(points=X[:50])).partial_fit(X[:64], Y[:64], classes=range(10))
        _classifier(RandomFeatures(80)).partial_fit(X[:64], Y[:64], classes=range(10))
        _classifier("auto").partial_fit(X[:1150], Y[:1150])


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("basis", "solver", "alpha"), WAYS.values(), ids=WAYS)
def test_calls_with_the_same_rows_are_the_epochs_of_a_fit(basis: Any, solver: Any, alpha: float) -> None:
    whole = _classifier(basis, solver, alpha, max_epochs=3).fit(X[:400], Y[:400])
    parts = _classifier(basis, solver, alpha)
    for _ in range(3):
        parts.partial_fit(X[:400], Y[:400])
    np.testing.assert_array_equal(parts.dual_coef_, whole.dual_coef_)
    assert (parts.landmarks_ != whole.landmarks_).sum() == 0
    assert [epoch.epoch for epoch in parts.history_] == [1, 2, 3]
    assert parts.n_iter_ == 3


def test_adagrad_averages_nothing_unasked_whatever_the_calls() -> None:
    model = _classifier(Linear(), AdaGrad(l1=0.05), 0.0)
    for rows in (400, 400, 400, 120):
        model.partial_fit(X[:rows], Y[:rows])
    assert "mean" not in Commit.from_bytes(model._carried.commit).snapshot.shards
    assert 0 < (model.dual_coef_ == 0).mean() < 1


def test_a_stream_of_rows_trains_as_well_as_all_of_them() -> None:
    whole = _classifier(max_epochs=4).fit(X[TRAIN], Y[TRAIN])
    stream = _classifier(Landmarks(points=X[:150]))
    for _ in range(4):
        for start in range(0, 1200, 300):
            stream.partial_fit(X[start : start + 300], Y[start : start + 300], classes=np.arange(10))
    assert stream.score(X[TEST], Y[TEST]) > 0.93
    assert stream.score(X[TEST], Y[TEST]) > whole.score(X[TEST], Y[TEST]) - 0.02


ONE_CLASS: dict[str, tuple[Any, Any, str]] = {
    "eigenpro": (None, "auto", "squared_hinge"),
    "logistic": (None, "auto", "logistic"),
    "joint": (None, "auto", "multinomial_logistic"),
    "nystrom_sgd": (Landmarks(100), NystromSGD(mode="streamed"), "squared"),
    "linear": (Linear(), SGD(averaging=0.0), "logistic"),
    "pegasos": (NystromFeatures(80), Pegasos(averaging=0.0), "hinge"),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("basis", "solver", "loss"), ONE_CLASS.values(), ids=ONE_CLASS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_stream_may_begin_with_rows_of_one_class(basis: Any, solver: Any, loss: str, n_classes: int) -> None:
    kept = n_classes > Y
    rows, labels = X[kept], Y[kept]
    basis = basis or Landmarks(points=rows[:150])
    model = _classifier(basis, solver, 1e-4, loss=loss)
    model.partial_fit(rows[labels == 1][:80], labels[labels == 1][:80], classes=np.arange(n_classes))
    assert (model.predict(rows[labels == 1]) == 1).mean() > 0.95
    for _ in range(5):
        model.partial_fit(rows, labels)
    assert model.score(rows, labels) > 0.95


def test_rows_of_one_class_choose_no_kernel_and_no_intercept() -> None:
    first = KernelClassifier(basis=Landmarks(30), device="cpu")
    first.partial_fit(X[Y == 3], Y[Y == 3], classes=[1, 3])
    assert isinstance(first.model_.kernel, Laplacian)
    assert first.model_.target_shift is not None
    np.testing.assert_allclose(first.model_.target_shift, [0.0], atol=1e-9)
    assert first.alpha_ == np.finfo(np.float32).eps


@pytest.mark.parametrize("classes", [None, [3], [3, 3]])
def test_a_stream_of_one_class_in_all_is_refused(classes: Any) -> None:
    for rows, labels in ((X[Y == 3], Y[Y == 3]), (da.from_array(X[Y == 3]), da.from_array(Y[Y == 3]))):
        with pytest.raises(DataError, match="at least 2 classes"):
            _classifier().partial_fit(rows, labels, classes=classes)
    with pytest.raises(DataError, match="at least 2 classes"):
        _classifier().fit(X[Y == 3], Y[Y == 3])


def test_it_goes_on_after_a_fit_and_after_a_journey() -> None:
    fitted = _classifier(max_epochs=1).fit(X[:600], Y[:600])
    before = fitted.score(X[TEST], Y[TEST])
    travelled = pickle.loads(pickle.dumps(fitted))
    for model in (fitted, travelled):
        model.partial_fit(X[600:1200], Y[600:1200])
    np.testing.assert_array_equal(travelled.dual_coef_, fitted.dual_coef_)
    assert [epoch.epoch for epoch in fitted.history_] == [1, 2]
    assert fitted.score(X[TEST], Y[TEST]) >= before - 0.01
    again = fitted.fit(X[:600], Y[:600])
    assert [epoch.epoch for epoch in again.history_] == [1]


@pytest.mark.long
def test_a_fit_that_was_stopped_goes_on_with_the_next_epoch() -> None:
    model = _classifier(max_epochs=1_000_000, max_seconds=3.0).fit(X[:600], Y[:600])
    assert model.stop_reason_ == "max_seconds"
    begun = model.history_[-1].epoch
    model.set_params(max_seconds=None).partial_fit(X[600:1200], Y[600:1200])
    assert model.history_[-1].epoch in (begun, begun + 1)  # the last one is told when it was begun
    assert model.stop_reason_ == "max_epochs"


def test_regression_keeps_the_scale_of_the_first_rows() -> None:
    target = np.stack([X @ np.arange(64), 100 + X[:, 20]], axis=1)
    model = KernelRegressor(Gaussian(3.0), basis=Landmarks(200), device="cpu")
    for start in (0, 400, 800) * 4:
        model.partial_fit(X[start : start + 400], target[start : start + 400] + (0 if start else 1e-3))
    assert model.score(X[TEST], target[TEST]) > 0.9
    first = KernelRegressor(Gaussian(3.0), basis=Landmarks(200), device="cpu", max_epochs=1)
    first.fit(X[:400], target[:400] + 1e-3)
    np.testing.assert_array_equal(model.model_.target_scale, first.model_.target_scale)


@pytest.mark.repeated
def test_stores_dask_arrays_and_a_cluster_are_the_same_as_arrays(client2: Client, tmp_path: Path) -> None:
    want = _classifier().partial_fit(X[:400], Y[:400]).partial_fit(X[400:800], Y[400:800])
    np.savez(tmp_path / "d.npz", X=X[400:800], y=Y[400:800])
    ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr", shuffle=False)
    stored = _classifier().partial_fit(X[:400], Y[:400]).partial_fit(tmp_path / "d.zarr")
    np.testing.assert_array_equal(stored.dual_coef_, want.dual_coef_)
    far = _classifier(client=client2).partial_fit(X[:400], Y[:400])
    far.partial_fit(da.from_array(X[400:800], chunks=(400, 64)), da.from_array(Y[400:800], chunks=400))
    scores, found = want.decision_function(X[TEST]), far.decision_function(X[TEST])
    np.testing.assert_allclose(found, scores, rtol=0, atol=1e-4 * np.abs(scores).max())


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("basis", "solver", "alpha"),
    [
        (Landmarks(150), "auto", 0.0),
        (Landmarks(100), NystromSGD(averaging=0.5), 0.0),
        (Linear(), SGD(), 1e-4),
        (NystromFeatures(80), Pegasos(), 1e-4),
    ],
    ids=["auto", "nystrom_sgd", "sgd", "pegasos"],
)
def test_a_call_of_few_rows_or_none_harms_no_good_model(basis: Any, solver: Any, alpha: float) -> None:
    model = _classifier(basis, solver, alpha, max_epochs=5).fit(X[TRAIN], Y[TRAIN])
    before, coef = model.score(X[TEST], Y[TEST]), model.dual_coef_.copy()
    model.set_params(max_seconds=1e-9).partial_fit(X[:60], Y[:60])
    np.testing.assert_array_equal(model.dual_coef_, coef)
    model.set_params(max_seconds=None).partial_fit(X[:2], Y[:2])
    assert model.score(X[TEST], Y[TEST]) > before - 0.01
    for _ in range(4):
        model.partial_fit(X[TRAIN], Y[TRAIN])
    assert model.score(X[TEST], Y[TEST]) > before - 0.01


def _interrupt_second_epoch(event: Event) -> None:
    """Press Ctrl-C after the first batch of the second epoch."""
    if isinstance(event, BatchFinished) and (event.epoch, event.batch) == (2, 1):
        signal.raise_signal(signal.SIGINT)


def test_a_mean_that_never_began_begins_with_the_next_rows() -> None:
    stopped = {"max_epochs": 1_000_000, "callbacks": [_interrupt_second_epoch]}
    model = _classifier(**stopped).fit(X[:600], Y[:600])
    assert model.stop_reason_ == "interrupted"
    model.set_params(callbacks=None).partial_fit(X[TRAIN], Y[TRAIN])
    last = _classifier(solver=EigenPro(averaging=0.0, step_scale=1.5), **stopped)
    assert Commit.from_bytes(model._carried.commit).snapshot.numbers["averaged"] > 0
    assert "mean" not in Commit.from_bytes(last.fit(X[:600], Y[:600])._carried.commit).snapshot.shards


def test_nystrom_sgd_goes_on_as_it_was_kept() -> None:
    for epochs in (1, 3):  # streamed; written to disk, as it is read often
        model = _classifier(Landmarks(100), NystromSGD(), max_epochs=epochs).fit(X[:400], Y[:400])
        for start in (400, 800, 0):
            model.partial_fit(X[start : start + 400], Y[start : start + 400])
        assert model.score(X[TEST], Y[TEST]) > 0.8


def test_few_rows_leave_the_batches_of_later_calls_as_they_were() -> None:
    sizes = []
    model = _classifier(callbacks=[lambda e: sizes.append(e.n_batches) if isinstance(e, BatchFinished) else None])
    for n in (600, 5, 600):
        model.partial_fit(X[:n], Y[:n], classes=np.arange(10))
    assert (sizes[0], sizes[-1]) == (10, 10)
    with pytest.raises(SpecError, match="batch_size was 60 when the model began and is 30"):
        model.set_params(batch_size=30).partial_fit(X[:600], Y[:600])
    with pytest.raises(ValueError, match="sample"):
        _classifier().partial_fit(X[:300], Y[:300]).partial_fit(X[:0], Y[:0])


def test_looking_for_the_method_draws_no_random_numbers() -> None:
    coefs = []
    for looks in (0, 3):
        model = _classifier(random_state=np.random.RandomState(0), max_epochs=1)
        assert all(hasattr(model, "partial_fit") for _ in range(looks))
        coefs.append(model.fit(X[:300], Y[:300]).dual_coef_)
    np.testing.assert_array_equal(*coefs)


def test_no_weights_are_weights_of_one() -> None:
    tens = np.full(400, 10.0)
    ones, none = (
        _classifier().partial_fit(X[:400], Y[:400], sample_weight=tens).partial_fit(X[:400], Y[:400], sample_weight=w)
        for w in (np.ones(400), None)
    )
    np.testing.assert_array_equal(ones.dual_coef_, none.dual_coef_)


def test_a_warm_start_after_other_rows_begins_anew() -> None:
    model = _classifier(warm_start=True, max_epochs=2).partial_fit(X[:400], Y[:400])
    model.fit(X[:600], Y[:600])
    assert [epoch.epoch for epoch in model.history_] == [1, 2]


def test_points_are_kept_once() -> None:
    model = pickle.loads(pickle.dumps(_classifier(max_epochs=1).fit(X[:300], Y[:300])))
    assert model._carried.prepared.points is model.model_.points


@pytest.mark.parametrize(
    ("max_seconds", "reason"),
    [(None, "whose state is too large"), (1e-9, "max_seconds ended without saving its state")],
)
def test_what_has_no_room_is_not_carried(max_seconds: float | None, reason: str) -> None:
    targets = np.sin(X[:300, :1] + np.arange(4000.0))  # copies of 4,000 coefficients a landmark are 48 MB
    model = KernelRegressor(
        Gaussian(2.0), basis=Landmarks(250), batch_size=60, max_epochs=1, max_seconds=max_seconds,
        memory_budget=700 << 20, keep_blocks="never", device="cpu",
    ).fit(X[:300], targets)  # fmt: skip
    with pytest.raises(SpecError, match=reason):
        model.partial_fit(X[:300], targets)


def test_weights_count() -> None:
    weight = np.where(Y[:400] < 5, 2.0, 0.5)
    plain = _classifier().partial_fit(X[:400], Y[:400]).partial_fit(X[:400], Y[:400])
    weighed = _classifier().partial_fit(X[:400], Y[:400]).partial_fit(X[:400], Y[:400], sample_weight=weight)
    assert np.abs(plain.dual_coef_ - weighed.dual_coef_).max() > 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"basis": AllRows()}, "belong to the rows of one fit"),
        ({"basis": DoublyStochastic(), "solver": "doubly_sgd", "alpha": 1e-3}, "belong to the rows of one fit"),
        ({"solver": "falkon", "alpha": 1e-3, "loss": "squared"}, "solves for all rows at once"),
        ({"basis": RandomFeatures(50), "solver": "sag", "alpha": 1e-3}, "keeps numbers of every row"),
        ({"early_stopping": True}, "early_stopping is for fits of several epochs"),
        ({"class_weight": "balanced"}, "pass sample_weight"),
        ({"sampling": "balanced"}, "draws from all rows"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_go_on_has_no_such_method(changes: dict[str, Any], reason: str) -> None:
    model = _classifier(**changes)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as error:
        model.partial_fit(X[:100], Y[:100])
    assert reason in f"{error.value} {error.value.__cause__}"


def test_other_labels_features_and_settings_are_refused() -> None:
    model = _classifier().partial_fit(X[:300], np.minimum(Y[:300], 4))
    before = model.dual_coef_.copy()
    with pytest.raises(DataError, match=r"y holds \[5, 6, 7, 8, 9\], not among the classes"):
        model.partial_fit(X[:300], Y[:300])
    with pytest.raises(DataError, match="leave them out"):
        model.partial_fit(X[:300], np.minimum(Y[:300], 4), classes=[0, 1])
    with pytest.raises(DataError, match="not among the classes"):
        model.partial_fit(da.from_array(X[:300], chunks=100), da.from_array(Y[:300], chunks=100))
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:300, :9], np.minimum(Y[:300], 4))
    with pytest.raises(SpecError, match="checkpoint"):
        _classifier(checkpoint="there").partial_fit(X[:300], Y[:300])
    with pytest.raises(SpecError, match=r"kernel was Gaussian\(length_scale=2.0\) when the model began"):
        model.set_params(kernel=Gaussian(1.0)).partial_fit(X[:300], np.minimum(Y[:300], 4))
    with pytest.raises(SpecError, match="basis was"):
        model.set_params(kernel=Gaussian(2.0), basis=Landmarks(9)).partial_fit(X[:300], np.minimum(Y[:300], 4))
    np.testing.assert_array_equal(model.dual_coef_, before)


def test_a_fit_to_all_rows_does_not_go_on_with_others() -> None:
    model = _classifier().partial_fit(X[:300], Y[:300])
    source = array_source(X[:300], Y[:300], None, np.arange(10))
    with pytest.raises(SpecError, match="the fit cannot continue with other rows: sampling='balanced' draws"):
        fit(source, replace(model.fit_settings(), sampling="balanced"), earlier=model._carried)


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    model = _classifier().partial_fit(X[:300], Y[:300])
    np.savez(tmp_path / "d.npz", X=X[:300], y=Y[:300])
    ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr", scale="minmax", shuffle=False)
    with pytest.raises(DataError, match="a scaling"):
        model.partial_fit(tmp_path / "d.zarr")
    np.savez(tmp_path / "e.npz", X=X[:300], y=np.minimum(Y[:300], 4))
    ingest([str(tmp_path / "e.npz")], tmp_path / "e.zarr", shuffle=False)
    with pytest.raises(DataError, match=r"the store .* has the classes"):
        model.partial_fit(tmp_path / "e.zarr")
    bad = KernelRegressor(Gaussian(2.0), basis=Landmarks(20), device="cpu").partial_fit(X[:100], X[:100, 3])
    with pytest.raises((DataError, ValueError), match="NaN"):
        bad.partial_fit(X[:100], np.full(100, np.nan))
