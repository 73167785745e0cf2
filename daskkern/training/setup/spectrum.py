"""The event that reports the spectrum found by the set-up."""

from daskkern.events import SpectrumFound
from daskkern.solvers.preparation import SPECTRAL
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared


def spectrum_of(prepared: Prepared, settings: FitSettings) -> SpectrumFound | None:
    """Return the spectrum before and after preconditioning, or None for a solver that has none. Costs no products.

    A run that goes on with other rows tells that of its centres, and none of the rows that are not here.
    """
    state, solver, explicit = prepared.state, settings.solver, settings.basis.is_explicit
    if state is None or solver.preparation not in SPECTRAL:
        return None
    if settings.behind and (explicit or solver.preparation != "spectrum"):
        return None
    plan = prepared.plan
    return solver.spectrum_found(state, plan.n_rows, explicit, plan.batch_size, settings.loss, settings.ridge)
