"""Checks of the class attributes of solvers, and that they agree with the methods."""

from typing import Any

from daskkern.errors import SpecError
from daskkern.solvers.base import Solver
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.preparation import PREPARATIONS, SPECTRAL


def check_declarations(solver: Solver[Any], costs: MethodCosts) -> None:
    """Raise SpecError for a solver, with its `costs` of a fit, that contradicts itself."""
    needed = solver.preparation
    if needed not in PREPARATIONS:
        raise SpecError(
            f"got preparation={needed!r} of solver {solver.name}; expected one of {', '.join(PREPARATIONS)}"
        )
    if needed in SPECTRAL and type(solver).spectrum is Solver.spectrum:
        raise SpecError(
            f"got preparation={needed!r} of solver {solver.name}, which has no method spectrum() for the size of the "
            "spectrum; define the method, or set preparation = 'statistics'"
        )
    if costs.by_rows is (solver.parallelism == "columns"):
        raise SpecError(
            f"got parallelism={solver.parallelism!r} of solver {solver.name}, and {type(costs).__name__} with "
            f"by_rows={costs.by_rows} for its costs; make them agree"
        )
