"""Plots of the spectrum of the preconditioner."""

from typing import Any

import numpy as np

from daskkern.errors import DataError
from daskkern.monitor.axes import new_axes, plain
from daskkern.monitor.palette import EIGENVALUES, FLATTENED
from daskkern.plot.arguments import Fit, model_of


def spectrum(fit: Fit, *, axes: Any = None) -> Any:
    """Draw the leading eigenvalues of the kernel operator, before and after preconditioning, on log scales.

    Parameters
    ----------
    fit
        A fitted estimator, a model, or the path of a saved model.
    axes : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    DataError
        When its solver computed no spectrum.
    """
    found = model_of(fit).history_.spectrum
    if found is None or not found.eigenvalues:
        raise DataError("the model has no spectrum to draw: its solver has no preconditioner, or it was saved without")
    axes = plain(new_axes(axes))
    numbers = np.arange(1, len(found.eigenvalues) + 1)
    axes.loglog(numbers, found.eigenvalues, color=EIGENVALUES, linewidth=1.6, label="kernel operator")
    after = np.arange(1, len(found.flattened) + 1)
    axes.loglog(after, found.flattened, color=FLATTENED, linewidth=1.6, label="after preconditioning")
    axes.set_xlabel("index of the eigenvalue")
    axes.set_ylabel("eigenvalue")
    critical = f" (critical {found.critical_batch:,.0f})" if np.isfinite(found.critical_batch) else ""
    axes.set_title(f"batch of {found.batch_size:,}{critical}, step {found.step:.4g}", fontsize="medium", loc="left")
    axes.legend(frameon=False, fontsize="small")
    return axes
