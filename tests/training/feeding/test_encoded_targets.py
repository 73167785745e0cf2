"""What is learnt from y and the weights in one pass, and rows without some of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern import KernelClassifier, KernelRegressor
from daskkern.arrays import HostArray
from daskkern.basis import AllRows
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.rows import Fields, take
from daskkern.data.rows.subset import RowsWithout, original_numbers
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Gaussian
from daskkern.losses import Logistic, Loss, MultinomialLogistic, Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.targets import Targets, learn_targets
from daskkern.training.run.settings import FitSettings

CLASSES = ("cat", "dog", "eel")
CODES = np.repeat([0, 1, 2], [50, 30, 20])
laws = settings(max_examples=40, deadline=None)


def _settings(loss: Loss, **changes: object) -> FitSettings:
    return replace(FitSettings(Gaussian(), loss, AllRows(), EigenPro(), dtype="float64"), **changes)  # type: ignore[arg-type]


def _rows(y: HostArray, weight: HostArray | None = None, classes: tuple[str, ...] | None = CLASSES) -> ArrayRows:
    return ArrayRows(np.zeros((len(y), 1)), y, weight=weight, classes=classes, dtype=np.float64, chunk_rows=3)


def _weights(rows: ArrayRows, targets: Targets) -> HostArray | None:
    weight = targets.weight(rows.read(0, rows.n_rows))
    return None if weight is None else weight[:, 0]


def test_rows_that_weigh_the_same_have_no_weights() -> None:
    rows = _rows(CODES)
    targets = learn_targets(rows, _settings(Logistic()))
    assert _weights(rows, targets) is None
    assert (targets.n_classes, targets.n_outputs) == (3, 3)


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=["logistic", "squared"])
def test_batches_are_encoded_without_making_a_loss_for_each(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = learn_targets(_rows(CODES), _settings(loss, class_intercept=True))
    assert targets.constant is not None
    moved = targets.moved
    monkeypatch.setattr("daskkern.training.feeding.targets.with_constant", None)
    scores = np.zeros((len(CODES), 3))
    found = moved.gradient(scores, targets.encode(CODES))
    np.testing.assert_allclose(
        found, loss.gradient(targets.scores(scores), replace(targets, constant=None).encode(CODES))
    )


@laws
@given(seed=st.integers(0, 999), scale=st.sampled_from([1e-6, 1.0, 1e6]), balanced=st.booleans())
def test_weights_keep_their_ratios_and_have_mean_one(seed: int, scale: float, balanced: bool) -> None:
    weight = scale * np.random.default_rng(seed).uniform(0, 2, len(CODES))
    rows = _rows(CODES, weight)
    found = _weights(rows, learn_targets(rows, _settings(Logistic(), class_weight="balanced" if balanced else None)))
    assert found is not None
    sums = np.bincount(CODES, weight)  # as scikit-learn from 1.7 on takes sample weights
    factors = (sums.sum() / (3 * sums))[CODES] if balanced else 1.0
    expected = weight * factors
    np.testing.assert_allclose(found, expected / expected.mean(), rtol=1e-10)
    assert found.mean() == pytest.approx(1, rel=1e-12)


def test_balanced_classes_weigh_the_same_in_all() -> None:
    rows = _rows(CODES)
    found = _weights(rows, learn_targets(rows, _settings(Logistic(), class_weight="balanced")))
    assert found is not None
    np.testing.assert_allclose(np.bincount(CODES, found), 100 / 3, rtol=1e-12)


def test_balance_is_over_the_classes_that_have_rows() -> None:
    rows = _rows(np.repeat([0, 2], [30, 10]))
    found = _weights(rows, learn_targets(rows, _settings(Logistic(), class_weight="balanced")))
    assert found is not None
    np.testing.assert_allclose(np.bincount([0, 1], [found[:30].sum(), found[30:].sum()]), 20, rtol=1e-12)


def test_weights_named_by_class_count_and_the_rest_are_one() -> None:
    rows = _rows(CODES)
    found = _weights(rows, learn_targets(rows, _settings(Logistic(), class_weight={"dog": 5.0, "eel": 0.0})))
    assert found is not None
    expected = np.array([1.0, 5.0, 0.0])[CODES]
    np.testing.assert_allclose(found, expected / expected.mean(), rtol=1e-12)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({"cow": 2.0}, r"class_weight names \['cow'\], but the classes are \['cat', 'dog', 'eel'\]"),
        ({"cat": -1.0}, "weights must be finite, not negative, not all zero"),
        ({"cat": float("nan")}, "weights must be finite"),
        ({"cat": 0.0, "dog": 0.0, "eel": 0.0}, "not all zero"),
    ],
)
def test_class_weights_without_meaning_are_refused(weights: dict[str, float], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        learn_targets(_rows(CODES), _settings(Logistic(), class_weight=weights))


def test_what_cannot_be_learnt_is_refused_in_a_sentence() -> None:
    with pytest.raises(DataError, match=r"at least 2 classes, but all 4 training rows are of class .*'dog'"):
        learn_targets(_rows(np.ones(4, np.int64)), _settings(Logistic()))
    with pytest.raises(DataError, match=r"all training rows of positive weight are of class \['cat'\]"):
        learn_targets(_rows(CODES, (CODES == 0) * 1.0), _settings(Logistic()))
    with pytest.raises(DataError, match="all training rows of positive weight are of class"):
        learn_targets(_rows(CODES), _settings(Logistic(), class_weight={"dog": 0.0, "eel": 0.0}))
    with pytest.raises(DataError, match=r"sample weights add up to 0\.0"):
        learn_targets(_rows(CODES, np.zeros(100)), _settings(Logistic()))
    with pytest.raises(DataError, match="the rows have no targets"):
        learn_targets(ArrayRows(np.zeros((3, 1))), _settings(Squared()))
    with pytest.raises(SpecError, match="got the logistic loss for a regression task; it is for classification"):
        learn_targets(_rows(np.arange(4.0), classes=None), _settings(Logistic()))
    with pytest.raises(DataError, match="the targets hold NaN or infinity"):
        learn_targets(_rows(np.array([0.0, np.nan, 1.0]), classes=None), _settings(Squared()))
    with pytest.raises(SpecError, match="got class_weight for a regression task"):
        learn_targets(_rows(np.arange(4.0), classes=None), _settings(Squared(), class_weight="balanced"))


@pytest.mark.parametrize("offset", [0.0, 1e9])
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_targets_are_trained_in_units_of_their_spread(offset: float, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    y = rng.standard_normal((40, 2)) * [1.0, 7.0] + [3.0, offset]
    weight = rng.uniform(0.1, 2, 40) if weighted else None
    rows = _rows(y, weight, None)
    targets = learn_targets(rows, _settings(Squared()))
    assert (targets.n_classes, targets.n_outputs) == (0, 2)
    w = np.ones(40) if weight is None else weight / weight.mean()
    encoded = targets.encode(y)
    np.testing.assert_allclose(w @ encoded / 40, 0, atol=1e-6)
    np.testing.assert_allclose(w @ encoded**2 / 40, 1, rtol=1e-6)
    np.testing.assert_allclose(encoded * targets.scale + targets.shift, y, rtol=1e-12)
    found = _weights(rows, targets)
    if weight is None:
        assert found is None
    else:
        np.testing.assert_allclose(found, w, rtol=1e-12)


def test_without_an_intercept_targets_are_scaled_but_not_shifted() -> None:
    y = np.random.default_rng(0).standard_normal(40) + 5
    targets = learn_targets(_rows(y, classes=None), _settings(Squared(), fit_intercept=False))
    assert targets.shift.tolist() == [0.0]
    np.testing.assert_allclose(targets.scale, np.sqrt((y**2).mean()), rtol=1e-12)


def test_targets_that_are_all_equal_are_not_divided_by_zero() -> None:
    targets = learn_targets(_rows(np.full(9, 4.0), classes=None), _settings(Squared()))
    np.testing.assert_array_equal(targets.encode(np.full((9, 1), 4.0)), 0)


@pytest.mark.parametrize(("loss", "off"), [(Logistic(), -1.0), (MultinomialLogistic(), 0.0), (Squared(), -1.0)])
def test_classes_are_encoded_as_their_loss_wants_them(loss: Loss, off: float) -> None:
    targets = learn_targets(_rows(CODES), _settings(loss))
    np.testing.assert_array_equal(targets.encode(np.array([2, 0])), [[off, off, 1], [1, off, off]])


@st.composite
def _spans(draw: st.DrawFn) -> tuple[int, int, HostArray, int, int]:
    n = draw(st.integers(1, 40))
    excluded = sorted(draw(st.sets(st.integers(0, n - 1), max_size=n - 1)))
    left = n - len(excluded)
    start = draw(st.integers(0, left))
    stop = draw(st.integers(start, left))
    return n, draw(st.integers(1, 45)), np.array(excluded, np.int64), start, stop


@laws
@given(_spans())
def test_rows_without_some_are_what_numpy_leaves(span: tuple[int, int, HostArray, int, int]) -> None:
    n, chunk_rows, excluded, start, stop = span
    X, y, weight = np.arange(2.0 * n).reshape(n, 2), np.arange(n) % 3, np.arange(n) + 0.5
    whole = ArrayRows(X, y, weight=weight, classes=CLASSES, dtype=np.float64, chunk_rows=chunk_rows)
    rows = RowsWithout(whole, excluded)
    assert (rows.n_rows, rows.n_features, rows.task) == (n - excluded.size, 2, "classification")
    block = rows.read(start, stop)
    np.testing.assert_array_equal(block.X, np.delete(X, excluded, axis=0)[start:stop])
    np.testing.assert_array_equal(block.y, np.delete(y, excluded)[start:stop])
    np.testing.assert_array_equal(block.weight, np.delete(weight, excluded)[start:stop])
    np.testing.assert_array_equal(original_numbers(np.arange(rows.n_rows), excluded), np.delete(np.arange(n), excluded))


def test_rows_without_some_can_be_taken_in_any_order() -> None:
    rows = RowsWithout(ArrayRows(np.arange(20.0)[:, None], dtype=np.float64, chunk_rows=4), np.array([0, 7, 8, 19]))
    np.testing.assert_array_equal(take(rows, np.array([15, 0, 0, 6]), Fields.X).X[:, 0], [18, 1, 1, 9])


@pytest.mark.parametrize("huge", [1e9, 1e20, 1e45, 1e300])
def test_targets_of_rows_that_weigh_nothing_change_nothing(huge: float) -> None:
    y = np.random.default_rng(0).standard_normal(40)
    weight = np.ones(40)
    weight[[0, 7]] = 0
    expected = learn_targets(_rows(y[weight > 0], classes=None), _settings(Squared()))
    targets = learn_targets(_rows(np.where(weight > 0, y, huge), weight, None), _settings(Squared(), dtype="float32"))
    np.testing.assert_allclose(targets.shift, expected.shift, rtol=1e-12)
    np.testing.assert_allclose(targets.scale, expected.scale, rtol=1e-12)
    encoded = targets.encode(np.full((1, 1), huge))
    assert np.isfinite(encoded**2).all()


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_balanced_classes_count_weights_and_repeated_rows(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = (X[:, 0] + 0.5 * rng.standard_normal(200) > 0.8).astype(int)
    settings = {"kernel": "gaussian:1.5", "loss": loss, "alpha": 1e-2, "scale": None, "calibrate": False}
    often = np.concatenate([np.arange(200), np.tile(np.flatnonzero(y), 3)])  # the rare class four times
    plain = KernelClassifier(**settings).fit(X[often], y[often]).decision_function(X)
    balanced = KernelClassifier(**settings, class_weight="balanced").fit(X[often], y[often])
    share = np.bincount(y[often]) / len(often)
    by_hand = KernelClassifier(**settings, class_weight=dict(enumerate(0.5 / share))).fit(X[often], y[often])
    np.testing.assert_allclose(balanced.decision_function(X), by_hand.decision_function(X), atol=1e-5)
    assert not np.allclose(plain, by_hand.decision_function(X), atol=1e-5)


def test_balanced_classes_leave_out_rows_of_weight_zero() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = (X[:, 0] + 0.5 * rng.standard_normal(200) > 0.8).astype(int)
    weight = np.where((y == 0) & (rng.random(200) < 0.7), 0.0, 1.0)
    exact = {"kernel": "gaussian:1.5", "loss": "squared", "solver": "direct", "alpha": 1e-2, "dtype": "float64"}
    model = KernelClassifier(**exact, scale=None, class_weight="balanced", calibrate=False)
    left_out = model.fit(X[weight > 0], y[weight > 0]).decision_function(X)
    np.testing.assert_allclose(model.fit(X, y, sample_weight=weight).decision_function(X), left_out, atol=1e-9)


@pytest.mark.parametrize("estimator", [KernelRegressor, KernelClassifier])
def test_weights_below_the_precision_of_float64_are_refused(estimator: Any) -> None:
    X, y = np.arange(40.0)[:, None], (np.arange(40) > 20).astype(int)
    with pytest.raises(DataError, match=r"weights have a mean of 1e-310; multiply them by a power of ten"):
        estimator().fit(X, y, sample_weight=np.full(40, 1e-310))
    assert estimator().fit(X, y, sample_weight=np.full(40, 1e-280)).score(X, y) > 0.4
