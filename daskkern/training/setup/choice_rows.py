"""The sample on which a kernel and a penalty are chosen: random, and in two strata for weighted rows.

Rows of more than 16 times the mean weight, such as the few of a rare class whose weights are balanced, decide the
objective, and a random sample has none of them. They are a stratum of their own, of which up to half of the sample
comes; with N rows of a stratum and k of them in the sample, a row counts N / k times its weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskkern.arrays import FloatArray, IntArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.data.rows.rows import Fields, RowBlock, Rows, take
from daskkern.training.feeding.targets import Targets
from daskkern.training.setup.row_sizes import HEAVY
from daskkern.training.setup.shared import TARGETS, flat

_CHUNKS = 16


@dataclass(frozen=True, eq=False)
class ChoiceRows:
    """The training rows that choices of a fit are made on."""

    rows: Rows
    targets: Targets
    seed: int

    @cached_property
    def heavy(self) -> IntArray:
        """The numbers of the rows of far more than the mean weight, from a pass over the weights of all rows."""
        return np.concatenate([np.zeros(0, np.int64), *_heavy(self.rows, self.targets)])

    def drawn(self, s: int, stream: int, fields: Fields = TARGETS) -> tuple[IntArray, RowBlock, FloatArray | None]:
        """Return the numbers of s rows, ascending, their `fields`, and what each counts (s,) in a mean over all rows.

        None stands for rows that count the same. `fields` are those of targets and weights, or more. `stream` keeps
        apart the draws of one seed.
        """
        rng, n = generator(self.seed, stream), self.rows.n_rows
        drawn = np.sort(rng.permutation(n)[:s]).astype(np.int64)
        block = take(self.rows, drawn, fields)
        weight = flat(self.targets.weight(block))
        if weight is None or s >= n or not self.heavy.size:
            return drawn, block, weight
        light = drawn[~np.isin(drawn, self.heavy)]
        some = rng.permutation(self.heavy)[: s // 2]
        light = light[np.sort(rng.permutation(light.size)[: s - some.size])]
        chosen = np.concatenate([some, light])
        each = np.array([self.heavy.size / max(some.size, 1), (n - self.heavy.size) / max(light.size, 1)])
        order = np.argsort(chosen)
        chosen, each = chosen[order], np.repeat(each, [some.size, light.size])[order]
        block = take(self.rows, chosen, fields)
        weight = flat(self.targets.weight(block))
        assert weight is not None
        counts = weight * each
        return chosen, block, counts / counts.mean()


def _heavy(rows: Rows, targets: Targets) -> Iterator[IntArray]:
    """Yield the numbers of the rows of far more than the mean weight, which is 1."""
    for part in slices(rows.n_rows, _CHUNKS * rows.chunk_rows):
        weight = flat(targets.weight(rows.read(part.start, part.stop, TARGETS)))
        if weight is not None:
            yield part.start + np.flatnonzero(weight > HEAVY)
