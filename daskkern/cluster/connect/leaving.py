"""Graceful shutdown of a worker: the fits that use it commit before it closes."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
from collections.abc import Callable
from typing import Any

from daskkern.cluster.connect.protocol import handler

LEAVING = "closing_gracefully"
"""Dask's status of a worker that is about to leave: it starts no task, and goes on with those that it has."""

_POLL_S = 0.1
_ANSWER_S = 3.0


async def let_go(rpc: Callable[[str], Any], address: str) -> None:
    """Ask the worker at `address` to leave, and return when no fit needs it any more.

    A worker without daskkern's plugin, or one that does not answer, is not waited for. How long the others may take is
    a setting of the fits, which the worker knows: :attr:`daskkern.cluster.gang.settings.GangSettings.drain_s`.

    Parameters
    ----------
    rpc : callable
        Returns the remote calls to an address, as the ``rpc`` of Dask's servers does.
    """
    while True:
        try:
            waits = await asyncio.wait_for(getattr(rpc(address), handler("leave"))(), _ANSWER_S)
        except Exception:  # it has gone, or hangs; connections raise many types
            return
        if waits is not True:
            return
        await asyncio.sleep(_POLL_S)
