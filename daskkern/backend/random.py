"""Counter-based random numbers: draws depend on (seed, stream), never on the process or the order of draws."""

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
        Up to three non-negative numbers that identify the use (for example purpose and epoch). Different tuples give
        independent streams; the same tuple gives the same numbers on every rank and every machine.
    """
    if seed < 0 or len(stream) > 3 or any(number < 0 for number in stream):
        raise SpecError(
            f"got seed {seed} and stream {stream}; expected a seed of 0 or more and at most three stream numbers"
        )
    counter = [0, *stream, *([0] * (3 - len(stream)))]  # word 0 counts the draws
    return np.random.Generator(np.random.Philox(key=seed & _MASK, counter=counter))
