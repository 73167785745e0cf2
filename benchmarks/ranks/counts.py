"""The collectives that a rank takes part in, as they are called, and the messages and bytes that formulas give them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskkern.backend.communicator import Channel
from daskkern.backend.tiles import slices
from daskkern.cluster.collectives.channel import framed
from daskkern.cluster.collectives.communicator import DaskCommunicator
from daskkern.cluster.collectives.sum_costs import cost_of_sum, way_of_sum

Call = tuple[str, int]
"""A collective, and its bytes: of the array that is summed or broadcast, of this rank's part of what is gathered."""

_PIECE = 1 << 20
_MESH_RANKS = 8


def record_calls(comm: DaskCommunicator) -> list[Call]:
    """Let a communicator append its collectives, and the pieces of rows that it sends, to the list that is returned."""
    calls: list[Call] = []

    def recorded(name: str, of: Callable[..., Any], *, part: bool = True) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            calls.append((name, np.asarray(arguments[0]).nbytes if part else 0))
            return of(*arguments, **named)

        return call

    comm.begin_allreduce = recorded("sum", comm.begin_allreduce)  # type: ignore[method-assign]
    comm.allgather = recorded("gather", comm.allgather)  # type: ignore[method-assign]
    comm.broadcast = recorded("broadcast", comm.broadcast)  # type: ignore[method-assign]
    comm.barrier = recorded("barrier", comm.barrier, part=False)  # type: ignore[method-assign]
    make = comm.channel

    def channel() -> Channel | None:
        found = make()
        if found is not None:
            send = found.send

            def sending(parts: Sequence[Any]) -> None:
                calls.extend(("rows", piece.nbytes) for piece in framed(parts))
                send(parts)

            found.send = sending  # type: ignore[method-assign]
        return found

    comm.channel = channel  # type: ignore[method-assign]
    return calls


def by_formula(calls: Sequence[Sequence[Call]]) -> tuple[int, int]:
    """Return the messages and bytes that all ranks send for the calls of each rank."""
    size = len(calls)
    others, levels = size - 1, math.ceil(math.log2(size))
    messages = n_bytes = 0
    for name, nbytes in calls[0]:
        if name == "sum":
            cost = cost_of_sum(way_of_sum(size, nbytes, size, size), size, nbytes)
            messages, n_bytes = messages + cost.all_messages, n_bytes + cost.all_bytes
        elif name == "broadcast":
            messages += others * max(1, len(slices(nbytes, _PIECE)))
            n_bytes += others * nbytes
        elif name == "barrier":
            messages += size * levels
        elif name == "gather" and size < _MESH_RANKS:
            messages += size * others
        elif name == "gather":  # lengths, and then the arrays
            messages += 2 * size * levels
            n_bytes += 8 * size * others
    gathered = sum(nbytes for each in calls for name, nbytes in each if name == "gather")
    pieces = [nbytes for each in calls for name, nbytes in each if name == "rows"]
    return messages + others * len(pieces), n_bytes + others * (gathered + sum(pieces))
