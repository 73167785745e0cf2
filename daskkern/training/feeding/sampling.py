"""Sampling of rows for batches, which affects the path of the optimisation but never the objective.

``class_weight`` and sample weights define the objective, ``(1/n) sum_i w_i loss_i + (alpha/2) |f|^2``. With uniform
sampling each row occurs once an epoch, with its weight w_i in the gradient. Otherwise a row is drawn ``n v_i / sum(v)``
times in expectation and counts ``w_i / v_i`` (both of mean 1) each time: the expected gradient is the same. Draws in
proportion to a mass v are systematic, so that their numbers vary least; independent ones are of equal probability. With
``v = w`` all drawn rows count the same, so that few heavy rows neither force small steps nor make gradients noisy.

References
----------
P. Zhao and T. Zhang, "Stochastic Optimization with Importance Sampling for Regularized Loss Minimization", ICML 2015.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.data.rows.resampled import ResampledRows, chunk_masses
from daskkern.data.rows.row_samplers import DrawnRows, IndependentRows
from daskkern.data.rows.rows import Fields, RowBlock, Rows
from daskkern.errors import SpecError
from daskkern.solvers.sampling import draws_rows
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings

_STREAM = 55


class Sampling(ABC):
    """Rows drawn again for every epoch."""

    @abstractmethod
    def rows(self, rows: Rows, epoch: int) -> DrawnRows:
        """Return the draws of an epoch, which depend on the seed and the epoch alone."""

    @abstractmethod
    def weight(self, block: RowBlock) -> HostArray | None:
        """Return what drawn rows count (m, 1); None when they all count 1."""

    def positions(self, rows: DrawnRows, draws: IntArray) -> IntArray:
        """Return the numbers (m,) that the rows of a batch have for the solver, from those of their draws."""
        del rows
        return draws


@dataclass(frozen=True)
class IndependentSampling(Sampling):
    """Each row drawn from all of them, with equal probability and with replacement.

    A batch is one of independent draws where one window holds all rows; else of those that fell into the chunks of its
    window, so that an epoch reads each chunk about once.
    """

    targets: Targets
    seed: int

    def rows(self, rows: Rows, epoch: int) -> IndependentRows:
        return IndependentRows(rows, self.seed, epoch)

    def weight(self, block: RowBlock) -> HostArray | None:
        return self.targets.weight(block)

    def positions(self, rows: DrawnRows, draws: IntArray) -> IntArray:
        """Return the numbers of the rows, by which solvers find what they remember of them."""
        order = np.argsort(draws, kind="stable")
        found = np.empty_like(draws)
        found[order] = rows.originals(draws[order])
        return found


@dataclass(frozen=True)
class MassSampling(Sampling):
    """Rows drawn in proportion to masses v of mean 1.

    Attributes
    ----------
    targets : Targets
        Encodes the targets and has the weights w.
    class_mass : (n_classes,) float64 or None
        v of the rows of each class; None means ``v = w``.
    masses : (n_chunks,) float64
        Sums of v over the chunks of the training rows.
    seed : int
    """

    targets: Targets
    class_mass: FloatArray | None
    masses: FloatArray
    seed: int

    def rows(self, rows: Rows, epoch: int) -> ResampledRows:
        offset = float(generator(self.seed, _STREAM, epoch).random())
        return ResampledRows(rows, self.masses, self.mass, offset)

    def mass(self, block: RowBlock) -> FloatArray:
        """Return v (m,) of rows."""
        return _mass(self.targets, self.class_mass, block)

    def weight(self, block: RowBlock) -> HostArray | None:
        if self.class_mass is None:
            return None
        weight = self.targets.weight(block)
        ones = 1.0 if weight is None else weight
        return (ones / self.mass(block)[:, None]).astype(self.targets.dtype)


def learn_sampling(rows: Rows, settings: FitSettings, targets: Targets) -> Sampling | None:
    """Return the sampling of the training rows, None where each comes once an epoch. Up to two passes over y.

    Raises
    ------
    SpecError
        When the rows have no classes or no weights to draw by.
    """
    if not draws_rows(settings.sampling):
        return None
    if settings.sampling == "independent":
        return IndependentSampling(targets, settings.seed)
    if settings.sampling == "weighted":
        if not rows.has_weight and targets.class_weight is None:
            raise SpecError(
                "got sampling='weighted', but all rows weigh the same; give class_weight or sample weights, or leave "
                "it out"
            )
        class_mass = None
    elif rows.task != "classification":
        raise SpecError("got sampling='balanced' for a regression task, which has no classes; use 'weighted'")
    else:
        class_mass = _class_mass(rows)
    masses = chunk_masses(rows, lambda block: _mass(targets, class_mass, block))
    return MassSampling(targets, class_mass, masses, settings.seed)


def _mass(targets: Targets, class_mass: FloatArray | None, block: RowBlock) -> FloatArray:
    if class_mass is not None:
        assert block.y is not None
        return class_mass[block.y]
    weight = targets.weight(block)
    assert weight is not None
    return weight[:, 0].astype(np.float64)


def _class_mass(rows: Rows) -> FloatArray:
    """Return n / (number of classes * rows of the class): all classes are drawn equally often."""
    counts = np.zeros(len(rows.classes or ()), np.int64)
    for part in slices(rows.n_rows, rows.chunk_rows):
        y = rows.read(part.start, part.stop, Fields.y).y
        assert y is not None
        counts += np.bincount(y, minlength=len(counts))
    return rows.n_rows / ((counts > 0).sum() * np.maximum(counts, 1.0))
