"""Counter-based random numbers: what is drawn depends on (seed, stream), never on who draws it or when."""

import numpy as np

from daskkern.errors import SpecError

_MASK = (1 << 64) - 1


def generator(seed: int, *stream: int) -> np.random.Generator:
    """Return a Philox generator for one named stream of one seed.

    Parameters
    ----------
    seed : int
        The user's seed, non-negative.
    *stream : int
        Up to three non-negative numbers that name the use (for example purpose and epoch). Different names give
        independent streams; the same name gives the same numbers on every rank and every machine.
    """
    if seed < 0 or len(stream) > 3 or any(number < 0 for number in stream):
        raise SpecError(f"a seed of 0 or more and at most three stream numbers were expected, got {seed} and {stream}")
    counter = [0, *stream, *([0] * (3 - len(stream)))]  # word 0 counts the draws
    return np.random.Generator(np.random.Philox(key=seed & _MASK, counter=counter))
