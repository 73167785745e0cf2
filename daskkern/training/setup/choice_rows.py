"""Rows that a kernel and a penalty are chosen on: a random sample, of weighted rows in two strata.

Rows of more than 16 times the mean weight, such as the few of a rare class whose weights are balanced, decide the
objective, and a random sample has none of them. They are a stratum of their own, of which up to half of the sample
comes; with N rows of a stratum and k of them in the sample, a row counts N / k times its weight.
"""

from collections.abc import Iterator

import numpy as np

from daskkern.arrays import FloatArray, IntArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.training.feeding.targets import Targets
from daskkern.training.setup.row_sizes import HEAVY
from daskkern.training.setup.shared import TARGETS, flat

_CHUNKS = 16


def choice_rows(rows: Rows, targets: Targets, s: int, seed: int, stream: int) -> tuple[IntArray, FloatArray | None]:
    """Return the numbers of s rows, ascending, and what each counts (s,) in a mean over all rows; None: all the same.

    Reads all weights where rows have unequal ones, and targets with them. `stream` keeps apart the draws of one seed.
    """
    rng, n = generator(seed, stream), rows.n_rows
    drawn = np.sort(rng.permutation(n)[:s]).astype(np.int64)
    weight = flat(targets.weight(take(rows, drawn, TARGETS)))
    if weight is None or s >= n:
        return drawn, weight
    heavy = np.concatenate([np.zeros(0, np.int64), *_heavy(rows, targets)])
    if not heavy.size:
        return drawn, weight
    light = drawn[~np.isin(drawn, heavy)]
    some = rng.permutation(heavy)[: s // 2]
    light = light[np.sort(rng.permutation(light.size)[: s - some.size])]
    chosen = np.concatenate([some, light])
    each = np.repeat([heavy.size / some.size, (n - heavy.size) / max(light.size, 1)], [some.size, light.size])
    order = np.argsort(chosen)
    chosen = chosen[order]
    weight = flat(targets.weight(take(rows, chosen, TARGETS)))
    assert weight is not None
    counts = weight * each[order]
    return chosen, counts / counts.mean()


def _heavy(rows: Rows, targets: Targets) -> Iterator[IntArray]:
    """Yield the numbers of the rows of far more than the mean weight, which is 1."""
    for part in slices(rows.n_rows, _CHUNKS * rows.chunk_rows):
        weight = flat(targets.weight(rows.read(part.start, part.stop, Fields.y | Fields.weight)))
        if weight is not None:
            yield part.start + np.flatnonzero(weight > HEAVY)
