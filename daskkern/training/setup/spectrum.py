"""What the set-up found of the kernel's spectrum, as an event."""

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.events import SpectrumFound
from daskkern.preconditioners import CovarianceState, EigenProState, NystromState
from daskkern.solvers import EigenPro, NystromSGD
from daskkern.solvers.base import smoothness_of
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.explicit_columns import covariance_rows
from daskkern.training.setup.prepared import Prepared

_MOST = 1000
"""Eigenvalues of an event: Nystrom-SGD knows one for each landmark."""


def spectrum_of(prepared: Prepared, settings: FitSettings) -> SpectrumFound | None:
    """Return the spectrum before and after preconditioning, or None for a solver that has none. Costs no products.

    The step is that of the first batch, before any decay.
    """
    state, solver = prepared.state, settings.solver
    if settings.behind and not isinstance(state, EigenProState):
        return None  # of rows that are not here
    batch, smoothness, alpha = prepared.plan.batch_size, smoothness_of(settings.loss), settings.ridge
    if isinstance(state, EigenProState):
        q, s = state.damping.size, state.vectors.shape[0]
        shares = 1 - state.damping * s * state.eigenvalues[:q]
    elif isinstance(state, CovarianceState):
        assert isinstance(solver, EigenPro)
        s, shares = covariance_rows(solver, prepared.plan.n_rows), 1 - state.damping
    elif isinstance(state, NystromState):
        s, shares = prepared.plan.n_rows, state.conditioner
    else:
        return None
    if isinstance(state, NystromState):
        paper = isinstance(solver, NystromSGD) and solver.step_rule == "paper"
        step = 1 / state.top if paper else state.step_size(batch, smoothness, alpha)
    else:
        scale = solver.step_scale if isinstance(solver, EigenPro) else 1.0
        step = scale * state.step_size(batch, smoothness, alpha)
    values = state.eigenvalues
    flattened = values.copy()
    flattened[: shares.size] *= shares
    return SpectrumFound(s, _numbers(values), _numbers(flattened), batch, float(state.critical_batch), float(step))


def _numbers(values: FloatArray) -> tuple[float, ...]:
    return tuple(np.asarray(values[:_MOST], float).tolist())
