"""Checkpointing of a running fit: commits in the memory of the workers, and in a checkpoint."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from daskkern.arrays import HostArray
from daskkern.backend.python_numbers import set_python_numbers
from daskkern.cluster.gang.commit_cache import CommitCache
from daskkern.data.remote.stores import public
from daskkern.errors import SpecError
from daskkern.events import EpochFinished, Listener, StageFinished, silent
from daskkern.training.checkpoints.checkpoint import check_fingerprint, read_checkpoint
from daskkern.training.checkpoints.checkpoint_writer import CheckpointWriter
from daskkern.training.checkpoints.claims import Claim
from daskkern.training.checkpoints.commits import Commit
from daskkern.training.checkpoints.recorded_command import Resumption

_OTHER_ROWS = "warm_start=True continues on the same rows; set warm_start=False to fit other rows, or call partial_fit"


@dataclass(frozen=True, eq=False)
class Saved:
    """The last commit of a run as bytes (uint8), and the fingerprint of its fit."""

    data: HostArray
    fingerprint: str


@dataclass(frozen=True, eq=False)
class CheckpointPolicy:
    """Which commits of a running fit are stored, where and how often.

    Attributes
    ----------
    in_memory : bool
        Each worker keeps the last commit, so that the survivors of a loss can continue.
    commit_s : float
        Least seconds between commits.
    commit_share : float
        Share of the run's time that commits may take, above 0 and at most 1: expensive ones are made less often.
    signal_batches : int
        Batches between two agreements of the ranks on whether to commit, to stop or to regroup.
    checkpoint : str or None
        Zarr location of the checkpoint, writable by every worker.
    checkpoint_s : float
        Least seconds between two writes of the checkpoint.
    resume : bool
        Begin from the checkpoint, if there is one.
    overwrite : bool
        Replace the checkpoint of an earlier run, and the older model of a detached fit, which are refused otherwise.
    run : str
        Name of this run in the checkpoint; commits of another run are used only to resume.
    claim : Claim or None
        The claim of the driver of this run on the checkpoint; without one no commit is written there.
    fingerprint : str
        JSON of what the fit depends on: data, settings, schema. A checkpoint with another fingerprint is refused.
    earlier : Saved or None
        The end of an earlier run, in memory, to resume from without a checkpoint.
    hand_back : bool
        Whether the result contains the last commit of this run.
    record : Resumption or None
        The command that began the fit, which the checkpoint keeps.
    carry : bool
        Whether the result contains the state for a run on other rows, where memory suffices.
    """

    in_memory: bool = False
    commit_s: float = 2.0
    commit_share: float = 0.02
    signal_batches: int = 8
    checkpoint: str | None = field(default=None, repr=False)
    checkpoint_s: float = 30.0
    resume: bool = False
    overwrite: bool = False
    run: str = ""
    claim: Claim | None = None
    fingerprint: str = "{}"
    earlier: Saved | None = None
    hand_back: bool = False
    carry: bool = False
    record: Resumption | None = None

    def __post_init__(self) -> None:
        set_python_numbers(self)
        for name in ("commit_s", "checkpoint_s"):
            if not getattr(self, name) >= 0:
                raise SpecError(f"got {name}={getattr(self, name)!r}; expected a number of seconds, 0 or more")
        if not 0 < self.commit_share <= 1:
            raise SpecError(f"got commit_share={self.commit_share!r}; expected a number above 0 and at most 1")
        if self.signal_batches < 1:
            raise SpecError(f"got signal_batches={self.signal_batches!r}; expected a whole number of 1 or more")

    def saved(self) -> Commit | None:
        """Return the commit to begin from: of the checkpoint, or in memory. Raises StoreError."""
        if self.checkpoint is None:
            if self.earlier is None or not self.resume:
                return None
            check_fingerprint(json.loads(self.earlier.fingerprint), self.fingerprint, "the earlier fit", _OTHER_ROWS)
            return _of_another_run(Commit.from_bytes(self.earlier.data))
        found = read_checkpoint(self.checkpoint, self.fingerprint)
        if found is None or found.run == self.run:
            return None if found is None else found.commit
        return _of_another_run(found.commit) if self.resume else None

    def saved_epochs(self) -> tuple[EpochFinished, ...]:
        """Return the epochs that had ended before the commit."""
        saved = self.saved() if self.resume else None
        return () if saved is None else saved.position.epochs


def _of_another_run(commit: Commit) -> Commit:
    """Return the commit with 0 seconds taken: a run that continues another one counts its own time."""
    return replace(commit, position=replace(commit.position, seconds=0.0))


class Checkpointing:
    """Stores the commits of one rank; see :class:`CheckpointPolicy`."""

    def __init__(
        self,
        policy: CheckpointPolicy,
        commit_cache: CommitCache,
        writer: CheckpointWriter | None,
        emit: Listener = silent,
    ) -> None:
        self._hand_back = policy.hand_back or policy.carry
        self.wanted = policy.in_memory or policy.checkpoint is not None or self._hand_back
        self.outlives = policy.in_memory or policy.checkpoint is not None
        """Whether the next gang can find the last commit."""
        self.last: HostArray | None = None
        """The last commit as bytes, where the result contains it."""
        self._commit_cache = commit_cache if policy.in_memory else None
        self._fit_commit_cache = commit_cache
        self._writer, self._interval_s, self._emit = writer, policy.commit_s, emit
        self._pause = 1.0 / policy.commit_share - 1.0
        self.signal_batches = policy.signal_batches
        self._next = time.monotonic() + policy.commit_s

    def due(self) -> bool:
        """Return whether a commit is due."""
        return self.outlives and time.monotonic() >= self._next

    def report(self) -> None:
        """Emit events for the checkpoints that were completed, or failed, since the last call."""
        if self._writer is not None:
            for event in self._writer.events():
                self._emit(event)

    def keep(self, commit: Commit | None, seconds: float, *, last: bool) -> None:
        """Store a commit that took `seconds` to gather. The next is due once this is `commit_share` of the time.

        None is a commit that other ranks hold.
        """
        begun = time.perf_counter()
        if self._commit_cache is not None:
            self._commit_cache.contribute()
        if commit is not None:
            self._store(commit, last=last)
        cost = seconds + time.perf_counter() - begun
        self._next = time.monotonic() + max(self._interval_s, self._pause * cost)

    def _store(self, commit: Commit, *, last: bool) -> None:
        if self._commit_cache is not None:
            self._commit_cache.put(commit.position.steps, commit.to_bytes())
        if self._writer is not None:
            self._writer.offer(commit, at_once=last)
            self._fit_commit_cache.mark()
        if self._hand_back and last:
            self.last = commit.to_bytes()


@contextmanager
def open_checkpointing(
    policy: CheckpointPolicy, commit_cache: CommitCache, rank: int, emit: Listener, gang: int = 0
) -> Iterator[Checkpointing]:
    """Yield the checkpointing of a rank. Rank 0 writes the checkpoint, waits for it, and reports what went wrong.

    `gang` is the number of its gang, which rises from gang to gang of a driver.
    """
    if policy.checkpoint is None or rank != 0:
        yield Checkpointing(policy, commit_cache, None)
        return
    claim = policy.claim or Claim(policy.checkpoint, 0, "")
    with CheckpointWriter(claim, gang, policy.run, policy.fingerprint, policy.checkpoint_s) as writer:
        checkpointing = Checkpointing(policy, commit_cache, writer, emit)
        yield checkpointing
    checkpointing.report()
    if writer.problem:
        emit(StageFinished("checkpoint", 0.0, f"{public(policy.checkpoint)} is not up to date: {writer.problem}"))
