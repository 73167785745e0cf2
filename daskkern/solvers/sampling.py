"""The ways in which rows come to batches, as fits name them.

"uniform" visits each row once an epoch, in batches that keep their rows where this lets kernel blocks be cached, and in
another order in every epoch. "fresh" permutes rows into new batches in every epoch, and "fixed" visits the batches of
one permutation in one order. "independent" draws each row from all of them, with replacement; "weighted" and "balanced"
draw in proportion to weights, or every class equally often.
"""

PERMUTATIONS = ("uniform", "fresh", "fixed")
"""Each row once an epoch."""

SAMPLING_WAYS = (*PERMUTATIONS, "independent", "weighted", "balanced")


def draws_rows(sampling: str) -> bool:
    """Return whether an epoch draws rows, so that it meets some of them several times and others never."""
    return sampling not in PERMUTATIONS
