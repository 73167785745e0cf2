"""Whether batches hold the same rows in every epoch, or rows are reshuffled into new batches.

Published methods draw new batches in every epoch. What later epochs take from a cache - kernel blocks, which are most
of the work, or the rows of a linear model - belongs to fixed batches: gathering it row by row for new ones moves as
many bytes as a step does, and made such epochs 1.3 to 1.5 times as long when measured. So where that much can be
cached, batches keep their rows, and each epoch visits them in an order of its own. Sizes and settings alone decide,
never the available memory: the same seed gives the same model on any machine and any number of workers.
The sampling "fresh" always reshuffles, and "fixed" never does.
"""

import math

import numpy as np

from daskkern.training.run.settings import FitSettings

CACHED_BYTES = 32_000_000_000
"""Most bytes, over all ranks, cached between epochs unless requested by name: what about ten ranks can hold."""


def reshuffles_batches(settings: FitSettings, n_rows: int, row_bytes: int) -> bool:
    """Return whether each epoch reshuffles `n_rows` rows of `row_bytes` bytes into new batches."""
    if settings.sampling in ("fresh", "fixed"):
        return settings.sampling == "fresh"
    return settings.keep_blocks in ("auto", "never") and _cacheable(settings, n_rows, row_bytes) > CACHED_BYTES


def _cacheable(settings: FitSettings, n: int, row_bytes: int) -> float:
    """Return the bytes that later epochs could take from a cache; infinity where caching does not pay."""
    basis = settings.basis
    if basis.drawn_per_step or settings.solver.learns_centres:
        return math.inf
    if basis.is_linear:
        return n * row_bytes
    return n * basis.most_columns(n, 0, lambda: 0) * np.dtype(settings.dtype).itemsize
