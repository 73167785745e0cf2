"""Which rows go to the test part: seeded, exact, and decided without looking at more than a group of rows."""

import numpy as np
import numpy.typing as npt

from daskkern.backend.random import generator
from daskkern.errors import DataError, SpecError

_STREAM = 0xDA7A_0005
_GROUP = 1024


class Split:
    """Deals rows to training and test, group by group of consecutive rows.

    Each group gives its share, so that after any number of whole groups the test part is within one row of its
    fraction, and ``round(fraction * n_rows)`` at the end. Which rows of a group is a seeded draw. So the split
    depends on (n_rows, fraction, seed) alone, not on how the rows are read.
    """

    def __init__(self, fraction: float, n_rows: int, seed: int) -> None:
        if not 0 < fraction < 1:
            raise SpecError(f"a split of {fraction:g} was asked; give the test part as a fraction between 0 and 1")
        self._fraction, self._n_rows, self._seed = fraction, n_rows, seed
        self.n_test = self._quota(n_rows)
        if not 0 < self.n_test < n_rows:
            raise DataError(
                f"a split of {fraction:g} puts {self.n_test} of {n_rows} rows into the test part; both parts need rows"
            )

    def is_test(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return for the rows from `start` to `stop` whether each belongs to the test part."""
        groups = range(start // _GROUP, -(-stop // _GROUP))
        masks = np.concatenate([self._group(number) for number in groups])
        offset = start - groups.start * _GROUP
        return masks[offset : offset + stop - start]

    def _quota(self, rows: int) -> int:
        return round(self._fraction * rows)

    def _group(self, number: int) -> npt.NDArray[np.bool_]:
        start = number * _GROUP
        stop = min(start + _GROUP, self._n_rows)
        keys = generator(self._seed, _STREAM, number).bit_generator.random_raw(stop - start)
        mask = np.zeros(stop - start, bool)
        mask[np.argsort(keys, kind="stable")[: self._quota(stop) - self._quota(start)]] = True
        return mask
