"""How a gang is formed, and how long it waits."""

from dataclasses import dataclass

from daskkern.errors import SpecError


@dataclass(frozen=True)
class GangSettings:
    """How a gang is formed, and how long it waits.

    Parameters
    ----------
    n_ranks
        How many ranks to run, one a worker. None takes every worker.
    workers
        Addresses or names of the workers to choose from, in rank order. None is all of them.
    collective_timeout_s
        How long a collective waits for its peers; longer than the longest step of the slowest rank.
    start_timeout_s
        How long to wait until all ranks run; a worker may be busy with other tasks.
    stop_grace_s
        How long the ranks may go on after an interrupt before they are aborted.
    silence_s
        A worker of which the scheduler has heard nothing for so long is taken for lost: it hangs, or is cut off.
    rejoin_s
        How long to wait for as many workers as before, when some were lost, before going on with fewer; and before
        a fit that asks for more workers than there are is refused.
    idle_s
        How long to wait when no worker is left.
    retries
        How often in a row, without any progress, a gang that lost workers is formed anew; 0 gives up at once.
    elastic
        Whether workers that join the cluster join the gang, as long as there are no more than `n_ranks`.
    share_memory
        Bytes that each rank may use, for a gang that shares its workers with others that say theirs: on each worker
        they must fit its memory limit together. None has its workers alone, and waits for them.
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

    def __post_init__(self) -> None:
        for name in ("collective_timeout_s", "start_timeout_s", "stop_grace_s", "silence_s", "rejoin_s", "idle_s"):
            if not getattr(self, name) > 0:
                raise SpecError(f"{name}={getattr(self, name)!r} was given; it is a positive number of seconds")
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise SpecError(f"retries={self.retries!r} was given; it is a whole number of 0 or more")
        if self.share_memory is not None and not self.share_memory > 0:
            raise SpecError(f"share_memory={self.share_memory!r} was given; it is a number of bytes")
