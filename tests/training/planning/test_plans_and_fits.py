"""A plan of few rows has the sizes of the fit that follows: both come from the same set-up."""

from dataclasses import replace

import numpy as np
import pytest
from distributed import Client

from daskkern.basis import AllRows, BasisSpec, Landmarks, RandomFeatures
from daskkern.cli.plan import _here, _on_cluster
from daskkern.data.schema.schema import Scaling
from daskkern.events import SpectrumFound
from daskkern.kernels import AutoKernel, Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro, Falkon, NystromSGD, Pegasos, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.measured_rates import Rates
from daskkern.training.planning.planner import expected_setup, summarise, upper_bound_summary
from daskkern.training.planning.timing import choice_seconds
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import prepare

_RATES = Rates(5.0, 4.0, 1.0, 1e10, 1e10, 1e10, 1e9, 1e-6, 1e-5, 500, None, 0.5)
WAYS: list[tuple[BasisSpec, Solver[object]]] = [
    (AllRows(), EigenPro()),
    (Landmarks(60), EigenPro()),
    (RandomFeatures(100), EigenPro()),
    (Landmarks(60), NystromSGD()),
    (Landmarks(60), Falkon()),
    (AllRows(), Pegasos()),
]
ways = pytest.mark.parametrize(
    ("basis", "solver"), WAYS, ids=["all rows", "landmarks", "features", "nystrom", "falkon", "pegasos"]
)


def _source(n: int, d: int = 5) -> ArraySource:
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = (X[:, 0] + 0.5 * rng.standard_normal(n) > 0).astype(np.int64)
    info = SourceInfo(n, d, "classification", (0, 1), Scaling(), None, 1, True)
    return ArraySource(X, y, None, info)


def _settings(basis: BasisSpec, solver: Solver[object]) -> FitSettings:
    return FitSettings(AutoKernel(), SquaredHinge(), basis, solver, max_epochs=1, device="cpu", calibrate=False)


def _batch_of_fit(source: ArraySource, settings: FitSettings, client: Client | None = None) -> int:
    """Return the rows of a batch that a fit says it takes."""
    seen: list[object] = []
    fit(source, settings, client=client, listener=seen.append)
    (found,) = (event for event in seen if isinstance(event, SpectrumFound))
    return found.batch_size


@ways
@pytest.mark.parametrize("n", [25, 60, 150, 400])
def test_a_plan_of_few_rows_has_the_batch_of_the_fit(n: int, basis: BasisSpec, solver: Solver[object]) -> None:
    source, settings = _source(n), _settings(basis, solver)
    found = _here(0, source, settings)
    assert found.rates is not None
    prepared = prepare(source, settings, False)
    assert (found.batch, found.rates.batch) == (prepared.plan.batch_size, summarise(prepared, settings).m)


@pytest.mark.parametrize("n", [90, 300])
def test_its_memory_is_that_of_the_fit(n: int) -> None:
    source, settings = _source(n), replace(_settings(AllRows(), EigenPro()), calibrate=0.2)
    setup = expected_setup(source, settings)
    assert setup.batch is not None
    prepared = prepare(source, settings, True)
    assert setup.summary == summarise(prepared, settings)
    assert setup.timed.kernel == prepared.basis.kernel
    upper = upper_bound_summary(source, settings)
    assert all(getattr(setup.summary, name) <= getattr(upper, name) for name in ("p", "s", "q", "m", "n"))


@pytest.mark.parametrize("solver", [EigenPro(), NystromSGD()], ids=["eigenpro", "nystrom"])
def test_the_fit_itself_takes_that_batch(solver: Solver[object]) -> None:
    source, settings = _source(203), _settings(Landmarks(60), solver)
    assert _here(0, source, settings).batch == _batch_of_fit(source, settings)


@pytest.mark.cluster
@pytest.mark.parametrize("n", [40, 200])
def test_on_a_cluster_too(n: int, client2: Client) -> None:
    source, settings = _source(n), _settings(AllRows(), EigenPro())
    found = _on_cluster(client2, source, settings)
    assert found.rates is not None
    assert [rates.batch for rates in found.of_ranks] == 2 * [found.rates.batch]
    assert found.batch == _batch_of_fit(source, settings, client2)


def test_many_rows_are_estimated() -> None:
    source, settings = _source(2500), _settings(Landmarks(60), EigenPro())
    setup = expected_setup(source, settings)
    assert setup.batch is None
    assert (setup.settings, setup.summary) == (settings, upper_bound_summary(source, settings))


def test_a_plan_has_the_time_of_choices() -> None:
    source, settings = _source(200), replace(_settings(AllRows(), EigenPro()), alpha="auto")
    sizes = _here(0, source, settings).plan.sizes
    assert sizes is not None
    both = dict(choice_seconds(source, settings, sizes, _RATES))
    assert list(both) == ["choice of the kernel", "choice of the penalty"]
    assert both["choice of the kernel"] == pytest.approx(4 * both["choice of the penalty"], rel=0.1)
    named = choice_seconds(source, replace(settings, kernel=Gaussian(2.0), alpha=0.1), sizes, _RATES)
    assert named == ()
