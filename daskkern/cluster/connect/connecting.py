"""Connecting to a cluster whose workers come and go meanwhile."""

from collections.abc import Callable

from distributed import Client

_TRIES = 5


def connected(connect: Callable[[], Client]) -> Client:
    """Return the client that `connect` makes.

    Dask's clients assert that the scheduler's first message comes alone. A message about a worker that has just
    joined or left may be sent with it, and connecting fails with an AssertionError without a text: then it is retried.
    """
    for _ in range(_TRIES - 1):
        try:
            return connect()
        except AssertionError:
            continue
    return connect()
