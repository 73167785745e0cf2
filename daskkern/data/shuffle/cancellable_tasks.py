"""Tasks of workers on the files of one folder, all of which have ended when the caller continues.

Dask does not stop a running task: after cancellation the scheduler forgets it, and it continues to write. So a file
in the folder, or an object below the URL, marks the work as cancelled, tasks check for it between blocks, and the
caller waits for them.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from distributed import Client, as_completed, wait

from daskkern.backend.current import current
from daskkern.backend.task_names import task_name
from daskkern.data.remote.objects import get_object, put_object, remove_object
from daskkern.errors import DaskkernError

Job = TypeVar("Job")
Result = TypeVar("Result")

_CANCELLED = "unwanted"
_WAIT_SECONDS = 60.0  # seconds for running tasks to check; a hanging worker must not delay the error


def run_tasks(
    client: Client | None,
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    folder: Path | str | None = None,
    finished: Callable[[int], None] = lambda number: None,
    received: Callable[[int, Result], None] = lambda number, result: None,
) -> list[Result]:
    """Return the results of ``function(job)`` for each job, in order, computed on the workers.

    Parameters
    ----------
    client : Client or None
        None computes them in this process, one after the other.
    function : callable
        Calls :func:`check_wanted` on `folder` every few seconds. May run twice when a worker is lost.
    jobs : sequence
    folder : Path, str or None
        A folder or URL that all workers can reach; the caller removes it after an error. None where tasks write
        nothing, and need not check anything.
    finished : callable
        Called with the number of each job that ends, in any order.
    received : callable
        Called before `finished` with the number and the result of the job.

    Raises
    ------
    Exception
        The first error of a task. By then no task runs.
    """
    if client is None:
        return _run_here(function, jobs, finished, received)
    role = f"rows_{function.__name__.strip('_')}"
    futures = [client.submit(_call, function, job, key=task_name(role), pure=False) for job in jobs]
    numbers = {future.key: number for number, future in enumerate(futures)}
    results: dict[int, Result] = {}
    try:
        for future, result in as_completed(futures, loop=client.loop, with_results=True):
            number = numbers[future.key]
            results[number] = result
            received(number, result)
            finished(number)
    except BaseException:
        with suppress(Exception):
            _cancel(folder)
        with suppress(Exception), current(client):
            wait(futures, timeout=_WAIT_SECONDS)
        raise
    finally:
        client.cancel(futures)
    return [results[number] for number in range(len(jobs))]


def _run_here(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    finished: Callable[[int], None],
    received: Callable[[int, Result], None],
) -> list[Result]:
    results = []
    for number, job in enumerate(jobs):
        results.append(function(job))
        received(number, results[-1])
        finished(number)
    return results


def _call(function: Callable[[Job], Result], job: Job) -> Result:
    try:
        return function(job)
    except DaskkernError as error:
        error.__cause__ = error.__context__ = None  # if these cannot be pickled, the error arrives as another one
        raise


def _cancel(folder: Path | str | None) -> None:
    if isinstance(folder, Path):
        (folder / _CANCELLED).touch()
    elif folder is not None:
        put_object(folder, _CANCELLED, b"")


def want_again(folder: Path | str) -> None:
    """Remove the mark of an earlier cancellation, before work in `folder` is taken up."""
    if isinstance(folder, str):
        remove_object(folder, _CANCELLED)
    else:
        (folder / _CANCELLED).unlink(missing_ok=True)


def check_wanted(folder: Path | str) -> None:
    """Raise InterruptedError when the caller of :func:`run_tasks` no longer needs the files in `folder`."""
    if isinstance(folder, str):
        if get_object(folder, _CANCELLED) is not None:
            raise InterruptedError(f"writing to {folder} was cancelled")
        return
    if (folder / _CANCELLED).exists() or not folder.exists():
        raise InterruptedError(f"writing to {folder} was cancelled")
