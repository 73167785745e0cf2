"""The names of the sampling schemes of batches.

"uniform" visits each row once an epoch, in batches that keep their rows where this lets kernel blocks be cached, and in
another order in every epoch. "fresh" permutes rows into new batches in every epoch, and "fixed" visits the batches of
one permutation in one order. "independent" draws each row from all of them, with replacement; "weighted" and "balanced"
draw in proportion to weights, or every class equally often.
"""

from daskkern.errors import SpecError

PERMUTATIONS = ("uniform", "fresh", "fixed")
"""Each row once an epoch."""

SAMPLING_WAYS = (*PERMUTATIONS, "independent", "weighted", "balanced")


def draws_rows(sampling: str) -> bool:
    """Return whether an epoch draws rows, so that it meets some of them several times and others never."""
    return sampling not in PERMUTATIONS


def check_way(sampling: str, solver: str, *, each_once: bool, ordered: bool) -> None:
    """Raise SpecError where the rows of batches cannot come in this way.

    Parameters
    ----------
    sampling, solver : str
    each_once : bool
        A pass must meet every row once.
    ordered : bool
        The order of the rows matters.
    """
    if sampling == "uniform":
        return
    if each_once and draws_rows(sampling):
        raise SpecError(
            f"got sampling={sampling!r} for solver {solver}, but a pass of it must meet every row once; choose "
            "'uniform', 'fresh' or 'fixed'"
        )
    if not ordered:
        raise SpecError(
            f"got sampling={sampling!r} for solver {solver}, but it passes over all rows in an order that does not "
            "matter; choose 'uniform'"
        )
