"""How projections solve ``K_ZZ t = h``: by a factor, as far as memory reaches, or by iteration."""

from dataclasses import replace
from typing import Any

from daskkern.solvers import EigenPro, Solver
from daskkern.training.planning.memory import MemoryPlan
from daskkern.training.planning.sizes import FitSizes
from daskkern.training.planning.suggestions import fits
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared


def with_factor(sizes: FitSizes, solver: Solver[Any], budget: int, device_budget: int) -> FitSizes:
    """Return the sizes of a fit with landmarks (``sizes.exact``) with or without a factor for projections.

    As asked; projections "auto" have one where it fits the memory that holds the columns: the device's, with one.
    """
    if not (sizes.exact and isinstance(solver, EigenPro)):
        return replace(sizes, exact=False)
    wanted = solver.projection == "exact" or (solver.projection == "auto" and fits(sizes, budget, device_budget))
    return replace(sizes, exact=wanted)


def is_exact(solver: EigenPro, memory: MemoryPlan) -> bool:
    """Return whether projections use a factor of K_ZZ: as asked, or where the plan of every rank has room for one."""
    if solver.projection == "auto":
        return memory.sizes is None or memory.sizes.exact
    return solver.projection == "exact"


def in_words(prepared: Prepared, settings: FitSettings, memory: MemoryPlan) -> str:
    """Return how often projections are made, and how, in a few words; "" where there are none."""
    solver = settings.solver
    if not isinstance(solver, EigenPro):
        return ""
    how = "with a factor" if is_exact(solver, memory) else f"iterated to a residual of {solver.projection_tol:g}"
    return f", projections every {prepared.window} batches, {how}"
