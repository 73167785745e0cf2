"""The penalty of a model, for comparing models by the objective of the fit."""

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.communicator import Communicator, allgather_rows
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.solvers import AnyProblem
from daskkern.training.run.settings import FitSettings

_CENTRES = 2000
_BLOCK = 1024
_STREAM = 58


@dataclass(frozen=True, eq=False)
class ModelPenalty:
    """The penalty ``(alpha/2) |f|^2``, plus the L1 penalty of solvers that have one.

    With kernel columns ``|f|^2 = sum_j a_j f(z_j)`` is estimated from at most 2,000 columns drawn at random: a pass
    over all pairs could take as long as an epoch. With explicit features it is ``|w|^2``.

    Attributes
    ----------
    settings : FitSettings
    problem : Problem
    points : (p_r, d) array
        The points of the rank's columns.
    comm : Communicator
    xp : module
    """

    settings: FitSettings
    problem: AnyProblem
    points: HostArray
    comm: Communicator
    xp: ModuleType

    def of(self, coef: Array, points: HostArray | None = None) -> tuple[float, float]:
        """Return the penalty of a model and its standard deviation. A collective.

        Parameters
        ----------
        coef : (p_r, c) array
        points : (p_r, d) array or None
            The points of its columns, where they differ from those of the problem.
        """
        l1 = self.settings.solver.l1_penalty
        absolute = l1 * self._sum(np.abs(_wide(coef))) if l1 else 0.0
        alpha = self.problem.alpha
        if not alpha:
            return absolute, 0.0
        if self.settings.basis.is_explicit:
            return alpha / 2 * self._sum(_wide(coef) ** 2) + absolute, 0.0
        terms, p = self._terms(coef, points)
        deviation = 0.0 if len(terms) == p else float(terms.std()) * p / len(terms) ** 0.5
        return alpha / 2 * float(terms.mean()) * p + absolute, alpha / 2 * deviation

    def _terms(self, coef: Array, points: HostArray | None) -> tuple[FloatArray, int]:
        """Return ``a_j f(z_j)`` of columns drawn at random, and the number of all columns."""
        ids = self.problem.part.columns.ids if points is None else np.arange(len(coef))
        p = int(sum(int(count[0]) for count in self.comm.allgather(np.array([ids.size]))))
        drawn = np.sort(generator(self.settings.seed, _STREAM).permutation(p)[:_CENTRES])
        own = np.flatnonzero(np.isin(ids, drawn))
        part, centres = self.problem.part, self.points if points is None else points
        if points is not None:
            part = part.moved(to_device(points, self.xp))
        order = np.argsort(_joined(ids[own], self.comm))
        Z = allgather_rows(to_device(centres[own], self.xp), self.comm)
        a, placed = _joined(_wide(coef)[own], self.comm), self.xp.asarray(coef)
        f = [to_host(self.comm.allreduce(part.scores(Z[block], placed))) for block in slices(len(drawn), _BLOCK)]
        terms: FloatArray = (a * np.concatenate(f)).sum(axis=1)[order]
        return terms, p

    def _sum(self, values: FloatArray) -> float:
        return float(self.comm.allreduce(np.array([values.sum()]))[0])


def _wide(coef: Array) -> FloatArray:
    return np.asarray(to_host(coef), np.float64)


def _joined(values: FloatArray | IntArray, comm: Communicator) -> HostArray:
    return np.concatenate([np.asarray(part) for part in comm.allgather(values)])
