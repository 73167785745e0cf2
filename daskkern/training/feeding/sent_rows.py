"""Blocks of local rows on a cluster, which are sent again when all workers that hold them are lost."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from distributed import Client, Future

_LOOK_S = 0.5
_CLOSE_S = 10.0
_LOST = ("cancelled", "lost")


class Releasable(Protocol):
    """What keeps data on a cluster until it is released, such as a Future."""

    def release(self) -> None: ...


class SentRows:
    """The blocks, one Future for each.

    A thread looks at the futures twice a second, which asks nobody: Dask tells a client when a result is lost. Workers
    that need a lost block meanwhile wait for it, see :class:`daskkern.training.feeding.remote_values.RemoteValue`.

    Parameters
    ----------
    client : Client
    blocks : mapping
        A function that returns the block of each key. It is called again for a block that is lost.
    workers : sequence of str or None
        The workers to which blocks are sent first, in turn; None for all. Lost blocks are sent to any.
    """

    def __init__(
        self, client: Client, blocks: Mapping[str, Callable[[], Any]], workers: Sequence[str] | None = None
    ) -> None:
        self._client, self._blocks = client, blocks
        self._futures = self._sent(list(blocks), workers)
        # A released future would let the scheduler drop a block of the same key that was sent since.
        self._earlier: list[Future[Any]] = []
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="daskkern-sent-rows", daemon=True)
        self._thread.start()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._blocks)

    def release(self) -> None:
        """Let the workers drop the blocks. Waits a little for what is being sent."""
        self._released.set()
        self._thread.join(_CLOSE_S)
        for future in (*self._earlier, *self._futures.values()):
            future.release()

    def _watch(self) -> None:
        while not self._released.wait(_LOOK_S) and self._client.status == "running":
            lost = [key for key, future in self._futures.items() if future.status in _LOST]
            if not lost:
                continue
            try:
                sent = self._sent(lost, None)
            except Exception:  # no worker is there, one has just left, or the client closes: of many types
                continue
            self._earlier += [self._futures[key] for key in lost]
            self._futures |= sent

    def _sent(self, keys: Sequence[str], workers: Sequence[str] | None) -> dict[str, Future[Any]]:
        made = {key: self._blocks[key]() for key in keys}
        return dict(self._client.scatter(made, workers=workers, hash=False))
