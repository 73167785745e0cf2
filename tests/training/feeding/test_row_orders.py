"""Fresh permutations, one fixed permutation, and independent draws: what batches hold in each epoch."""

from dataclasses import replace

import numpy as np
import pytest

from daskkern import KernelClassifier
from daskkern.basis import AllRows, BasisSpec, Landmarks, Linear
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.errors import SpecError
from daskkern.kernels import LinearKernel
from daskkern.losses import Hinge
from daskkern.solvers import PCG, SDCA, EigenPro, Pegasos, Solver
from daskkern.training.checkpoints.partial_fit import reason_against_continuing
from daskkern.training.feeding.batch_reshuffling import reshuffles_batches
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, N, toy_settings, toy_source


def _fit(sampling: str, basis: BasisSpec, solver: Solver[object]) -> Fit:
    settings = replace(toy_settings(basis, solver, Hinge()), sampling=sampling, batch_size=8)
    return Fit.of(toy_source(), settings)


def _epochs(fit: Fit) -> list[list[int]]:
    plan = fit.prepared.plan
    assert isinstance(plan, BatchPlan)
    plan = replace(plan, chunk_rows=8, window_rows=32)
    assert plan.n_windows > 1
    return [
        [int(row) for batch in plan.order(epoch) for row in plan.positions(int(batch), epoch)] for epoch in (1, 2, 3)
    ]


@pytest.mark.parametrize("basis", [AllRows(), Linear()])
def test_a_fixed_permutation_is_the_same_sequence_in_every_epoch(basis: BasisSpec) -> None:
    first, *others = _epochs(_fit("fixed", basis, Pegasos()))
    assert sorted(first) == list(range(N))
    assert first != sorted(first)
    assert all(other == first for other in others)


def test_fresh_permutations_make_other_batches_in_every_epoch() -> None:
    fit = _fit("fresh", Linear(), Pegasos())
    for one in _epochs(fit):
        assert sorted(one) == list(range(N))
    plan = fit.prepared.plan
    assert isinstance(plan, BatchPlan)
    one, two = (
        {frozenset(plan.positions(batch, epoch).tolist()) for batch in range(plan.n_batches)} for epoch in (1, 2)
    )
    assert not one & two


def test_uniform_keeps_the_batches_and_visits_them_in_other_orders() -> None:
    first, second, _ = _epochs(_fit("uniform", Linear(), Pegasos()))
    assert sorted(first) == sorted(second)
    assert first != second


@pytest.mark.parametrize("sampling", ["fresh", "fixed"])
@pytest.mark.parametrize(("basis", "solver"), [(AllRows(), SDCA()), (Landmarks(30), EigenPro())])
def test_any_number_of_ranks_makes_one_model_of_each_order(
    sampling: str, basis: BasisSpec, solver: Solver[object]
) -> None:
    fit = _fit(sampling, basis, solver)
    if isinstance(solver, EigenPro):
        fit = Fit.of(toy_source(), replace(fit.settings, loss=toy_settings(basis, solver).loss))
    one, two = fit.scores(fit.results(1)), fit.scores(fit.results(2))
    np.testing.assert_allclose(two, one, rtol=1e-8, atol=1e-9)


def test_what_does_not_go_together_is_refused() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X[:, 0] > 0
    with pytest.raises(SpecError, match=r"choose 'uniform', 'fresh' or 'fixed'"):
        KernelClassifier(basis=Linear(), loss="hinge", solver=SDCA(), sampling="independent").fit(X, y)
    with pytest.raises(SpecError, match="an order that does not matter"):
        KernelClassifier(basis=AllRows(), loss="squared", solver=PCG(), sampling="fresh").fit(X, y)
    with pytest.raises(SpecError, match="choose 'never'"):
        FitSettings(LinearKernel(), Hinge(), AllRows(), Pegasos(), sampling="fresh", keep_blocks="memory")
    reason = reason_against_continuing(EigenPro(), Landmarks(10), early=False, weighs_classes=False, sampling="fixed")
    assert reason == "sampling='fixed' orders the rows of several epochs; leave it out"


def test_a_named_order_decides_on_batches_whatever_their_size() -> None:
    settings = toy_settings(AllRows(), Pegasos(), Hinge())
    assert reshuffles_batches(settings, 10**9, 1000)
    assert not reshuffles_batches(replace(settings, sampling="fixed"), 10**9, 1000)
    assert reshuffles_batches(replace(settings, sampling="fresh"), 10, 8)
