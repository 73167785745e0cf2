"""Dask's count of workers that died while they ran a supervisor, of which it allows three."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from contextlib import suppress
from typing import Any

from distributed import Client


def clear_suspicion(client: Client, task: str) -> None:
    """Reset the count for this task: the fit has a limit of its own."""
    with suppress(Exception):  # where functions may not run on the scheduler, Dask's own limit holds
        client.run_on_scheduler(_forget_deaths, key=task)


def _forget_deaths(key: str, dask_scheduler: Any = None) -> None:
    state = dask_scheduler.tasks.get(key)
    if state is not None:
        state.suspicious = 0
