"""Projections on landmarks: by a factor as far as memory reaches, else by iteration to a residual that is told."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from daskkern.basis import Landmarks
from daskkern.errors import SpecError
from daskkern.events import Event, OptimalityMeasured, StageFinished
from daskkern.kernels import Laplacian, Points
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.planning.memory_plan import FitSizes, plan_memory
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.projections import with_factor
from tests.support.fits import Fit, toy_settings, toy_source
from tests.support.plans import CENTRES, planned_settings, planned_source

NEEDED = plan_memory(CENTRES, 0).total


@pytest.mark.parametrize(
    ("projection", "budget", "exact"),
    [
        ("auto", NEEDED, True),
        ("auto", NEEDED - 1, False),
        ("exact", NEEDED - 1, True),
        ("eigenpro", NEEDED, False),
    ],
)
def test_automatic_projections_have_a_factor_where_memory_reaches(projection: str, budget: int, exact: bool) -> None:
    assert with_factor(CENTRES, EigenPro(projection=projection), budget, 0).exact is exact


def test_on_a_gpu_its_memory_decides() -> None:
    sizes = replace(CENTRES, device="gpu")
    needed = sum(size for _, size in plan_memory(sizes, 0, 0).device_items)
    assert with_factor(sizes, EigenPro(), 1 << 50, needed).exact
    assert not with_factor(sizes, EigenPro(), 1 << 50, needed - 1).exact


def test_windows_of_projections_by_iteration_are_of_p_rows_or_as_many_as_fit() -> None:
    def planned(budget: int, window: int | str = "auto", span: int = 0) -> FitSizes:
        sizes = replace(CENTRES, d=2048, window=1, span=span)
        return with_factor(sizes, EigenPro(projection="eigenpro", window=window), budget, 0)

    def needed(sizes: FitSizes) -> int:
        return plan_memory(sizes, 0).total

    p, m = CENTRES.p, CENTRES.m
    whole = planned(1 << 50)
    assert (whole.window, whole.exact) == (p // m, False)
    assert planned(1 << 50, span=7).span == p
    half = planned(needed(whole) - 1)
    assert half.window == p // m // 2
    assert needed(half) <= needed(whole) - 1
    assert planned(0).window == whole.window  # refused with remedies, not made slow
    assert planned(0, window=3).window == planned(1 << 50, window=3).window == 3
    assert with_factor(CENTRES, EigenPro(), NEEDED, 0).window == CENTRES.window


@dataclass(frozen=True)
class CountedLaplacian(Laplacian):
    """Counts the pairs of rows whose kernel values are computed."""

    pairs: list[int] = field(default_factory=list, compare=False)

    def block(self, X: Any, Z: Any, out: Any = None) -> Any:
        self.pairs.append(X.shape[0] * (Z.size if isinstance(Z, Points) else len(Z)))
        return super().block(X, Z, out)

    def matvec(self, X: Any, Z: Any, A: Any, head: Any = None, *, threads: int | None = None) -> Any:
        self.pairs.append(X.shape[0] * (Z.size if isinstance(Z, Points) else len(Z)))
        return super().matvec(X, Z, A, head, threads=threads)


def _kernel_values_per_row(solver: EigenPro, n: int, d: int, p: int) -> float:
    """Return the kernel values of an epoch for each row and centre: its multiply-adds in units of p d."""

    def made(epochs: int) -> int:
        kernel = CountedLaplacian(float(d) ** 0.5)
        settings = FitSettings(
            kernel, Squared(), Landmarks(p), solver, max_epochs=epochs, batch_size=20, dtype="float32", device="cpu",
            keep_blocks="never", scale=None,
        )  # fmt: skip
        fit(planned_source(n, d), settings)
        return sum(kernel.pairs)

    return (made(2) - made(1)) / n / p


@pytest.mark.repeated
def test_a_row_of_many_features_takes_a_third_of_the_work_of_the_window_of_a_factor() -> None:
    n, d, p = 400, 2048, 200
    assert EigenPro(projection="exact").projection_window(p, d, 20) == 2
    assert EigenPro(projection="eigenpro").projection_window(p, d, 20) == 10
    short = _kernel_values_per_row(EigenPro(projection="eigenpro", window=2), n, d, p)
    whole = _kernel_values_per_row(EigenPro(projection="eigenpro"), n, d, p)
    assert short > 10
    assert whole < 4.2
    assert whole < 0.4 * short


def test_a_plan_says_which() -> None:
    def items(budget: int, projection: str = "auto") -> set[str]:
        solver = EigenPro(projection=projection)
        plan = upper_bound_plan(planned_source(30_000), planned_settings(Landmarks(25_000), solver), 1, 1, budget)
        return {name for name, _ in plan.items}

    assert "projection factor" in items(1 << 40)
    assert "projection by iteration" in items(1 << 30)
    assert "projection factor" in items(1 << 30, "exact")


@pytest.mark.parametrize(("projection", "how"), [("auto", "with a factor"), ("eigenpro", "iterated to a residual of")])
def test_a_fit_says_how_it_projects_and_what_is_left(projection: str, how: str) -> None:
    settings = toy_settings(Landmarks(40), EigenPro(projection=projection, projection_tol=1e-2), Squared(), "float32")
    fit, events = Fit.of(toy_source(), settings), list[Event]()
    results = fit.results(2, listen=events.append)
    (stage,) = [event for event in events if isinstance(event, StageFinished) and event.stage == "columns"]
    assert how in stage.detail
    reported = [event for event in events if isinstance(event, OptimalityMeasured)]
    assert {result.reason for result in results} == {"max_epochs"}
    assert len(reported) == (3 if projection == "eigenpro" else 0)
    for event in reported:
        assert event.measure == "projection residual"
        assert 0 < event.value <= 1e-2
        assert event.note.startswith("asked for 0.01, ")


def test_projections_by_iteration_come_to_the_model_of_the_factor() -> None:
    exact, iterated = (
        Fit.of(toy_source(), toy_settings(Landmarks(40), EigenPro(projection=projection, projection_tol=1e-6)))
        for projection in ("exact", "eigenpro")
    )
    wanted = exact.scores(exact.results(1))
    np.testing.assert_allclose(iterated.scores(iterated.results(1)), wanted, atol=1e-4 * np.abs(wanted).max())


def test_a_tolerance_beyond_1_is_refused() -> None:
    with pytest.raises(SpecError, match=r"got projection_tol=1\.5; expected"):
        EigenPro(projection_tol=1.5)
