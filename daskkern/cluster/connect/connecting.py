"""A client of a cluster whose workers come and go while it connects."""

from collections.abc import Callable

from distributed import Client

_TRIES = 5


def connected(connect: Callable[[], Client]) -> Client:
    """Return the client that `connect` makes.

    Dask's clients assert that the scheduler's first message comes alone. One that tells of a worker that has just come
    or gone may be sent with it, and connecting fails with an AssertionError without a text: then it is tried again.
    """
    for _ in range(_TRIES - 1):
        try:
            return connect()
        except AssertionError:
            continue
    return connect()
