"""What a rank has at hand besides its peers and its work."""

from collections.abc import Callable
from dataclasses import dataclass, field

from daskkern.cluster.gang.commit_cache import CommitCache
from daskkern.events import Listener, silent


def _never() -> bool:
    return False


@dataclass(frozen=True)
class RankContext:
    """Where a rank's events go, whom it listens to, and where it leaves what shall outlive it.

    Attributes
    ----------
    emit : callable
        Takes events; those of rank 0 reach the listener.
    should_stop : callable
        Whether somebody asked the fit to end soon. Ranks agree on it by a collective of their own.
    should_regroup : callable
        Whether the gang shall be formed anew: the ranks commit and return :class:`Regroup`.
    vault : Vault
        Of this fit, on this worker.
    report : callable
        Takes events, too; those of every rank reach the listener.
    worker : str
        The address of the worker that the rank runs on, or what else stands for it.
    """

    emit: Listener = silent
    should_stop: Callable[[], bool] = _never
    should_regroup: Callable[[], bool] = _never
    vault: CommitCache = field(default_factory=CommitCache)
    report: Listener = silent
    worker: str = "this process"


@dataclass(frozen=True)
class Regroup:
    """What a rank returns that ended because it was asked to regroup."""
