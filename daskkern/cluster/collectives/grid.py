"""A grid of ranks: groups of consecutive ranks that each have all columns, and a part of the rows of every batch.

With W ranks in G groups, rank r is in group ``r // (W / G)`` at place ``r % (W / G)``. Ranks of one host follow each
other, so that the sums of a group stay on as few hosts as possible. Sums over the columns are those of a group, and
sums over rows those of the ranks of equal place.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

from daskkern.backend.communicator import Communicator
from daskkern.cluster.collectives.gpus import gpu_collectives
from daskkern.cluster.collectives.timed import TimedCommunicator


def groups_that_divide(size: int, most: int) -> int:
    """Return the largest number of groups, up to `most`, that divides `size` ranks evenly."""
    return max(groups for groups in range(1, max(1, min(size, most)) + 1) if size % groups == 0)


@contextmanager
def rank_grid(host: Communicator, exchange: Communicator, groups: int, xp: ModuleType) -> Iterator[TimedCommunicator]:
    """Yield this rank's communicator: that of its group, from which those of all ranks and across groups are reached.

    With one group it is that of all ranks. A collective.

    Parameters
    ----------
    host, exchange : Communicator
        Of all ranks: that of arrays in host memory, and that of arrays of `xp`, which may be the same.
    groups : int
        Divides the number of ranks.
    """
    if groups == 1:
        yield TimedCommunicator(exchange)
        return
    each = host.size // groups
    group, place = divmod(host.rank, each)
    parts = [host.of_ranks(range(group * each, (group + 1) * each)), host.of_ranks(range(place, host.size, each))]
    with ExitStack() as until:
        if exchange is not host:
            parts = [until.enter_context(gpu_collectives(part, xp))[0] for part in parts]
        yield TimedCommunicator(parts[0], whole=exchange, across=parts[1])
