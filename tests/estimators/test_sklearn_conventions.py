"""The estimators behave as scikit-learn's do."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from daskkern import AllRows, KernelClassifier, KernelRegressor, Landmarks
from daskkern.errors import DaskkernError
from daskkern.kernels import Gaussian
from daskkern.solvers import EigenPro

_REASONS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "scikit-learn's meta-issue #16298: of stochastic methods, which meet repeated rows in other batches than "
        "weighted ones, the check would have to be statistical; scikit-learn expects the same of its SGDClassifier. "
        "The two agree at the optimum, see test_integer_weights_mean_repeated_rows"
    ),
}


# The same check on CSR rows.
_REASONS["check_sample_weight_equivalence_on_sparse_data"] = _REASONS["check_sample_weight_equivalence_on_dense_data"]


def _expected_failures(estimator: object) -> dict[str, str]:
    del estimator
    return _REASONS


# Few epochs and landmarks: the checks ask for manners and an easy score, and fit some hundred times.
@pytest.mark.one_in(3, 1)
@parametrize_with_checks(
    [KernelClassifier("gaussian:median", basis=Landmarks(30), max_epochs=4, batch_size=50, device="cpu")],
    expected_failed_checks=_expected_failures,
)
@pytest.mark.filterwarnings("ignore:.*was fitted.*feature names:UserWarning")
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.one_in(3)
@parametrize_with_checks(
    [KernelRegressor("gaussian:median", basis=Landmarks(30), solver="falkon", alpha=1e-6, device="cpu")],
    expected_failed_checks=_expected_failures,
)
@pytest.mark.filterwarnings("ignore:.*was fitted.*feature names:UserWarning")
def test_scikit_learns_own_checks_pass_with_the_regressor(estimator, check):
    check(estimator)


@pytest.mark.repeated
@parametrize_with_checks(
    [
        KernelClassifier("gaussian:median", loss="logistic", basis=AllRows(), max_epochs=5, device="cpu"),
        KernelRegressor("gaussian:median", basis=AllRows(), max_epochs=15, dtype="float64", device="cpu"),
        KernelRegressor("gaussian:median", basis=AllRows(), solver="direct", alpha=1e-6, dtype="float64", device="cpu"),
        KernelRegressor("gaussian:median", basis=AllRows(), solver="pcg", alpha=1e-4, dtype="float64", device="cpu"),
    ],
    expected_failed_checks=_expected_failures,
)
@pytest.mark.filterwarnings("ignore:.*was fitted.*feature names:UserWarning")
def test_scikit_learns_own_checks_pass_with_other_bases_and_solvers(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def test_the_defaults_are_those_of_the_design():
    parameters = KernelClassifier().get_params()
    assert parameters["kernel"] == "auto"
    assert parameters["basis"] == "auto"
    assert parameters["scale"] == "auto"
    assert parameters["loss"] == "auto"
    expected = {"solver": "auto", "alpha": "auto", "max_epochs": 10, "batch_size": "auto", "early_stopping": False}
    assert {name: parameters[name] for name in expected} == expected
    assert parameters["random_state"] == 0
    assert parameters["client"] is None


def test_it_works_in_a_pipeline_a_clone_and_a_grid_search(digits):
    X, y = digits
    pipeline = make_pipeline(StandardScaler(), KernelClassifier("gaussian:median", basis=Landmarks(200), max_epochs=3))
    assert pipeline.fit(X[:800], y[:800]).score(X[800:], y[800:]) > 0.8
    model = clone(pipeline[-1]).set_params(max_epochs=2)
    assert model.max_epochs == 2
    search = GridSearchCV(model, {"alpha": [0.0, 1e-3]}, cv=2).fit(X[:400], y[:400])
    assert search.best_score_ > 0.7


def test_regression_converges_to_kernel_ridge():
    X, y = load_diabetes(return_X_y=True)
    alpha = 1e-2
    ours = KernelRegressor(
        Gaussian(0.2), basis=AllRows(), alpha=alpha, max_epochs=1000, fit_intercept=False, dtype="float64",
        batch_size=len(X),
    ).fit(X, y)  # fmt: skip
    theirs = KernelRidge(alpha=alpha * len(X), kernel="rbf", gamma=1 / (2 * 0.2**2)).fit(X, y)
    ours_f, theirs_f = ours.predict(X), theirs.predict(X)
    assert np.abs(ours_f - theirs_f).max() <= 1e-4 * np.abs(theirs_f).max()


def test_an_intercept_takes_care_of_targets_far_from_zero():
    X, y = load_diabetes(return_X_y=True)
    near = KernelRegressor(Gaussian(0.2), basis=AllRows(), max_epochs=20).fit(X, y)
    far = KernelRegressor(Gaussian(0.2), basis=AllRows(), max_epochs=20).fit(X, y + 1e6)
    np.testing.assert_allclose(far.predict(X) - 1e6, near.predict(X), atol=0.05)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", [str, float, bool])
def test_labels_of_any_kind_come_back_as_they_were(digits, kind):
    X, codes = digits[0][:600], digits[1][:600]
    y = (codes > 4) if kind is bool else codes.astype(kind)
    model = KernelClassifier("gaussian:median", basis=Landmarks(300), max_epochs=5).fit(X, y)
    predicted = model.predict(X)
    assert predicted.dtype == y.dtype
    assert (predicted == y).mean() > 0.95


@pytest.mark.long
def test_integer_weights_mean_repeated_rows():
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:100], y[:100]
    weight = np.random.default_rng(0).integers(1, 4, 100)
    # One batch of all rows leaves no noise: both end at the one optimum.
    settings = {
        "kernel": Gaussian(0.2), "basis": AllRows(), "alpha": 1e-2, "max_epochs": 1000, "dtype": "float64",
        "batch_size": 1000,
    }  # fmt: skip
    weighted = KernelRegressor(**settings).fit(X, y, sample_weight=weight)
    repeated = KernelRegressor(**settings).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    a, b = weighted.predict(X), repeated.predict(X)
    assert np.abs(a - b).max() <= 1e-4 * np.abs(b).max()


@pytest.mark.long
def test_class_weight_shifts_the_balance(digits):
    X, codes = digits
    rng = np.random.default_rng(0)
    rare = (codes == 8) ^ (rng.random(len(codes)) < 0.03)
    settings = {"kernel": "gaussian:median", "basis": Landmarks(100), "max_epochs": 3}
    plain = KernelClassifier(**settings).fit(X, rare).predict(X)
    balanced = KernelClassifier(**settings, class_weight="balanced").fit(X, rare).predict(X)
    assert balanced.sum() > plain.sum()


def test_early_stopping_returns_the_best_epoch_and_says_so(digits):
    X, y = digits
    model = KernelClassifier(
        Gaussian(2.0), basis=Landmarks(300), max_epochs=60, early_stopping=True, n_iter_no_change=2
    ).fit(X[:1200], y[:1200])
    assert model.stop_reason_ == "early_stopping"
    assert model.n_iter_ < 60
    assert len(model.history_) == model.n_iter_
    assert max(epoch.validation_score for epoch in model.history_) > 0.9
    held_out = KernelClassifier(Gaussian(2.0), basis=Landmarks(300), max_epochs=3, early_stopping=True).fit(
        X[:1200], y[:1200], validation=(X[1200:], y[1200:])
    )
    assert held_out.history_[-1].validation_score > 0.9


def test_probabilities_exist_for_all_losses_and_without_calibration_for_logistic_ones(digits):
    X, y = digits[0][:600], digits[1][:600]
    model = KernelClassifier("gaussian:median", loss="multinomial_logistic", basis=Landmarks(200), max_epochs=5)
    probabilities = model.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert (model.classes_[probabilities.argmax(axis=1)] == model.predict(X)).all()
    assert hasattr(KernelClassifier(loss="hinge"), "predict_proba")
    assert not hasattr(KernelClassifier(loss="hinge", calibrate=False), "predict_proba")


def test_the_same_seed_gives_the_same_model_and_another_seed_another(digits):
    X, y = digits[0][:400], digits[1][:400]
    settings = {"kernel": Gaussian(2.0), "basis": Landmarks(100), "max_epochs": 2}
    first, again = (KernelClassifier(**settings, random_state=3).fit(X, y).dual_coef_ for _ in range(2))
    other = KernelClassifier(**settings, random_state=4).fit(X, y).dual_coef_
    assert (first == again).all()
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernel": "gausian:5"}, "did you mean 'gaussian'"),
        ({"kernel": Gaussian}, "give a kernel such as"),
        ({"loss": "hinged"}, "did you mean 'hinge'"),
        ({"solver": "eigenprot"}, "did you mean 'eigenpro'"),
        ({"alpha": -1.0}, "0 or more"),
        ({"max_epochs": 0}, "at least 1"),
        ({"batch_size": 0}, "at least 1"),
        ({"dtype": "float16"}, "float32"),
        ({"device": "tpu"}, "'cpu', 'gpu' or 'auto'"),
        ({"basis": 500.5}, "Landmarks"),
        ({"class_weight": {"elephant": 2.0}}, "elephant"),
        ({"memory_budget": 1000}, "budget"),
        ({"memory_budget": "1GB"}, "got memory_budget='1GB'; expected a positive number of bytes"),
        ({"random_state": -1}, "got random_state=-1; expected a whole number from 0"),
        ({"random_state": "one"}, "got random_state='one'; expected a whole number from 0"),
        ({"calibrate": 0.99999}, r"too few to hold out a share of them \(calibrate=0.99999\); give another share"),
        ({"early_stopping": True, "validation_fraction": 0.99999}, r"share of them \(validation_fraction=0.99999\)"),
        ({"solver": "nystrom_sgd", "basis": AllRows()}, "Landmarks"),
    ],
)
def test_a_setting_without_a_meaning_is_one_sentence(digits, change, words):
    X, y = digits
    with pytest.raises(DaskkernError, match=words):
        KernelClassifier(**{"kernel": "gaussian:2", "basis": Landmarks(50), "max_epochs": 1, **change}).fit(X, y)


def test_values_that_overflow_are_one_sentence(digits):
    X, y = digits
    with pytest.raises(DaskkernError, match="too large for float32"):
        KernelClassifier("gaussian:2", basis=Landmarks(50)).fit(X * 1e30, y)
    model = KernelClassifier("gaussian:2", basis=Landmarks(50), max_epochs=1).fit(X, y)
    with pytest.raises(DaskkernError, match="too large for float32"):
        model.predict(X * 1e39)


def test_validation_rows_must_have_as_many_targets():
    X, y = load_diabetes(return_X_y=True)
    model = KernelRegressor(Gaussian(0.2), basis=Landmarks(50), early_stopping=True)
    with pytest.raises(DaskkernError, match="1 targets, the training rows 2"):
        model.fit(X, np.stack([y, y], axis=1), validation=(X, y))


def test_settings_of_any_number_type_can_be_saved(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    model = KernelRegressor(Gaussian(0.2), basis=Landmarks(50), solver=EigenPro(subsample=np.int64(20)), max_epochs=2)
    model.fit(X, y).save(tmp_path / "model.zarr")
    with pytest.raises(DaskkernError, match=r"subsample=2\.5"):
        EigenPro(subsample=2.5)


def test_a_loss_for_the_other_task_is_refused():
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(DaskkernError, match="got the hinge loss for a regression task"):
        KernelRegressor(Gaussian(0.2), loss="hinge").fit(X, y)
