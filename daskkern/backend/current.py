"""The current Dask client of a thread, and whether the thread occupies a worker."""

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client, get_worker
from distributed.client import _current_client
from distributed.threadpoolexecutor import thread_state as pool_state
from distributed.utils import thread_state  # type: ignore[attr-defined]  # it is imported there


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


def memory_of_worker() -> int | None:
    """Return the memory limit, in bytes, of the worker whose task this thread runs; None without one."""
    try:
        limit = get_worker().memory_manager.memory_limit
    except ValueError:  # no task
        return None
    return int(limit) if limit else None


def occupies_worker() -> bool:
    """Return whether this thread runs a task, and has not seceded from its worker.

    Other tasks that it waits for may then need the place that it has: it computes by itself, whatever the cluster.
    """
    return hasattr(thread_state, "key") and bool(getattr(pool_state, "proceed", False))
