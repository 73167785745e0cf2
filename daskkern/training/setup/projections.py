"""How projections solve ``K_ZZ t = h``: by a factor, as far as memory reaches, or by iteration."""

from dataclasses import replace
from typing import Any

from daskkern.solvers import Solver
from daskkern.solvers.costs.sizes import FitSizes
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.suggestions import fits
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared


def with_factor(sizes: FitSizes, solver: Solver[Any], budget: int, device_budget: int) -> FitSizes:
    """Return the sizes of a fit with landmarks (``sizes.exact``) with or without a factor for projections.

    As the solver says; "auto" has one where it fits the memory that holds the columns: the device's, with one.
    """
    how = solver.projection_factor
    if not sizes.exact or how == "never":
        return replace(sizes, exact=False)
    return replace(sizes, exact=how == "always" or fits(sizes, budget, device_budget))


def in_words(prepared: Prepared, settings: FitSettings, memory: MemoryPlan) -> str:
    """Return how often projections are made, and how, in a few words; "" where there are none."""
    factor_fits = memory.sizes is None or memory.sizes.exact
    return settings.solver.projections_in_words(prepared.window, factor_fits)
