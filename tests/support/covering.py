"""Few combinations of parameters that hold every pair of values, in place of all combinations."""

import itertools
from collections.abc import Iterable
from typing import Any

_Cell = tuple[int, Any]


def pairwise(*parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return combinations, one value of each parameter, in which every two values of two parameters meet.

    Greedy: each combination is the one of the full product that brings the most pairs that are still missing; the
    first of them where several do, so that the result is the same in every process.

    Parameters
    ----------
    *parameters : iterable
        The values of each parameter: hashable, and at least one.

    Returns
    -------
    list of tuple
        In the order of the full product.
    """
    product = list(itertools.product(*parameters))
    missing = {pair for combination in product for pair in _pairs(combination)}
    chosen: list[int] = []
    while missing:
        gains = [len(missing.intersection(_pairs(combination))) for combination in product]
        best = gains.index(max(gains))
        chosen.append(best)
        missing.difference_update(_pairs(product[best]))
    return [product[at] for at in sorted(chosen)]


def _pairs(combination: tuple[Any, ...]) -> list[tuple[_Cell, _Cell]]:
    return list(itertools.combinations(enumerate(combination), 2))
