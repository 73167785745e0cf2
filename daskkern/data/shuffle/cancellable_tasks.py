"""Tasks that the workers of a cluster run on files of one folder, and that have all ended when the caller continues.

Dask does not stop a running task: after cancellation the scheduler forgets it, and it continues to write. So a file
in the folder marks the work as cancelled, tasks check for it between blocks, and the caller waits for them.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from distributed import Client, as_completed, wait

from daskkern.backend.current import current
from daskkern.backend.task_names import task_name

Job = TypeVar("Job")
Result = TypeVar("Result")

_CANCELLED = "unwanted"
_WAIT_SECONDS = 60.0  # seconds for running tasks to check; a hanging worker must not delay the error


def run_tasks(
    client: Client,
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    folder: Path,
    finished: Callable[[int], None] = lambda number: None,
) -> list[Result]:
    """Return the results of ``function(job)`` for each job, in order, computed on the workers.

    Parameters
    ----------
    client : Client
    function : callable
        Calls :func:`check_wanted` on `folder` every few seconds. May run twice when a worker is lost.
    jobs : sequence
    folder : Path
        Visible to all workers; the caller removes it after an error.
    finished : callable
        Called with the number of each job that ends, in any order.

    Raises
    ------
    Exception
        The first error of a task. By then no task runs.
    """
    role = f"rows_{function.__name__.strip('_')}"
    futures = [client.submit(function, job, key=task_name(role), pure=False) for job in jobs]
    numbers = {future.key: number for number, future in enumerate(futures)}
    results: dict[int, Result] = {}
    try:
        for future, result in as_completed(futures, loop=client.loop, with_results=True):
            number = numbers[future.key]
            results[number] = result
            finished(number)
    except BaseException:
        (folder / _CANCELLED).touch()
        with suppress(Exception), current(client):
            wait(futures, timeout=_WAIT_SECONDS)
        raise
    finally:
        client.cancel(futures)
    return [results[number] for number in range(len(jobs))]


def check_wanted(folder: Path) -> None:
    """Raise InterruptedError when the caller of :func:`run_tasks` no longer needs the files in `folder`."""
    if (folder / _CANCELLED).exists() or not folder.exists():
        raise InterruptedError(f"writing to {folder} was cancelled")
