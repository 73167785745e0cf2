"""NumPy's whole numbers and floats in settings: every class of settings takes them, and a fit has Python's numbers."""

import json
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from daskkern import FeatureLearning, KernelClassifier, KernelRegressor, Landmarks
from daskkern.backend.python_numbers import with_python_numbers
from daskkern.basis import AllRows, DoublyStochastic, Linear, LocallyLinear, LocalRows, NystromFeatures, RandomFeatures
from daskkern.cluster.gang.gang import GangSettings
from daskkern.kernels import Laplacian, Polynomial
from daskkern.losses import Huber, Squared
from daskkern.model_selection.budget import Budget
from daskkern.solvers import SOLVERS, EigenPro
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.settings import FitSettings

FIT = FitSettings(Laplacian(1.0), Squared(), Landmarks(20), EigenPro())
BASES = [Landmarks(), AllRows(), RandomFeatures(100), NystromFeatures(100), Linear(), DoublyStochastic(), LocalRows()]
BASES.append(LocallyLinear())
OTHERS = [FeatureLearning(rank=3), EarlyStopping(), GangSettings(n_ranks=2, share_memory=1 << 30), CheckpointPolicy()]
WHOLE = {"memory_budget": 1 << 30, "disk_budget": 1 << 30, "virtual_shards": 2, "batch_size": 8}


def _numpy(value: Any) -> Any:
    if isinstance(value, bool):
        return np.bool_(value)
    return np.int64(value) if isinstance(value, int) else np.float64(value) if isinstance(value, float) else value


def _with_numpy(settings: Any) -> Any:
    return replace(settings, **{f.name: _numpy(getattr(settings, f.name)) for f in fields(settings) if f.init})


def _plain(settings: Any) -> bool:
    values = [getattr(settings, item.name) for item in fields(settings)]
    return not any(isinstance(value, np.generic) or (is_dataclass(value) and not _plain(value)) for value in values)


@pytest.mark.parametrize("basis", BASES, ids=lambda basis: basis.name)
def test_function_spaces_take_them_and_a_fit_has_pythons(basis: Any) -> None:
    changed = replace(FIT, basis=_with_numpy(basis))
    assert _plain(changed)
    assert [getattr(changed.basis, f.name) for f in fields(basis)] == [getattr(basis, f.name) for f in fields(basis)]


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_solvers_take_them_and_a_fit_has_pythons(name: str) -> None:
    solver = SOLVERS[name]()
    assert replace(FIT, basis=AllRows(), solver=_with_numpy(solver)).solver == solver


@pytest.mark.parametrize("settings", OTHERS, ids=lambda one: type(one).__name__)
def test_other_settings_take_them(settings: Any) -> None:
    changed = _with_numpy(settings)
    for item in fields(settings):
        assert getattr(changed, item.name) == getattr(settings, item.name)
    assert _plain(changed)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint16, np.int64])
def test_feature_learning_takes_whole_numbers_of_every_size(kind: Any) -> None:
    found = FeatureLearning("full", rank=kind(3), n_iter=kind(2), n_rows=kind(100), n_landmarks=kind(50))
    assert found == FeatureLearning("full", rank=3, n_iter=2, n_rows=100, n_landmarks=50)
    assert _plain(found)


def test_a_fit_has_pythons_and_its_summary_is_json() -> None:
    early, learning = _with_numpy(EarlyStopping()), FeatureLearning(n_rows=np.int64(50))
    changed = replace(
        _with_numpy(replace(FIT, **WHOLE)),
        kernel=Laplacian(np.float64(1.0)),
        loss=Huber(np.float32(1.0)),
        early_stopping=early,
        learn_features=learning,
        class_weight={0: np.int64(2), 1: np.float32(0.5)},
        max_seconds=np.int64(9),
    )
    assert _plain(changed)
    assert changed.class_weight == {0: 2, 1: 0.5}
    assert "np." not in json.dumps(changed.summary())


def test_averages_and_time_limits_take_them() -> None:
    assert SOLVERS["sgd"](averaging=np.float32(0.5)).averaging == 0.5
    assert Budget(np.int64(3)).seconds == 3


def test_settings_without_them_stay_the_same_objects() -> None:
    assert with_python_numbers(FIT) is FIT
    assert with_python_numbers(Polynomial(3)) == Polynomial(3)
    assert with_python_numbers(7) == 7


@pytest.mark.parametrize(
    ("solver", "basis"),
    [("auto", Landmarks(np.int64(30))), ("sgd", RandomFeatures(np.int64(30)))],
    ids=["eigenpro", "sgd"],
)
def test_a_fit_runs_with_several_of_them_at_once(solver: str, basis: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    given = {"batch_size": 20, "max_epochs": 2, "virtual_shards": 2, "random_state": 1, "memory_budget": 1 << 31}
    shared = {"kernel": "gaussian:2", "solver": solver, "alpha": np.float64(1e-3)}
    found = KernelRegressor(basis=basis, **shared, **{name: np.int64(value) for name, value in given.items()})
    plain = KernelRegressor(basis=replace(basis, n=30), **shared, **given)
    np.testing.assert_array_equal(found.fit(X, X[:, 0]).model_.coef, plain.fit(X, X[:, 0]).model_.coef)


def test_weights_of_classes_may_be_numpys() -> None:
    X = np.random.default_rng(0).standard_normal((40, 2))
    y = (X[:, 0] > 0).astype(int)
    found, plain = (
        KernelClassifier("gaussian:1", basis=Landmarks(10), class_weight=weights).fit(X, y)
        for weights in ({0: np.int64(1), 1: np.float32(3)}, {0: 1, 1: 3})
    )
    np.testing.assert_array_equal(found.model_.coef, plain.model_.coef)


def test_every_settings_class_of_a_fit_is_here() -> None:
    taken = {type(one) for one in (*OTHERS, *BASES)}
    own = {type(getattr(replace(FIT, learn_features=FeatureLearning(), early_stopping=EarlyStopping()), f.name))
           for f in fields(FIT) if f.default is not MISSING or f.name == "basis"}  # fmt: skip
    assert {one for one in own if is_dataclass(one)} <= taken
