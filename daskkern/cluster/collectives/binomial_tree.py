"""The binomial tree by which an array goes from one rank to all, with rank 0 as its root."""


def parent(rank: int) -> int:
    """Return the rank above `rank`."""
    return rank & (rank - 1)


def children(rank: int, size: int) -> list[int]:
    """Return the children of `rank`, nearest first. Below `child` are the ranks from it up to the next child."""
    below, step, span = [], 1, rank & -rank or size
    while step < span and rank + step < size:
        below.append(rank + step)
        step *= 2
    return below
