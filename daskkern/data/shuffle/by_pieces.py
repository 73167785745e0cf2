"""Shuffling a store by way of pieces, with the workers of a cluster or alone: to a URL, or sparse rows to a folder.

Pass one: each task sorts a range of rows by their keys and writes them as a piece, a temporary object below the new
store. Pass two: each task writes whole chunks of the new store; it reads the intervals of keys that hold their rows
from all pieces, and sorts them. A shuffle to a URL uses no local disk; what is complete stays there after a kill, and
the same command continues.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import zarr
from distributed import Client

from daskkern.arrays import HostArray
from daskkern.data.remote.group import PROGRESS, resumable_remote_group
from daskkern.data.remote.stores import is_url
from daskkern.data.schema.schema import FORMAT
from daskkern.data.shuffle.cancellable_tasks import run_tasks, want_again
from daskkern.data.shuffle.piece_plan import Kind, Loads, PiecePlan
from daskkern.data.shuffle.piece_tasks import GatherJob, PieceShuffle, ScatterJob, Written, arrays_of, gather, scatter
from daskkern.data.shuffle.pieces import PieceFormat, Pieces
from daskkern.data.shuffle.reordered import layout_of, write_attributes
from daskkern.data.shuffle.shuffle import shuffled_provenance
from daskkern.data.storage.checksums import Checksum
from daskkern.data.storage.csr_store import make_csr
from daskkern.data.storage.store import Store
from daskkern.data.transactions.part_record import PartRecord, PartResult, RecordPlace
from daskkern.data.transactions.resumable import work_key
from daskkern.data.transactions.work_folder import check_room, put_in_place, work_folder

_VERSION = 1  # of the pieces and the plan: the work of another version is not taken up


@dataclass(frozen=True)
class ShuffleSettings:
    """Settings of a shuffle by pieces.

    Attributes
    ----------
    source, out : str
        The store, as workers open it, and the folder or URL to write to.
    seed, overwrite : int, bool
    memory : int
        Bytes that one task may hold.
    key : str or None
        Recorded as that of the sources of the new store.
    """

    source: str
    out: str
    seed: int
    memory: int
    overwrite: bool
    key: str | None = None


def shuffle_by_pieces(
    client: Client | None, store: Store, settings: ShuffleSettings, progress: Callable[[int, int], None]
) -> None:
    """Write the rows of `store`, which workers open as ``settings.source``, in the order of the seed.

    `progress` is called with the rows moved and to move; each counts twice. Raises StoreError.
    """
    form = PieceFormat.of(layout_of(store))
    bytes_of: dict[Kind, int] = dict.fromkeys(("rows", "pointers"), form.row.itemsize)
    bytes_of["entries"] = 0 if form.entry is None else form.entry.itemsize
    plan = PiecePlan.of(store, bytes_of, settings.memory)
    form = replace(form, n_intervals=plan.n_intervals)
    out, overwrite, seed = settings.out, settings.overwrite, settings.seed

    def run(group: zarr.Group, place: str, record: RecordPlace | None, *, found: bool) -> None:
        shuffle = PieceShuffle(settings.source, place, seed, plan.load_bytes, form)
        sums = _Work(client, store, shuffle, plan, bytes_of, progress).run(group, record, found=found)
        write_attributes(group, store, sums, shuffled_provenance(store, seed), settings.key)
        Pieces(place, form).remove()

    if is_url(out):
        key = work_key(["shuffle", _VERSION, store.fingerprint(), seed, repr(plan)])
        with resumable_remote_group(out, kind=FORMAT, key=key, overwrite=overwrite) as partial:
            run(partial.group, partial.url, RecordPlace(partial.url, PROGRESS), found=partial.found)
        return
    with work_folder(out) as work:
        check_room(work, 2 * plan.n_bytes, "the shuffle")
        place = work / "store"
        group = zarr.open_group(store=place, mode="w-", zarr_format=3)
        group.update_attributes({"format": FORMAT, "complete": False})
        run(group, str(place), None, found=False)
        group.update_attributes({"complete": True})
        put_in_place(place, out, overwrite=overwrite)


@dataclass(frozen=True, eq=False)
class _Work:
    """A shuffle by the workers of `client`, or by this process."""

    client: Client | None
    store: Store
    shuffle: PieceShuffle
    plan: PiecePlan
    bytes_of: dict[Kind, int]
    progress: Callable[[int, int], None]

    def run(self, group: zarr.Group, place: RecordPlace | None, *, found: bool) -> dict[str, Checksum]:
        """Do what is left to do; return the checksums of all chunks by array. `found` says that work was taken up."""
        record = PartRecord(place, [(start, stop) for _, start, stop in self.plan.jobs])
        results = dict(record.take_up()) if found else {}
        if found:
            want_again(self.shuffle.where)
        else:
            _make_arrays(group, self.store, self.plan)
            record.save()
        todo = [number for number in range(len(self.plan.jobs)) if number not in results]
        if todo:
            self._gather(todo, self._scatter(), record, results)
        return self._sums(group, results)

    def _scatter(self) -> list[Written]:
        """Pass one: write the pieces."""
        n, done = self.store.info.n_rows, 0

        def finished(number: int) -> None:
            nonlocal done
            start, stop = self.plan.parts[number]
            done += stop - start
            self.progress(done, 2 * n)

        jobs = [ScatterJob(self.shuffle, number, *part) for number, part in enumerate(self.plan.parts)]
        return run_tasks(self.client, scatter, jobs, self.shuffle.where, finished)

    def _gather(
        self, todo: Sequence[int], written: list[Written], record: PartRecord, results: dict[int, PartResult]
    ) -> None:
        """Pass two: write the chunks of the jobs `todo`, and record them."""
        n, jobs = self.store.info.n_rows, self.plan.jobs
        sizes = [self.bytes_of[kind] * (stop - start) for kind, start, stop in jobs]
        done = sum(sizes[number] for number in results)

        def receive(at: int, result: PartResult) -> None:
            nonlocal done
            results[todo[at]] = result
            record.keep(todo[at], result)
            done += sizes[todo[at]]
            self.progress(n + n * done // sum(sizes), 2 * n)

        names = tuple(name for part in written for name in part.names)
        offsets = np.concatenate([part.offsets for part in written])
        del written
        run_tasks(self.client, gather, self._gather_jobs(todo, names, offsets), self.shuffle.where, received=receive)

    def _gather_jobs(self, todo: Sequence[int], names: tuple[str, ...], offsets: HostArray) -> list[GatherJob]:
        form, ends = self.shuffle.form, offsets.sum(axis=0, dtype=np.int64)
        counts = np.diff(ends, axis=1)
        row_sizes = counts[0] * form.row.itemsize
        all_sizes = row_sizes if form.entry is None else row_sizes + counts[1] * form.entry.itemsize
        jobs = []
        for kind, start, stop in (self.plan.jobs[number] for number in todo):
            sizes = all_sizes if kind == "entries" else row_sizes
            loads = Loads.of(kind, start, stop, ends, sizes, self.plan.load_bytes)
            totals = offsets[:, 0, -1].astype(np.int64)
            jobs.append(GatherJob(self.shuffle, kind, start, stop, loads, names, offsets[:, :, loads.cuts], totals))
        return jobs

    def _sums(self, group: zarr.Group, results: dict[int, PartResult]) -> dict[str, Checksum]:
        """Return the checksums of all chunks by array."""
        joined = {kind: arrays_of(kind, self.store, group) for kind in self.plan.kinds}
        for number, (kind, start, stop) in enumerate(self.plan.jobs):
            joined[kind].join(results[number][0], stop - start)
        if "entries" in joined and joined["entries"].n_rows == 0:
            for total in joined["entries"].sums.values():  # as of one empty chunk
                total.add(np.empty(0, np.uint8))
        prefix = {"rows": "", "entries": "X/", "pointers": "X/"}
        return {prefix[kind] + name: total for kind, arrays in joined.items() for name, total in arrays.sums.items()}


def _make_arrays(group: zarr.Group, store: Store, plan: PiecePlan) -> None:
    """Create the arrays that the tasks write to."""
    info, layout = store.info, layout_of(store)
    if info.is_sparse:
        data = store.array("X/data")
        make_csr(group, info.n_features, layout.dtype, data.chunks[0], (info.n_rows, data.shape[0]))
    if "rows" in plan.kinds:
        arrays_of("rows", store, group).make(info.n_rows)
