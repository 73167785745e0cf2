"""Settings of a gang: how it is formed, and its timeouts."""

import math
from dataclasses import dataclass

from daskkern.backend.python_numbers import set_python_numbers
from daskkern.cluster.scheduler.metadata import check_priority
from daskkern.errors import SpecError


@dataclass(frozen=True)
class GangSettings:
    """Settings of a gang: how it is formed, and its timeouts.

    Parameters
    ----------
    n_ranks
        How many ranks to run, one per worker. None takes every worker.
    workers
        Addresses or names of the workers to choose from, in rank order. None allows all of them.
    collective_timeout_s
        How long a collective waits for a peer before it asks the peer's worker. A rank that computes is waited for,
        however slow its step is; one that has ended, or whose worker does not answer, is given up.
    start_timeout_s
        How long a worker may take to start its rank; it may be busy with other tasks. Then the fit goes on without it.
    stop_grace_s
        How long the ranks may go on after an interrupt before they are aborted.
    silence_s
        A worker without a heartbeat at the scheduler for this long counts as lost: it hangs, or is cut off. In clusters
        of more than 800 workers, three intervals between heartbeats if that is longer.
    rejoin_s
        How long to wait for as many workers as before, when some were lost, before continuing with fewer; and before
        a fit that requests more workers than there are is refused.
    idle_s
        How long to wait when no worker is left, in a fit or before it.
    retries
        How often in a row, without any progress, a gang that lost workers is formed again; 0 gives up at once.
    elastic
        Whether workers that join the cluster join the gang, as long as there are no more than `n_ranks`.
    drain_s
        How long a worker that is about to leave (it was retired, told to end by SIGTERM, or its lifetime ends) waits
        for the fit to commit and to go on without it. 0 does not wait: the steps since the last commit are repeated.
    share_memory
        Bytes that each rank may use, for a gang that shares its workers with others that declare theirs: on each
        worker, they must fit its memory limit together. None waits for workers of its own.
    priority
        Fits of a higher priority get workers first, and preempt running fits of a lower one: these commit, hand their
        workers over, and go on by themselves later.
    user
        The user whose quota counts; None is the login name of the submitting process.
    """

    n_ranks: int | None = None
    workers: tuple[str, ...] | None = None
    collective_timeout_s: float = 60.0
    start_timeout_s: float = 60.0
    stop_grace_s: float = 60.0
    silence_s: float = 15.0
    rejoin_s: float = 10.0
    idle_s: float = 300.0
    retries: int = 5
    elastic: bool = True
    share_memory: int | None = None
    drain_s: float = 30.0
    priority: int = 0
    user: str | None = None

    def __post_init__(self) -> None:
        set_python_numbers(self)
        for name in ("collective_timeout_s", "start_timeout_s", "stop_grace_s", "silence_s", "rejoin_s", "idle_s"):
            if not getattr(self, name) > 0:
                raise SpecError(f"got {name}={getattr(self, name)!r}; expected a positive number of seconds")
        if not 0 <= self.drain_s < math.inf:
            raise SpecError(f"got drain_s={self.drain_s!r}; expected a number of seconds, 0 or more")
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise SpecError(f"got retries={self.retries!r}; expected a whole number of 0 or more")
        if self.share_memory is not None and not self.share_memory > 0:
            raise SpecError(f"got share_memory={self.share_memory!r}; expected a positive number of bytes")
        check_priority(self.priority)
        if self.user is not None and not (isinstance(self.user, str) and 0 < len(self.user.strip()) <= 200):
            raise SpecError(f"got user={self.user!r:.50}; expected a name of 1 to 200 characters")
