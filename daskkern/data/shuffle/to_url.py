"""Shuffling a store to a URL with the workers of a cluster, without any local disk.

Pass one: each task sorts a range of rows by their keys and writes them as a piece, a temporary object below the new
store. Pass two: each task writes whole chunks of the new store; it reads the intervals of keys that hold their rows
from all pieces, and sorts them. What is complete stays after a kill, and the same command continues.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import zarr
from distributed import Client

from daskkern.arrays import HostArray
from daskkern.data.remote.group import PROGRESS, RemotePartial, remove_remote, resumable_remote_group
from daskkern.data.schema.provenance import Provenance
from daskkern.data.schema.schema import FORMAT
from daskkern.data.shuffle.cancellable_tasks import run_tasks, want_again
from daskkern.data.shuffle.pieces import FOLDER, PieceFormat
from daskkern.data.shuffle.reordered import layout_of, write_attributes
from daskkern.data.shuffle.shuffle import shuffled_provenance
from daskkern.data.shuffle.url_plan import Kind, Loads, UrlPlan
from daskkern.data.shuffle.url_tasks import GatherJob, ScatterJob, UrlShuffle, Written, arrays_of, gather, scatter
from daskkern.data.storage.checksums import Checksum
from daskkern.data.storage.csr_store import make_csr
from daskkern.data.storage.store import Store
from daskkern.data.transactions.part_record import PartRecord, PartResult, RecordPlace
from daskkern.data.transactions.resumable import work_key

_VERSION = 1  # of the pieces and the plan: the work of another version is not taken up


def shuffle_to_url(
    client: Client,
    store: Store,
    source: str,
    out: str,
    *,
    seed: int,
    memory: int,
    overwrite: bool,
    progress: Callable[[int, int], None],
) -> None:
    """Write the rows of `store`, which workers open as `source`, to a URL in the order of `seed`.

    `memory` is that of one task. `progress` is called with the rows moved and to move; each counts twice.
    """
    form = PieceFormat.of(layout_of(store))
    bytes_of: dict[Kind, int] = dict.fromkeys(("rows", "pointers"), form.row.itemsize)
    bytes_of["entries"] = 0 if form.entry is None else form.entry.itemsize
    plan = UrlPlan.of(store, bytes_of, memory)
    key = work_key(["shuffle", _VERSION, store.fingerprint(), seed, repr(plan)])
    with resumable_remote_group(out, kind=FORMAT, key=key, overwrite=overwrite) as partial:
        settings = UrlShuffle(source, partial.url, seed, plan.load_bytes, replace(form, n_intervals=plan.n_intervals))
        _Work(client, store, settings, plan, bytes_of, progress).run(partial, shuffled_provenance(store, seed))


@dataclass(frozen=True, eq=False)
class _Work:
    """A shuffle by the workers of `client`."""

    client: Client
    store: Store
    shuffle: UrlShuffle
    plan: UrlPlan
    bytes_of: dict[Kind, int]
    progress: Callable[[int, int], None]

    def run(self, partial: RemotePartial, provenance: Provenance) -> None:
        """Do what is left to do, and write the attributes."""
        record = PartRecord(RecordPlace(partial.url, PROGRESS), [(start, stop) for _, start, stop in self.plan.jobs])
        results = dict(record.take_up()) if partial.found else {}
        if partial.found:
            want_again(partial.url)
        else:
            _make_arrays(partial.group, self.store, self.plan)
            record.begin()
        todo = [number for number in range(len(self.plan.jobs)) if number not in results]
        if todo:
            self._gather(todo, self._scatter(), record, results)
        write_attributes(partial.group, self.store, self._sums(partial.group, results), provenance)
        remove_remote(f"{partial.url}/{FOLDER}")

    def _scatter(self) -> list[Written]:
        """Pass one: write the pieces."""
        n, done = self.store.info.n_rows, 0

        def finished(number: int) -> None:
            nonlocal done
            start, stop = self.plan.parts[number]
            done += stop - start
            self.progress(done, 2 * n)

        jobs = [ScatterJob(self.shuffle, number, *part) for number, part in enumerate(self.plan.parts)]
        return run_tasks(self.client, scatter, jobs, self.shuffle.place, finished)

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
        run_tasks(self.client, gather, self._gather_jobs(todo, names, offsets), self.shuffle.place, received=receive)

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


def _make_arrays(group: zarr.Group, store: Store, plan: UrlPlan) -> None:
    """Create the arrays that the tasks write to."""
    info, layout = store.info, layout_of(store)
    if info.is_sparse:
        data = store.array("X/data")
        make_csr(group, info.n_features, layout.dtype, data.chunks[0], (info.n_rows, data.shape[0]))
    if "rows" in plan.kinds:
        arrays_of("rows", store, group).make(info.n_rows)
