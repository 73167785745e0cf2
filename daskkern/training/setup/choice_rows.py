"""The sample on which a kernel and a penalty are chosen: its size, and its rows, in two strata for weighted ones.

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
from daskkern.linalg.krylov_ridge import LANCZOS_STEPS
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.row_sizes import HEAVY
from daskkern.training.setup.shared import TARGETS, flat

SAMPLES, SMALL_SAMPLES = (2000, 1400), (1000, 700, 500, 300, 200)
"""Rows that errors are measured on; never more than there are."""
NOISY_SAMPLES = (6000, 4000)
"""Rows that a penalty is chosen on where targets are mostly noise."""
_TIMES = 2  # as many rows as such a sample has, at least
MOST_OUTPUTS = 4
"""Outputs of such a sample that are looked at, those of the largest variance."""
_EXACT_ROWS = (1400, 700)
_SHARE, _MOST = 0.05, 0.2  # of the work of a fit: for samples, and for small ones
# Work in multiply-adds of a float32 matrix product, measured on a CPU: an eigendecomposition runs at a lower rate.
_EIGEN, _ENTRY, _ANY_FIT, _MEMORY_BOUND = 12.0, 20.0, 1.2e10, 20.0
_FACTORED = 2000  # columns up to which the set-up of any solver has a decomposition, or a factor, of their kernel
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


def sample_rows(n: int, p: int, width: int, c: int, settings: FitSettings, n_grams: int = 1) -> int:
    """Return how many of n rows errors are measured on, for p columns, rows of `width` numbers and c outputs; 0: none.

    The largest sample whose work is at most a twentieth of that of the set-up and of one pass over the rows, or one of
    up to 1,000 rows whose work is at most a fifth of it. It depends neither on the machine nor on the epochs: a run
    may go on for longer than it was meant to. `n_grams` kernels are looked at, each with a decomposition of its own.
    Exact solutions follow the penalty down to rounding, and a sample may lack the rows that forbid so small a one:
    their samples are at least of 1,400 rows, and of 700 for several kernels.
    """
    found = _affordable_rows(n, p, width, c, settings, n_grams)
    return max(found, min(n, _EXACT_ROWS[n_grams > 1])) if settings.solver.solves_exactly else found


def _affordable_rows(n: int, p: int, width: int, c: int, settings: FitSettings, n_grams: int) -> int:
    linear = settings.basis.is_linear
    explicit = settings.basis.is_explicit and not settings.basis.drawn_per_step
    work, entry = _work(n, p, width, c, settings), 0.0 if linear else width + _ENTRY
    for s, share in (*((s, _SHARE) for s in SAMPLES), *((s, _MOST) for s in SMALL_SAMPLES)):
        size = float(min(s, n))
        gram = size * (size * (p if explicit and not linear else width + _ENTRY) + p * entry * explicit)
        if n_grams * (_EIGEN * size**3 + gram + 50.0 * c * size**2) <= share * work:
            return min(s, n)
    return 0


def noisy_rows(n: int, p: int, width: int, c: int, settings: FitSettings) -> int:
    """Return how many of n rows a penalty is chosen on where targets are mostly noise, for columns as in
    :func:`sample_rows`; 0 where that would be more than a fifth of the work, where there are not twice as many rows,
    and for explicit features and leaves, whose penalties are chosen in another way."""
    if settings.basis.is_explicit or settings.basis.leaf_size is not None:
        return 0
    work = _work(n, p, width, c, settings)
    for s in NOISY_SAMPLES:
        cost = float(s) ** 2 * (0.75 * (width + _ENTRY) + _MEMORY_BOUND / 4 * LANCZOS_STEPS * min(c, MOST_OUTPUTS))
        if n >= _TIMES * s and cost <= _MOST * work:
            return s
    return 0


def _work(n: int, p: int, width: int, c: int, settings: FitSettings) -> float:
    """Return the work of the set-up of a fit and of one pass over its rows."""
    linear = settings.basis.is_linear
    entry = 0.0 if linear else width + _ENTRY
    work = _ANY_FIT + float(n) * p * (_MEMORY_BOUND if linear else 1.0) * (entry + 2.0 * c)
    return work + (0.0 if linear else _EIGEN * float(min(n, p, _FACTORED)) ** 3)
