"""Execution of trials: sequentially in this process, or as tasks on the workers of a cluster."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import dask
from distributed import Client, as_completed, secede

from daskkern.backend.concurrency import compute_threads, cpu_count
from daskkern.backend.current import current
from daskkern.backend.task_names import task_name
from daskkern.cluster.connect.connecting import own_client
from daskkern.cluster.connect.membership import live_workers
from daskkern.errors import DaskkernError
from daskkern.model_selection.samples import SearchSample, draw_sample
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.settings import FitSettings

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, eq=False)
class DrawnSample:
    """A sample, and where tasks find it: itself, or a future on a cluster."""

    sample: SearchSample
    shared: Any


class TrialRunner(ABC):
    """Draws samples and runs trials."""

    @property
    def n_workers(self) -> int:
        """Number of workers that a fit to all rows has."""
        return 1

    def draw(
        self, source: RowSource, settings: FitSettings, m: int, scales: tuple[str | None, ...], scoring: str
    ) -> DrawnSample:
        """Return a sample of m rows; see :func:`daskkern.model_selection.samples.draw_sample`."""
        sample = self.apply(draw_sample, source, settings, m, scales, scoring)
        return DrawnSample(sample, self.share(sample))

    @abstractmethod
    def apply(self, function: Callable[..., _Result], source: RowSource, *arguments: Any) -> _Result:
        """Return the result of a function of the rows of `source`, where they can be read."""

    def share(self, sample: SearchSample) -> Any:
        """Return what tasks are given in place of a sample."""
        return sample

    @abstractmethod
    def run(
        self,
        trial: Callable[[_Item, SearchSample, Any], _Result],
        candidates: Sequence[_Item],
        drawn: DrawnSample,
        folds: Any,
        allowed: Callable[[], bool],
        *,
        together: bool = False,
    ) -> Iterator[tuple[int, _Result | DaskkernError]]:
        """Yield numbers of candidates and their results, or the errors of daskkern, as they come.

        Trials that have not begun when `allowed` returns False are left out, but for the first. With `together`, a
        trial uses one core, and others run meanwhile.
        """


class LocalRunner(TrialRunner):
    """Runs trials in this process: one on all cores, or one on each core."""

    def apply(self, function: Callable[..., _Result], source: RowSource, *arguments: Any) -> _Result:
        return function(source, *arguments)

    def run(
        self,
        trial: Callable[[_Item, SearchSample, Any], _Result],
        candidates: Sequence[_Item],
        drawn: DrawnSample,
        folds: Any,
        allowed: Callable[[], bool],
        *,
        together: bool = False,
    ) -> Iterator[tuple[int, _Result | DaskkernError]]:
        n_threads = cpu_count() if together else 1
        with ExitStack() as opened:
            pool = opened.enter_context(ThreadPoolExecutor(n_threads, "daskkern-trial"))
            if together:
                opened.enter_context(compute_threads(1))
            waiting: deque[tuple[int, Future[_Result | DaskkernError]]] = deque()
            for number, candidate in enumerate(candidates):
                if number and not allowed():
                    break
                if together:
                    waiting.append((number, pool.submit(_outcome, trial, candidate, drawn.sample, folds)))
                else:
                    yield number, _outcome(trial, candidate, drawn.sample, folds)
                if len(waiting) >= n_threads:
                    first, done = waiting.popleft()
                    yield first, done.result()
            while waiting:
                first, done = waiting.popleft()
                yield first, done.result()


@dataclass(frozen=True)
class ClusterRunner(TrialRunner):
    """Runs trials as tasks on the workers of a cluster; the results are those of any number of workers."""

    client: Client

    @property
    def n_workers(self) -> int:
        return max(1, len(live_workers(self.client)))

    def apply(self, function: Callable[..., _Result], source: RowSource, *arguments: Any) -> _Result:
        source, keep = source.for_cluster(self.client)
        key = task_name("search_sample")
        try:
            found: Any = self.client.submit(_apply, function, source, arguments, key=key, pure=False).result()
        finally:
            for one in keep:
                one.release()
        if isinstance(found, DaskkernError):
            raise found
        result: _Result = found
        return result

    def share(self, sample: SearchSample) -> Any:
        return self.client.scatter(sample, broadcast=True, hash=False)

    def run(
        self,
        trial: Callable[[_Item, SearchSample, Any], _Result],
        candidates: Sequence[_Item],
        drawn: DrawnSample,
        folds: Any,
        allowed: Callable[[], bool],
        *,
        together: bool = False,
    ) -> Iterator[tuple[int, _Result | DaskkernError]]:
        del together
        futures = {
            self.client.submit(_trial, trial, one, drawn.shared, folds, key=task_name("trial"), pure=False): number
            for number, one in enumerate(candidates)
        }
        waiting = as_completed(list(futures), loop=self.client.loop)
        try:
            for done, future in enumerate(waiting):
                yield futures[future], future.result()
                if done + 1 < len(candidates) and not allowed():
                    return
        finally:
            for future in futures:
                future.cancel()


def _outcome(
    trial: Callable[[_Item, SearchSample, Any], _Result], candidate: _Item, sample: SearchSample, folds: Any
) -> _Result | DaskkernError:
    """Return the result of a trial, or the error of daskkern that ended it."""
    try:
        return trial(candidate, sample, folds)
    except DaskkernError as error:
        return error


def _trial(
    trial: Callable[[_Item, SearchSample, Any], _Result], candidate: _Item, sample: SearchSample, folds: Any
) -> _Result | DaskkernError:
    """Run a trial in a task: what it computes with Dask, it computes itself, as waiting for other tasks would block."""
    with dask.config.set(scheduler="synchronous"):
        return _outcome(trial, candidate, sample, folds)


def _apply(function: Callable[..., Any], source: RowSource, arguments: tuple[Any, ...]) -> Any:
    """Call a function in a task that has seceded from its worker, with Dask arrays computed by the whole cluster."""
    client = own_client()
    secede()
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}), current(client):
        try:
            return function(source, *arguments)
        except DaskkernError as error:
            return error
