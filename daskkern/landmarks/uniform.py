"""Uniform landmarks."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.backend.random import generator
from daskkern.data.rows.rows import Rows
from daskkern.kernels import Kernel
from daskkern.landmarks.base import LandmarkSelector, LandmarkSet, rows_as_landmarks

_STREAM = 31


@dataclass(frozen=True)
class Uniform(LandmarkSelector):
    """Every row with the same probability, without replacement."""

    name: ClassVar[str] = "uniform"
    uses_kernel: ClassVar[bool] = False

    def select(self, rows: Rows, kernel: Kernel, n: int, seed: int) -> LandmarkSet:
        del kernel
        chosen = generator(seed, _STREAM).choice(rows.n_rows, size=min(n, rows.n_rows), replace=False, shuffle=True)
        return rows_as_landmarks(rows, chosen.astype(np.int64))
