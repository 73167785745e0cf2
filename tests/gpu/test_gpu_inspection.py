"""Gradients of models on a GPU, or on its stand-in, and what is made of them, against the CPU."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse

from daskkern import KernelModel
from daskkern.arrays import HostArray
from daskkern.basis.partition import partition_tree
from daskkern.data.rows.csr import append_column
from daskkern.data.schema.schema import Scaling
from daskkern.inspection import gradient_importance, interactions, score_gradients
from daskkern.kernels import AdditiveLaplacian, Gaussian, Kernel, L1Laplacian, Laplacian, Partitioned, TreeAverage

D = 4
_RNG = np.random.default_rng(0)
_Z, _A = _RNG.standard_normal((60, D)), _RNG.standard_normal((60, 2))


def _trees() -> TreeAverage:
    return TreeAverage(Gaussian(1.5), tuple(partition_tree(_Z, 20, 0, number) for number in range(2)), D)


KERNELS: dict[str, Callable[[], Kernel]] = {
    "gaussian": lambda: Gaussian(1.7),
    "a metric": lambda: Laplacian(1.0).weighted(np.random.default_rng(1).standard_normal((D, 3)), 2.0),
    "l1": lambda: L1Laplacian(4.0),
    "additive": lambda: AdditiveLaplacian(2.0).resolve(_Z),
    "a sum": lambda: Gaussian(1.7) + 0.5 * Laplacian(3.0),
    "leaves": lambda: Partitioned(Gaussian(1.5), partition_tree(_Z, 20, 0)),
    "trees": _trees,
}


def _model(kernel: Kernel, classes: tuple[str, ...] | None = None) -> KernelModel:
    points = append_column(_Z, np.arange(60) % 2) if isinstance(kernel, TreeAverage) else _Z
    task, loss = ("regression", "squared") if classes is None else ("classification", "logistic")
    scaling = Scaling("standard", tuple(np.linspace(-1, 1, D)), tuple(np.linspace(1, 2, D)))
    return KernelModel(kernel, points, _A, loss, task, classes, scaling, single_target=False)


def _rows(n: int = 50) -> HostArray:
    return np.random.default_rng(2).standard_normal((n, D))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", KERNELS)
def test_importances_and_interactions_are_those_of_the_cpu(xp: ModuleType, name: str) -> None:
    model, X = _model(KERNELS[name]()), _rows()
    weight = np.random.default_rng(3).uniform(0, 2, 50)
    there, here = (gradient_importance(model, X, sample_weight=weight, device=where) for where in ("gpu", "cpu"))
    assert np.ptp(here.importances) > 0
    np.testing.assert_allclose(there.importances, here.importances, rtol=1e-9)
    pairs = [interactions(model, X, sample_weight=weight, device=where) for where in ("gpu", "cpu")]
    assert type(pairs[0].strengths) is np.ndarray
    np.testing.assert_allclose(pairs[0].strengths, pairs[1].strengths, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "trees"])
def test_gradients_of_sparse_rows_and_of_classes_are_those_of_the_cpu(xp: ModuleType, name: str) -> None:
    model, X = _model(KERNELS[name](), ("a", "b")), _rows()
    X[np.abs(X) < 0.5] = 0
    for rows in (X, scipy.sparse.csr_array(X)):
        there, here = (score_gradients(model, rows, device=where) for where in ("gpu", "cpu"))
        assert type(there) is np.ndarray
        np.testing.assert_allclose(there, here, rtol=1e-9, atol=1e-12)


def test_the_largest_of_several_scores_is_that_of_the_cpu(xp: ModuleType) -> None:
    points, coef = _Z, np.random.default_rng(4).standard_normal((60, 4))
    model = KernelModel(Gaussian(1.7), points, coef, "multiclass_hinge", "classification", ("a", "b"), scores_each=2)
    there, here = (gradient_importance(model, _rows(), device=where) for where in ("gpu", "cpu"))
    np.testing.assert_allclose(there.importances, here.importances, rtol=1e-9)
