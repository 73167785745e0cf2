"""Connecting to a cluster while its workers come and go."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from distributed import Client, default_client, get_client, get_worker

from daskkern.errors import ClusterError

_PATIENCE_S = 30.0
_LOOK_S = 0.05
_LONGEST_PAUSE_S = 1.0
_CLOSE_S = 5.0
_OF_WORKERS = "Client-worker-"
"""How the names of the clients begin that workers make."""


def connected(connect: Callable[[], Client]) -> Client:
    """Return the client that `connect` makes.

    Dask's clients assert that the scheduler's first message comes alone. A message about a worker that has just
    joined or left may be sent with it, and connecting fails with an AssertionError without a text: then it is retried.
    """
    for _ in _tries():
        with suppress(AssertionError):
            return connect()
    return connect()


def _tries() -> Iterator[None]:
    """Yield for each try, with pauses that grow: workers that leave together cause many messages in a moment."""
    until, pause_s = time.monotonic() + _PATIENCE_S, _LOOK_S
    while time.monotonic() < until:
        yield
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def own_client() -> Client:
    """Return the client of this task's worker, once it is connected.

    Where connecting fails as for :func:`connected`, Dask leaves a client that never connects as the default of the
    process. ``get_client`` would return it from then on, and its tasks would never be sent: it is closed here.

    Raises
    ------
    ClusterError
        When it cannot be connected.
    """
    for _ in _tries():
        try:
            client = get_client()
            _await_connection(client)  # of another thread
        except AssertionError:
            try:
                client = default_client()
            except ValueError:
                continue
        if client.status == "running":
            return client
        _discard(client)
    raise ClusterError(f"worker {get_worker().address} cannot connect a client to its scheduler; fit again")


def _await_connection(client: Client) -> None:
    until = time.monotonic() + _PATIENCE_S
    while client.status == "connecting" and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _discard(client: Client) -> None:
    """Let the worker forget a client, and close it if the worker made it: in one process it may be the user's."""
    if client.id.startswith(_OF_WORKERS):
        with suppress(TimeoutError):
            client.close(timeout=_CLOSE_S)
    worker = get_worker()
    if worker._client is client:
        worker._client = None
