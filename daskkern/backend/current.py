"""A context in which a given Dask client is the current one."""

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client
from distributed.client import _current_client


@contextmanager
def current(client: Client) -> Iterator[None]:
    """Make `client` the current one of this thread or task.

    Replaces ``Client.as_current``, which also sets Dask's scheduler for the whole process: when two threads enter and
    leave in turn, the second restores what the first had set, and every later computation without a client fails. Dask
    finds the current client without that setting.
    """
    token = _current_client.set(client)
    try:
        yield
    finally:
        _current_client.reset(token)
