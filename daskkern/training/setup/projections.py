"""The solver of ``K_ZZ t = h`` in projections: a factor where memory allows, else iteration."""

from dataclasses import replace
from typing import Any

from daskkern.solvers import Solver
from daskkern.solvers.costs.sizes import FitSizes
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.suggestions import fits
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared

_LEAST_SHARE = 8
"""By which the window of projections by iteration is divided at most: they then take most of the time."""


def with_factor(sizes: FitSizes, solver: Solver[Any], budget: int, device_budget: int) -> FitSizes:
    """Return the sizes of a fit with landmarks (``sizes.exact``) with or without a factor for projections.

    As the solver says; "auto" has one where it fits the memory that holds the columns: the device's, with one.
    Without one, an automatic window is as long as its temporary centres fit there, down to an eighth.
    """
    how = solver.projection_factor
    if not sizes.exact:
        return sizes
    if how == "always" or (how == "auto" and fits(sizes, budget, device_budget)):
        return sizes
    window = solver.projection_window(sizes.p, sizes.d, sizes.m, factor_fits=False)
    span = solver.projection_span(sizes.p, sizes.d, sizes.m, factor_fits=False) if sizes.span else 0
    iterated = replace(sizes, exact=False, window=window, span=span)
    shares = range(1, _LEAST_SHARE + 1) if solver.chooses_window else (1,)
    shorter = (replace(iterated, window=max(1, window // k), span=span // k) for k in shares)
    return next((one for one in shorter if fits(one, budget, device_budget)), iterated)


def window_of(prepared: Prepared, memory: MemoryPlan) -> int:
    """Return the batches between projections: those that were planned with, where a plan decided."""
    return prepared.window if memory.sizes is None else memory.sizes.window


def in_words(prepared: Prepared, settings: FitSettings, memory: MemoryPlan) -> str:
    """Return how often projections are made, and how, in a few words; "" where there are none."""
    factor_fits = memory.sizes is None or memory.sizes.exact
    return settings.solver.projections_in_words(window_of(prepared, memory), factor_fits)
