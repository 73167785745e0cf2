"""The model of a fitted estimator."""

from typing import Any

from daskkern.errors import SpecError
from daskkern.models.kernel_model import KernelModel


def fitted_model(fit: Any) -> KernelModel:
    """Return the model of a fitted estimator, or the model itself. Raises SpecError for anything else."""
    found = fit if isinstance(fit, KernelModel) else getattr(fit, "model_", None)
    if not isinstance(found, KernelModel):
        raise SpecError(f"got a {type(fit).__name__}; expected a fitted estimator or a KernelModel")
    return found
