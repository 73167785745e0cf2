"""The context of a rank: events, control signals and the commit cache."""

from collections.abc import Callable
from dataclasses import dataclass, field

from daskkern.cluster.gang.commit_cache import CommitCache
from daskkern.events import Listener, silent


def _never() -> bool:
    return False


@dataclass(frozen=True)
class RankContext:
    """The surroundings of a rank: where its events go, when it must stop, and where it stores commits.

    Attributes
    ----------
    emit : callable
        Takes events; those of rank 0 reach the listener.
    should_stop : callable
        Whether the fit was asked to end soon. Ranks agree on it by a collective of their own.
    should_regroup : callable
        Whether the gang is to be re-formed: the ranks then commit and return :class:`Regroup`.
    commit_cache : CommitCache
        The commit cache of this fit on this worker.
    report : callable
        Also takes events; those of every rank reach the listener.
    worker : str
        The address of the worker that the rank runs on, or a name for this process.
    """

    emit: Listener = silent
    should_stop: Callable[[], bool] = _never
    should_regroup: Callable[[], bool] = _never
    commit_cache: CommitCache = field(default_factory=CommitCache)
    report: Listener = silent
    worker: str = "this process"


@dataclass(frozen=True)
class Regroup:
    """The result of a rank that ended on a request to regroup."""
