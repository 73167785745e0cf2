"""Counter-based random numbers: draws depend on (seed, stream), never on the process or the order of draws."""

import numpy as np

from daskkern.arrays import IntArray
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


def permutation(n: int, seed: int, *stream: int) -> IntArray:
    """Return the numbers 0 to n - 1, int64 (n,), in the order of draws of a stream; see :func:`generator`."""
    keys = generator(seed, *stream).bit_generator.random_raw(n)
    order = np.argsort(keys)  # several times faster than a stable sort
    drawn = keys[order]
    if (drawn[1:] == drawn[:-1]).any():  # which of equal keys comes first would depend on the processor
        order = np.argsort(keys, kind="stable")
    return order.astype(np.int64, copy=False)
