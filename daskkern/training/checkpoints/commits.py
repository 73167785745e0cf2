"""A commit: the whole state of the solver at the end of a window, and its position in the run.

Every rank keeps the last commit in the memory of its worker, so that any survivor can send it to the next gang; rank 0
may also write it to a checkpoint.
"""

import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.errors import StoreError
from daskkern.events import EpochFinished
from daskkern.solvers import Shard, Snapshot

_HEADER = "header"
_TIMES = ("seconds", "epoch_seconds")


@dataclass(frozen=True)
class Position:
    """The position in a run after `steps` steps: `batch` batches of epoch number `epoch` are done.

    The losses of their `seen` rows sum to `loss`; `epochs` are the epochs that have ended; `best` is the best score so
    far, a validation score or minus a mean training loss, and its epoch. `seconds` is the time of this run after its
    set-up, and `epoch_seconds` the time that all runs have spent on this epoch.
    """

    steps: int = 0
    epoch: int = 1
    batch: int = 0
    loss: float = 0.0
    seen: int = 0
    epochs: tuple[EpochFinished, ...] = ()
    best: tuple[float, int] | None = None
    reason: str = ""
    """Why the run ended; empty while it runs."""
    seconds: float = 0.0
    epoch_seconds: float = 0.0

    def to_json(self) -> str:
        """Return the position as JSON, with NaN and infinity as Python writes them."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Position":
        """Rebuild a position. Raises StoreError for any other text."""
        try:
            values = json.loads(text)
            values["epochs"] = tuple(EpochFinished(**epoch) for epoch in values["epochs"])
            values |= {name: float(values.get(name, 0.0)) for name in _TIMES}
            values["best"] = None if values["best"] is None else (float(values["best"][0]), int(values["best"][1]))
            position = cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"the position in a checkpoint cannot be read: {error}") from error
        for name in ("steps", "epoch", "batch", "seen"):
            if not isinstance(getattr(position, name), int) or getattr(position, name) < 0:
                raise StoreError(f"the position in a checkpoint has {name} {getattr(position, name)!r}")
        for name in _TIMES:
            if not 0 <= getattr(position, name) < math.inf:
                raise StoreError(f"the position in a checkpoint has {name} {getattr(position, name)!r}")
        return position


@dataclass(frozen=True, eq=False)
class Commit:
    """A whole snapshot and its position."""

    snapshot: Snapshot
    position: Position = field(default_factory=Position)

    def arrays(self) -> dict[str, HostArray]:
        """Return the arrays by the names of :func:`snapshot_of`."""
        named: dict[str, HostArray] = {}
        for name, shard in self.snapshot.shards.items():
            named |= {f"ids/{name}": shard.ids, f"shard/{name}": np.asarray(shard.values)}
        return named | {f"whole/{name}": np.asarray(values) for name, values in self.snapshot.whole.items()}

    def to_bytes(self) -> HostArray:
        """Return the commit as bytes (uint8): a zip of plain arrays, without pickles."""
        header = json.dumps(
            {
                "numbers": {name: float(n) for name, n in self.snapshot.numbers.items()},
                "position": self.position.to_json(),
            }
        )
        stream = io.BytesIO()
        np.savez(stream, **self.arrays(), **{_HEADER: np.frombuffer(header.encode(), np.uint8)})  # type: ignore[arg-type]
        return np.frombuffer(stream.getvalue(), np.uint8)

    @classmethod
    def from_bytes(cls, data: HostArray) -> "Commit":
        """Rebuild a commit. Raises StoreError when the bytes are not one."""
        try:
            with np.load(io.BytesIO(data.tobytes()), allow_pickle=False) as arrays:
                header = json.loads(arrays[_HEADER].tobytes())
                return cls(
                    snapshot_of({name: arrays[name] for name in arrays.files}, header["numbers"]),
                    Position.from_json(header["position"]),
                )
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise StoreError(f"a commit cannot be read: {error}") from error


def snapshot_of(arrays: Mapping[str, HostArray], numbers: Mapping[str, float]) -> Snapshot:
    """Return the snapshot whose arrays are named "ids/...", "shard/..." and "whole/..."."""
    shards = {
        name.removeprefix("shard/"): Shard(arrays[name.replace("shard/", "ids/", 1)], arrays[name])
        for name in arrays
        if name.startswith("shard/")
    }
    whole = {name.removeprefix("whole/"): arrays[name] for name in arrays if name.startswith("whole/")}
    return Snapshot(shards, whole, {name: float(value) for name, value in numbers.items()})


def holders_of(size: int) -> tuple[int, ...]:
    """Return the ranks that hold commits: the first, which writes checkpoints, and two others far from it.

    Ranks of one host follow each other: with several hosts the three are on different ones.
    """
    return tuple(sorted({0, size // 3, 2 * size // 3}))


def holders_in_group(size: int, group_size: int, group: int) -> tuple[int, ...]:
    """Return the places in a group of those holders of `size` ranks that are in it: each has all columns there is to
    commit from the ranks of its own group."""
    return tuple(rank % group_size for rank in holders_of(size) if rank // group_size == group)


def latest_of_all(data: HostArray | None, steps: int, comm: Communicator) -> HostArray | None:
    """Return the latest commit of any rank, on all ranks; None without one. A collective.

    Parameters
    ----------
    data : uint8 array or None
        The commit of this rank.
    steps : int
        Number of steps before it.
    """
    size, check = (0, 0) if data is None else (data.size, zlib.crc32(data.data))
    mine = np.array([[size, steps, check]], np.int64)
    held = np.concatenate([np.asarray(part) for part in comm.allgather(mine)])
    best = int(np.argmax(np.where(held[:, 0] > 0, held[:, 1], -1)))
    size = int(held[best, 0])
    if size == 0 or (held == held[best]).all():
        return data
    words = np.zeros(-(-size // 8), np.int64)  # collectives carry numbers
    if comm.rank == best:
        assert data is not None
        words.view(np.uint8)[:size] = data
    return comm.broadcast(words, best).view(np.uint8)[:size]
