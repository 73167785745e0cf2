"""Rows that a kernel and a penalty are chosen on: random ones, and all that weigh far more than others."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daskkern import KernelClassifier
from daskkern.arrays import FloatArray, HostArray
from daskkern.basis import AllRows
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Laplacian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.feeding.targets import Targets, learn_targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.choice_rows import ChoiceRows

N = 5000
RNG = np.random.default_rng


def _rows(y: HostArray, weight: FloatArray | None = None, class_weight: Any = None) -> tuple[Any, Targets]:
    X = RNG(0).standard_normal((len(y), 3))
    info = SourceInfo(len(y), 3, "classification", (0, 1), Scaling(), None, 1, True)
    rows = ArraySource(X, y, weight, info).open("float32")
    settings = FitSettings(Laplacian(1.0), Squared(), AllRows(), EigenPro(), alpha=0.0, device="cpu")
    return rows, learn_targets(rows, replace(settings, class_weight=class_weight))


def _labels(n_rare: int) -> HostArray:
    y = np.zeros(N, np.int64)
    y[RNG(1).choice(N, n_rare, replace=False)] = 1
    return y


def test_equal_rows_are_drawn_at_random_and_count_the_same() -> None:
    rows, targets = _rows(_labels(2500))
    chosen, _, counts = ChoiceRows(rows, targets, 7).drawn(400, 3)
    assert counts is None
    assert (np.diff(chosen) > 0).all()
    assert len(chosen) == 400
    again, _, _ = ChoiceRows(rows, targets, 7).drawn(400, 3)
    other, _, _ = ChoiceRows(rows, targets, 7).drawn(400, 4)
    np.testing.assert_array_equal(chosen, again)
    assert (chosen != other).any()


@pytest.mark.parametrize("n_rare", [2, 4, 100])
def test_all_rows_of_a_rare_class_are_there_and_count_their_balanced_weight(n_rare: int) -> None:
    y = _labels(n_rare)
    rows, targets = _rows(y, class_weight="balanced")
    chosen, _, counts = ChoiceRows(rows, targets, 0).drawn(400, 3)
    assert len(chosen) == 400
    assert (np.diff(chosen) > 0).all()
    assert y[chosen].sum() == n_rare
    assert counts is not None
    np.testing.assert_allclose(counts[y[chosen] == 1].sum() / counts.sum(), 0.5, rtol=1e-6)
    np.testing.assert_allclose(counts.mean(), 1.0)


def test_many_heavy_rows_are_at_most_half_of_the_sample_and_count_for_the_others() -> None:
    weight = np.ones(N)
    heavy = RNG(2).choice(N, 280, replace=False)
    weight[heavy] = 1e4
    rows, targets = _rows(_labels(2500), weight)
    chosen, _, counts = ChoiceRows(rows, targets, 0).drawn(400, 3)
    assert counts is not None
    there = np.isin(chosen, heavy)
    assert there.sum() == 200
    np.testing.assert_allclose(counts[there].sum() / counts.sum(), weight[heavy].sum() / weight.sum(), rtol=1e-6)


def test_weighted_means_over_the_sample_are_those_of_all_rows() -> None:
    weight = np.exp(2 * RNG(3).standard_normal(N))
    rows, targets = _rows(_labels(2500), weight)
    value = np.sin(np.arange(N) / 500)
    found = []
    for seed in range(40):
        chosen, _, counts = ChoiceRows(rows, targets, seed).drawn(600, 3)
        assert counts is not None
        found.append(np.average(value[chosen], weights=counts))
    assert abs(np.mean(found) - np.average(value, weights=weight)) < 4 * np.std(found) / 40**0.5 + 1e-3


def test_a_sample_of_all_rows_is_all_rows() -> None:
    rows, targets = _rows(_labels(4), class_weight="balanced")
    chosen, _, counts = ChoiceRows(rows, targets, 0).drawn(N, 3)
    np.testing.assert_array_equal(chosen, np.arange(N))
    assert counts is not None


@pytest.mark.repeated
def test_a_fit_with_few_rows_of_one_class_has_a_penalty_for_them() -> None:
    y = _labels(5)
    X = RNG(4).standard_normal((N, 5))
    X[y == 1] += 2.5
    model = KernelClassifier(class_weight="balanced", max_epochs=2, device="cpu", random_state=0).fit(X, y)
    assert model.alpha_ > 1e-5  # leave-one-out on rows of one class only took the least that is tried
