"""The memory and operations of feature learning, for the sample and for a pass over all rows."""

from dataclasses import dataclass

from daskkern.backend.tiles import TILE_ROWS
from daskkern.feature_learning.gradients import TILE_ELEMENTS, TILES
from daskkern.feature_learning.metric import MORE, MOST_SQUARE, rank_for
from daskkern.feature_learning.passes import BLOCKS_HELD
from daskkern.feature_learning.ridge import BLOCK_ROWS
from daskkern.feature_learning.settings import FeatureLearning
from daskkern.feature_learning.trials import GRADIENT_ROWS
from daskkern.kernels.functions.length_scale import MEDIAN_ROWS

FOLDS, FEW_ROWS = 3, 2500
"""Folds of a sample of up to 2,500 rows; a larger one is cut once."""
_PENALTIES = 5  # that a round tries
_EIGEN = 10.0  # multiply-adds of an eigendecomposition of a (d, d) matrix, in units of d^3
_PYTHON = 4  # numbers that one of a kernel's tuples takes: a reference, and an object


@dataclass(frozen=True)
class LearningCosts:
    """What feature learning takes for rows of some shape.

    Attributes
    ----------
    n_rows : int
        Training rows.
    d, width : int
        Features, and the numbers that a row takes: fewer of sparse rows.
    c : int
        Outputs of the regressions.
    learning : FeatureLearning
    full : bool
        Whether a metric with directions is tried.
    median_numbers : int
        What the median distance of :data:`MEDIAN_ROWS` rows takes.
    """

    n_rows: int
    d: int
    width: int
    c: int
    learning: FeatureLearning
    full: bool
    median_numbers: int = int(3.5 * MEDIAN_ROWS**2)

    @property
    def m(self) -> int:
        """Rows of the sample."""
        return min(self.n_rows, self.learning.n_sampled)

    @property
    def p(self) -> int:
        """Landmarks."""
        return min(self.m, self.learning.n_landmarks)

    @property
    def rank(self) -> int:
        """Most directions of a metric."""
        return rank_for(self.d, self.learning.rank)

    def sample_bytes(self, threads: int) -> int:
        """Return the bytes of trials on the sample, in the process that makes the set-up."""
        m, p, few = self.m, self.p, min(self.m, GRADIENT_ROWS)
        held = 2 * self.learning.n_iter + 4  # rounds of the best run and of the one that is tried, and first ones
        copies = 2.5 + (FOLDS if m <= FEW_ROWS else 0)
        rows = int(copies * m * self.width) + 2 * few * self.width
        targets = int((copies + 3) * m * self.c)
        rounds = held * (p * (self.width + 2 * self.c) + _PYTHON * self.d * self._columns)
        share = (min(m, MEDIAN_ROWS) / MEDIAN_ROWS) ** 2
        solving = max(5 * p * p + 2 * min(m, BLOCK_ROWS) * p, int(share * self.median_numbers))
        return 8 * (rows + targets + rounds + max(solving, self._gradient_numbers(threads)))

    def pass_bytes(self, block_rows: int, itemsize: int, threads: int) -> int:
        """Return the bytes of a rank in a pass over all rows, in blocks of `block_rows`; 0 where there is none."""
        if not self.learning.of_all_rows:
            return 0
        blocks = (BLOCKS_HELD + 1) * min(block_rows, self.n_rows) * (self.width * itemsize + 8 * (self.c + 2))
        function = self.p * (self.width + self.c) * (8 + itemsize) + MEDIAN_ROWS * self.width * 8
        return blocks + function + 8 * self._gradient_numbers(threads)

    def sample_flops(self) -> float:
        """Return the operations of trials on the sample, kernel values left out: of one candidate, all rounds."""
        m, p, c = float(self.m), float(self.p), float(self.c)
        folds = FOLDS if m <= FEW_ROWS else 1
        solve = 2 * m * p * p + _PENALTIES * (2 / 3 * p**3 + 2 * p * p * c)
        metric = 2 * min(m, GRADIENT_ROWS) * self._row_macs + 2 * self._decomposition_macs
        return (self.learning.n_iter + 1) * (1 + (folds > 1)) * (solve + metric)

    def sample_entries(self) -> float:
        """Return the kernel values of trials on the sample: of one candidate, all rounds."""
        folds = FOLDS if self.m <= FEW_ROWS else 1
        each = self.m * (1 + 0.2 * _PENALTIES) + self.p + min(self.m, GRADIENT_ROWS)
        return float(self.learning.n_iter + 1) * (1 + (folds > 1)) * each * self.p

    def pass_flops(self) -> float:
        """Return the operations of a pass over all rows on all ranks, kernel values left out."""
        return 2 * self.n_rows * self._row_macs if self.learning.of_all_rows else 0.0

    def pass_entries(self) -> float:
        """Return the kernel values of a pass over all rows on all ranks."""
        return float(self.n_rows) * self.p if self.learning.of_all_rows else 0.0

    @property
    def _columns(self) -> int:
        return self.rank if self.full else 1

    @property
    def _summed(self) -> int:
        """Columns of what is summed of outer products."""
        if not self.full:
            return 1
        return self.d if self.d <= MOST_SQUARE else min(self.d, self.rank + MORE) + 1

    @property
    def _row_macs(self) -> float:
        """Multiply-adds of the gradients at one row, and of their outer product."""
        return float(self.d) * (self.p * (1 + self.c) + self.c * self._summed * (1 + (self.d > MOST_SQUARE)))

    @property
    def _decomposition_macs(self) -> float:
        return _EIGEN * float(self.d) * self._summed**2 if self.full else 0.0

    def _gradient_numbers(self, threads: int) -> int:
        """Return the numbers in use while gradients are computed and summed, and their sums are decomposed."""
        rows = max(1, min(TILE_ROWS, TILE_ELEMENTS // (TILES * self.c * self.d)))
        gradients = rows * self.c * self.d
        tile = gradients + rows * (3 * self.p + 3 * self.d) + self.p * (self.width + self.c)
        return TILES * gradients + threads * tile + 6 * self.d * self._summed
