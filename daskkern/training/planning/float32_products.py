"""Which way the ranks of a fit multiply float32 rows of many features on their GPUs: all of them the same."""

from contextlib import AbstractContextManager
from types import ModuleType

import numpy as np

from daskkern.backend.communicator import Communicator
from daskkern.kernels.engines import cuda
from daskkern.training.run.settings import FitSettings


def chosen_products(comm: Communicator, xp: ModuleType, settings: FitSettings, d: int) -> AbstractContextManager[None]:
    """Return the context of the products of rows of `d` features. A collective, but for fits that have no choice.

    Three products of TF32 take the place of one in float32 where a calibration says on every rank's GPU that they are
    faster and as exact. With virtual ranks it is always one, so that the bits do not depend on where they run.
    """
    exact = settings.dtype == "float32" and settings.precision in (None, "float32")
    if settings.device == "cpu" or not exact or d <= cuda.FEW_FEATURES or settings.virtual_shards is not None:
        return cuda.on_tensor_cores(False)
    mine = xp is not np and cuda.is_faster_and_as_exact(xp, d)
    everyone = np.concatenate(comm.allgather(np.array([mine], np.int64)))
    return cuda.on_tensor_cores(bool(everyone.all()))
