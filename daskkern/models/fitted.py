"""The model of a fitted estimator."""

import os
from typing import Any

from daskkern.errors import SpecError
from daskkern.models.kernel_model import KernelModel
from daskkern.models.store import load_model


def fitted_model(fit: Any) -> KernelModel:
    """Return the model of a fitted estimator, of a path or URL, or the model itself.

    Raises SpecError for anything else, and ModelError for a path without a model.
    """
    if isinstance(fit, str | os.PathLike):
        return load_model(os.fspath(fit))
    found = fit if isinstance(fit, KernelModel) else getattr(fit, "model_", None)
    if not isinstance(found, KernelModel):
        raise SpecError(f"got a {type(fit).__name__}; expected a fitted estimator, a KernelModel, or the path of one")
    return found
