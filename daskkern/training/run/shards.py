"""The rank contexts of the virtual ranks of one worker."""

from dataclasses import replace

from daskkern.backend.communicator import Communicator
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.events import Event, FitResumed, FitStarted, Listener, RankReported, silent


def context_of_shard(context: RankContext, comm: Communicator, place: int, count: int) -> RankContext:
    """Return the context of the virtual rank at `place` of this real rank's `count`: only the first emits events.

    Its events are about the real rank: planned memory is that of all `count` virtual ranks, as used memory is.
    """
    if place:
        return replace(context, emit=silent, report=silent)
    return replace(context, emit=_of_real(context.emit, comm, count), report=_of_real(context.report, comm, count))


def _of_real(listener: Listener, comm: Communicator, count: int) -> Listener:
    def tell(event: Event) -> None:
        match event:
            case FitStarted() | FitResumed():
                event = replace(event, size=comm.size)
            case RankReported():
                event = replace(event, rank=comm.rank, planned_bytes=count * event.planned_bytes)
        listener(event)

    return tell
