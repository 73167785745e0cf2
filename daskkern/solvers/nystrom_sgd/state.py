"""The state of Nystrom-SGD."""

from dataclasses import dataclass

from daskkern.arrays import Array
from daskkern.solvers.tail_average import TailAverage


@dataclass(frozen=True)
class NystromRun:
    """The state of a run. Streamed: `w` (r, c) whole and `A` (p_r, c) by column. Stored: `w` (r_r, c) by column."""

    w: Array
    A: Array
    step: int
    average: TailAverage
