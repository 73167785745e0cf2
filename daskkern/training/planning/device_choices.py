"""Choices that depend on the GPU of a rank: the precision of float32 products, and the batch size.

All ranks choose the same.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import ModuleType

import numpy as np

from daskkern.backend.communicator import Communicator
from daskkern.kernels.engines import cuda
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.planning.resources import WorkerResources
from daskkern.training.run.settings import BATCH_ELEMENTS, FitSettings

_BATCH_SHARE = 16
"""Parts of a device's memory of which the kernel values of an automatic batch take at most one."""


def chosen_products(comm: Communicator, xp: ModuleType, settings: FitSettings, d: int) -> AbstractContextManager[None]:
    """Return the context of the products of rows of `d` features. A collective, but for fits that have no choice.

    Products on tensor cores take the place of those in float32 where a calibration says on every rank's GPU that the
    same ones are fastest, and as exact. With virtual ranks they never do, so that the bits do not depend on where these
    run.
    """
    exact = settings.dtype == "float32" and settings.precision in (None, "float32")
    if settings.device == "cpu" or not exact or d <= cuda.FEW_FEATURES or settings.virtual_shards is not None:
        return cuda.products_by(cuda.WAYS[0])
    mine = 0 if xp is np else cuda.WAYS.index(cuda.fastest_exact_way(xp, d))
    everyone = np.concatenate(comm.allgather(np.array([mine], np.int64)))
    return cuda.products_by(cuda.WAYS[mine if (everyone == mine).all() else 0])


def batch_elements(device_size: int, dtype: str) -> int:
    """Return the most kernel values of an automatic batch for a device with `device_size` bytes of memory in all.

    A power of two, so that all devices of a kind have the same one: at most a 16th of the memory, and never less than
    on a CPU.
    """
    numbers = device_size // (_BATCH_SHARE * np.dtype(dtype).itemsize)
    return max(BATCH_ELEMENTS, 1 << max(0, numbers.bit_length() - 1))


def with_batches_of_devices(
    settings: FitSettings, source: RowSource, resources: Sequence[WorkerResources]
) -> FitSettings:
    """Return the settings of a fit with one rank for each of `resources`, whose automatic batches fit their devices.

    The device with the least memory counts, and as many halves of what :func:`batch_elements` says as let the plan fit
    and change nothing about the factor of projections. Settings are returned as they are where it is decided already,
    where a rank has no device, and with virtual ranks, whose model depends on no device.
    """
    given = settings.batch_elements is not None or settings.batch_size != "auto" or settings.virtual_shards is not None
    if given or not resources or not all(resource.device_size for resource in resources):
        return settings
    least = min(resources, key=lambda resource: resource.device_budget or 0)

    def planned(elements: int) -> MemoryPlan:
        chosen = replace(settings, batch_elements=elements)
        return upper_bound_plan(source, chosen, len(resources), least.threads, least.budget, least.device_budget or 0)

    elements = batch_elements(min(resource.device_size for resource in resources), settings.dtype)
    usual = planned(BATCH_ELEMENTS) if elements > BATCH_ELEMENTS else None
    while usual is not None and elements > BATCH_ELEMENTS:
        plan = planned(elements)
        same_factor = plan.sizes is not None and usual.sizes is not None and plan.sizes.exact == usual.sizes.exact
        if same_factor and plan.total <= plan.budget and plan.device_total <= plan.device_budget:
            break
        elements //= 2
    return replace(settings, batch_elements=elements)
