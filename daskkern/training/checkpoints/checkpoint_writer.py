"""The background writer of a checkpoint: one commit at a time; its errors never end the fit."""

import json
import logging
import os
import time
import zlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType

import numpy as np
import zarr

from daskkern.arrays import HostArray
from daskkern.data.remote.stores import open_zarr
from daskkern.data.storage.whole_arrays import write_whole
from daskkern.errors import StoreError, SupersededError, without_secrets
from daskkern.events import CheckpointFailed, CheckpointWritten
from daskkern.monitor.formatting import format_bytes
from daskkern.training.checkpoints.checkpoint import open_checkpoint
from daskkern.training.checkpoints.claims import (
    Claim,
    CommitGeneration,
    CommitName,
    StoredCommit,
    claims_of,
    commits_of,
    remove_name,
    superseded,
)
from daskkern.training.checkpoints.commits import Commit

_UNSEEN = "this worker does not see it; choose a place that all workers share"
_LOG = logging.getLogger("daskkern.checkpoints")


class CheckpointWriter:
    """Writes commits in the background, one at a time; a commit offered while one is being written is skipped.

    It never raises: a full disk must not end a healthy fit. `problem` describes the last error, "" for none. A commit
    that could not be written is removed, and the older one is kept. A writer whose checkpoint a later generation has
    taken over writes no more.

    Parameters
    ----------
    claim : Claim
        That of the driver, from :func:`daskkern.training.checkpoints.checkpoint.begin_checkpoint`.
    gang : int
        The number of the gang; larger than that of all gangs of this driver before.
    run, fingerprint : str
        Name of the run that writes, and JSON of what a reader must match.
    interval_s : float
        Least seconds between two of them.
    """

    def __init__(self, claim: Claim, gang: int, run: str, fingerprint: str, interval_s: float) -> None:
        self._claim, self._generation = claim, CommitGeneration(claim.number, gang)
        self._location, self._interval_s = claim.location, interval_s
        self._run, self._fingerprint = run, fingerprint
        self._next = time.monotonic() + interval_s
        self._pool = ThreadPoolExecutor(1, "daskkern-checkpoint")
        self._writing: Future[None] | None = None
        self._serial = 0
        self._events: deque[CheckpointWritten | CheckpointFailed] = deque()
        self.problem = ""
        if not self._is_seen():
            self._fail(_UNSEEN)

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)

    def offer(self, commit: Commit, *, at_once: bool) -> None:
        """Write a commit when it is due, or `at_once`. Waits only for a commit that is being written."""
        busy = self._writing is not None and not self._writing.done()
        if not at_once and (busy or time.monotonic() < self._next):
            return
        if self._writing is not None:
            self._writing.result()
        self._next = time.monotonic() + self._interval_s
        if self._is_seen():
            self._writing = self._pool.submit(self._try, commit)

    def events(self) -> tuple[CheckpointWritten | CheckpointFailed, ...]:
        """Return what has happened since the last call: commits that were completed, and a problem that is new."""
        return tuple(self._events.popleft() for _ in range(len(self._events)))

    def _is_seen(self) -> bool:
        try:
            return open_checkpoint(self._location) is not None
        except StoreError:
            return False

    def _fail(self, problem: str, size: str = "") -> None:
        """Record a problem, and report it unless it is the one that was reported last, of a commit of any size."""
        if problem != self.problem:
            sentence = without_secrets(
                f"the checkpoint {self._location} is not written: {problem}{size}; the fit goes on without it"
            )
            self._events.append(CheckpointFailed(sentence))
            _LOG.warning("%s", sentence)
        self.problem = problem

    def _try(self, commit: Commit) -> None:
        try:
            self._write(commit)
            self.problem = ""
        except SupersededError as error:
            self._fail(str(error))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            size = format_bytes(sum(array.nbytes for array in commit.arrays().values()))
            self._fail(reason, f", for {size}; an earlier commit in it is kept")
        except Exception as error:  # zarr and object stores raise many types
            self._fail(f"{type(error).__name__}: {error}; an earlier commit in it is kept")

    def _write(self, commit: Commit) -> None:
        begun = time.perf_counter()
        group = open_zarr(self._location, "r+")
        self._serial += 1
        name = CommitName(self._generation, commit.position.steps, self._serial)
        known = commits_of(group)
        self._check(group, name, known)
        for left in known:  # by killed writers; they may fill the disk
            if not left.is_valid and (left.name < name or left.name.generation.driver != self._claim.number):
                remove_name(group, left.stored)
        try:
            self._fill(group, str(name), commit)
        except BaseException:
            with suppress(Exception):  # where the storage is gone, readers ignore what is not complete
                remove_name(group, str(name))
            raise
        seconds = time.perf_counter() - begun
        self._events.append(CheckpointWritten(commit.position.epoch, commit.position.batch, seconds))
        for earlier in known:
            if earlier.is_valid:
                with suppress(FileNotFoundError):  # another run that writes here has removed it
                    remove_name(group, earlier.stored)

    def _fill(self, group: zarr.Group, name: str, commit: Commit) -> None:
        part = group.create_group(name, attributes={"complete": False, "driver": self._claim.name})
        sums = {key: _put(part, key, values) for key, values in commit.arrays().items()}
        part.update_attributes(
            {
                "numbers": dict(commit.snapshot.numbers),
                "position": commit.position.to_json(),
                "crc32": sums,
                "run": self._run,
                "generation": [self._generation.driver, self._generation.gang],
                "steps": commit.position.steps,
                "fingerprint": json.loads(self._fingerprint),
                "complete": True,
            }
        )

    def _check(self, group: zarr.Group, name: CommitName, known: Sequence[StoredCommit]) -> None:
        """Raise SupersededError unless this is the last driver and its last gang, and no later commit is there."""
        claims = claims_of(group)
        latest = max(claims, default=0)
        is_last = (latest, claims.get(latest)) == (self._claim.number, self._claim.name)
        if not is_last or any(commit.counts and commit.name > name for commit in known):
            raise SupersededError(superseded(self._location))


def _put(group: zarr.Group, key: str, values: HostArray) -> int:
    values = np.ascontiguousarray(values)
    write_whole(group, key, values)
    return zlib.crc32(values.data)
