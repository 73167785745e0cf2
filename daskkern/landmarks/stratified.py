"""Landmarks stratified by class."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import IntArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.data.rows.rows import Fields, Rows
from daskkern.errors import SpecError
from daskkern.kernels import Kernel
from daskkern.landmarks.base import LandmarkSelector, LandmarkSet, rows_as_landmarks

_STREAM = 32


@dataclass(frozen=True)
class Stratified(LandmarkSelector):
    """Landmarks in the class proportions of the rows, with at least one for each class if there are enough.

    Needs class labels.
    One pass over y (8 bytes a row are held).
    """

    name: ClassVar[str] = "stratified"
    uses_kernel: ClassVar[bool] = False

    def select(self, rows: Rows, kernel: Kernel, n: int, seed: int) -> LandmarkSet:
        del kernel
        if rows.task != "classification" or rows.classes is None:
            raise SpecError("got selector 'stratified' for rows without classes; use selector 'uniform'")
        codes = _codes(rows)
        rng = generator(seed, _STREAM)
        quotas = _quotas(np.bincount(codes, minlength=len(rows.classes)), min(n, rows.n_rows))
        members = [
            rng.choice(np.flatnonzero(codes == code), size=quota, replace=False) for code, quota in enumerate(quotas)
        ]
        return rows_as_landmarks(rows, rng.permutation(np.concatenate(members)).astype(np.int64))


def _codes(rows: Rows) -> IntArray:
    parts = []
    for part in slices(rows.n_rows, 16 * rows.chunk_rows):
        y = rows.read(part.start, part.stop, Fields.y).y
        if y is not None:
            parts.append(y)
    return np.concatenate(parts)


def _quotas(counts: IntArray, n: int) -> IntArray:
    """Distribute `n` over the classes in proportion to `counts`, largest remainders first, no empty class left out."""
    exact = counts * (n / counts.sum())
    quotas = np.floor(exact).astype(np.int64)
    quotas[(quotas == 0) & (counts > 0)] = 1
    for code in np.argsort(np.floor(exact) - exact, kind="stable"):
        if quotas.sum() < n and quotas[code] < counts[code]:
            quotas[code] += 1
    while quotas.sum() > n and quotas.max() > 1:
        quotas[np.argmax(quotas)] -= 1
    while quotas.sum() > n:  # fewer landmarks than classes: the rarest get none
        quotas[np.argmin(np.where(quotas > 0, counts, counts.max() + 1))] = 0
    return np.minimum(quotas, counts)
