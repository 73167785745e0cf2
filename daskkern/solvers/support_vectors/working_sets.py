"""The choice of working sets: which variables violate the conditions of the optimum most, and their order."""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.tiles import slices
from daskkern.solvers.support_vectors.block_problem import PAD
from daskkern.solvers.support_vectors.box_problem import BoxProblem, bounds_of, violations

_STRIP = 64
"""Rows of a matrix that are copied at once: new memory for them is little, and new memory is slow."""


@dataclass(frozen=True, eq=False)
class Here:
    """The active variables: gradients, which may rise and fall, the bounds of their groups, and the violation."""

    g: FloatArray
    up: HostArray
    down: HostArray
    rising: FloatArray
    falling: FloatArray
    violation: float

    @classmethod
    def of(cls, p: BoxProblem, groups: IntArray, g: FloatArray, up: HostArray, down: HostArray) -> "Here":
        if not p.coupled:
            none = np.zeros(1)
            return cls(g, up, down, none, none, float(violations(g, up, down).max(initial=0.0)))
        edge = bounds_of(groups, p.n_groups, g, up, down)
        return cls(g, up, down, edge.rising, edge.falling, edge.violation)


def worst(here: Here, groups: IntArray, free: HostArray, count: int, coupled: bool) -> IntArray:
    """Return at most `count` active variables, among those that are `free` to be chosen, that violate most."""
    if not coupled:
        over = np.where(free, violations(here.g, here.up, here.down), 0.0)
        return _largest(over, count, 0.0)
    chosen: list[IntArray] = []
    n_groups = here.rising.size
    for group in range(n_groups):
        if not here.rising[group] > here.falling[group]:
            continue
        member = free & (groups == group)
        each = max(1, count // (2 * n_groups))  # of few variables, too: a pair of one group must be able to move
        up = _largest(np.where(member & here.up, -here.g, -np.inf), each, here.falling[group])
        member[up] = False
        down = _largest(np.where(member & here.down, here.g, -np.inf), each, -here.rising[group])
        chosen += [up, down]
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)


def _largest(values: FloatArray, count: int, above: float) -> IntArray:
    """Return the places of the `count` largest values among those above a number."""
    candidates = np.flatnonzero(values > above)
    if candidates.size <= count:
        return candidates
    return candidates[np.argpartition(-values[candidates], count)[:count]]


def in_groups(chosen: IntArray, groups: IntArray, n_groups: int, coupled: bool) -> tuple[IntArray, IntArray]:
    """Return the variables in the order of their groups, each padded with -1, and where groups begin."""
    parts, edges = [], [0]
    for group in range(n_groups):
        part = chosen[groups == group] if coupled else chosen
        size = max(PAD, -(-part.size // PAD) * PAD)
        parts.append(np.concatenate([part, np.full(size - part.size, -1)]))
        edges.append(edges[-1] + size)
    return np.concatenate(parts), np.array(edges, np.int64)


def expanded(values: HostArray, places: IntArray, known: HostArray) -> FloatArray:
    """Return the values (q, q) at the places of `known` variables, float64, and zeros at those of padding."""
    at = np.zeros(known.size, np.int64)
    at[known] = places
    found = np.empty((known.size, known.size))
    for part in slices(known.size, _STRIP):
        found[part] = values.take(at[part], 0).take(at, 1)
    found[~known], found[:, ~known] = 0.0, 0.0
    return found


def padded(values: FloatArray, known: HostArray) -> FloatArray:
    found = np.zeros(known.size)
    found[known] = values
    return found
