"""Sums over the groups of a grid of ranks, each of which has all columns and a part of every batch."""

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.solvers.problem import AnyProblem


def sum_over_groups(problem: AnyProblem, values: Array) -> Array:
    """Return the sum of `values` over the groups, which each of them has of its own rows. A collective with groups.

    Ranks of equal place add, in the order of their groups: afterwards all groups have the same bits.
    """
    return values if problem.groups is None else problem.groups.allreduce(values)


def rows_of_all_groups(problem: AnyProblem, values: Array) -> Array:
    """Return ``values`` (m, ...) of the whole batch, from those of the rows of each group. A collective with groups."""
    if problem.groups is None:
        return values
    return namespace_of(values).concatenate(list(problem.groups.allgather(values)))
