"""Assignment of rows to training, test and validation: seeded, exact for every class, in bounded memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daskkern.arrays import IntArray
from daskkern.backend.random import generator
from daskkern.errors import DataError, SpecError

TRAIN, TEST, VALIDATION = 0, 1, 2

_STREAMS = {TEST: 0xDA7A_0005, VALIDATION: 0xDA7A_0008}
_GROUP = 1024


@dataclass(frozen=True)
class SplitSettings:
    """Settings of a split: the shares of rows that leave the training part, and whether to stratify by class."""

    test: float | None = None
    validation: float | None = None
    stratify: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, share in (("split", self.test), ("validation split", self.validation)):
            if share is not None and not 0 < share < 1:
                raise SpecError(f"got a {name} of {share:g}; give that part as a fraction between 0 and 1")
        if (self.test or 0) + (self.validation or 0) >= 1:
            raise SpecError(
                f"got a split of {self.test:g} and a validation split of {self.validation:g}, which leave no rows for "
                "training; give shares with a sum less than 1"
            )

    @property
    def is_wanted(self) -> bool:
        """Whether any rows leave the training part."""
        return self.test is not None or self.validation is not None


class Split:
    """Assigns rows, in order, to the parts TRAIN, TEST and VALIDATION.

    Each stratum contributes its share of each part, within one row; all together contribute ``round(share * rows)``.
    A stratum keeps at least one row for training. The rows that leave are a seeded draw, group by group of consecutive
    rows of the stratum. So the split depends on the strata of the rows, the shares and the seed alone, not on how
    the rows are read.

    Parameters
    ----------
    settings : SplitSettings
    counts : sequence of int
        Rows of each stratum: class counts, or the number of all rows.
    """

    def __init__(self, settings: SplitSettings, counts: Sequence[int]) -> None:
        rest = np.asarray(counts, np.int64)
        self._parts: list[tuple[int, list[_Draw]]] = []
        self.sizes = {TEST: 0, VALIDATION: 0}
        for part, share in ((TEST, settings.test), (VALIDATION, settings.validation)):
            if share is None:
                continue
            chosen = apportion(share, counts, np.maximum(rest - 1, 0))
            self._check(part, share, int(chosen.sum()), sum(counts))
            streams = [(_STREAMS[part], stratum) for stratum in range(len(counts))]
            draws = [_Draw(int(k), int(n), settings.seed, s) for k, n, s in zip(chosen, rest, streams, strict=True)]
            self._parts.append((part, draws))
            self.sizes[part] = int(chosen.sum())
            rest = rest - chosen

    def assign(self, strata: IntArray) -> npt.NDArray[np.uint8]:
        """Return the part (m,) of the next m rows, which belong to `strata` (m,)."""
        parts = np.zeros(len(strata), np.uint8)
        for stratum in np.unique(strata):
            rows = np.flatnonzero(strata == stratum)
            for part, draws in self._parts:
                leaves = draws[stratum].next(len(rows))
                parts[rows[leaves]] = part
                rows = rows[~leaves]
        return parts

    def passed(self) -> IntArray:
        """Return the rows of each stratum that each draw has passed (draws, strata), for :meth:`continue_at`."""
        return np.array([[draw.done for draw in draws] for _, draws in self._parts], np.int64)

    def continue_at(self, passed: IntArray) -> None:
        """Continue where another split with the same settings was."""
        for (_, draws), counts in zip(self._parts, passed, strict=True):
            for draw, done in zip(draws, counts, strict=True):
                draw.continue_at(int(done))

    def _check(self, part: int, share: float, size: int, n_rows: int) -> None:
        if size == 0:
            name = "test" if part == TEST else "validation"
            raise DataError(f"a split of {share:g} puts 0 of {n_rows} rows into the {name} part; all parts need rows")


def apportion(share: float, counts: Sequence[int], most: IntArray) -> IntArray:
    """Return how many rows each stratum gives: its share within one row, at most `most`, ``round(share * n)`` in all.

    Uses the largest remainder method (Hamilton); a tie goes to the earlier stratum.
    """
    exact = share * np.asarray(counts, np.float64)
    chosen = np.minimum(np.floor(exact).astype(np.int64), most)
    open_seats = round(share * sum(counts)) - int(chosen.sum())
    remainders = np.where(chosen < np.minimum(most, np.ceil(exact)), exact - chosen, -1.0)
    order = np.argsort(-remainders, kind="stable")[: max(0, open_seats)]
    chosen[order[remainders[order] > 0]] += 1
    return chosen


class _Draw:
    """Draws `k` of the `n` rows of one stratum, in order."""

    def __init__(self, k: int, n: int, seed: int, stream: tuple[int, int]) -> None:
        self._k, self._n, self._seed, self._stream = k, n, seed, stream
        self.done = 0
        self._mask = np.zeros(0, np.bool_)  # of the group that contains the next row

    def next(self, rows: int) -> npt.NDArray[np.bool_]:
        """Return for each of the next rows whether it is chosen."""
        parts = []
        while rows:
            within = self.done % _GROUP
            if within == 0:
                self._mask = self._group(self.done // _GROUP)
            part = self._mask[within : within + rows]
            parts.append(part)
            self.done += len(part)
            rows -= len(part)
        return np.concatenate([*parts, np.zeros(0, np.bool_)])

    def continue_at(self, done: int) -> None:
        """Continue after `done` rows."""
        self.done = done
        if done % _GROUP:
            self._mask = self._group(done // _GROUP)

    def _group(self, number: int) -> npt.NDArray[np.bool_]:
        start = number * _GROUP
        stop = min(start + _GROUP, self._n)
        keys = generator(self._seed, *self._stream, number).bit_generator.random_raw(stop - start)
        mask = np.zeros(stop - start, np.bool_)
        mask[np.argsort(keys, kind="stable")[: self._quota(stop) - self._quota(start)]] = True
        return mask

    def _quota(self, rows: int) -> int:
        return self._k * rows // self._n
