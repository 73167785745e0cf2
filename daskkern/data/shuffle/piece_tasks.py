"""The tasks of a shuffle by pieces: pass one writes pieces, pass two chunks of the new store."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
import zarr

from daskkern.arrays import HostArray, IntArray
from daskkern.data.remote.stores import is_url, open_zarr
from daskkern.data.shuffle.buckets import row_keys
from daskkern.data.shuffle.cancellable_tasks import check_wanted
from daskkern.data.shuffle.piece_plan import Kind, Loads, chunk_of
from daskkern.data.shuffle.pieces import PieceFormat, Pieces, encoded, entry_positions, head_offsets, row_steps
from daskkern.data.shuffle.reordered import layout_of
from daskkern.data.storage.chunked import ChunkedArrays
from daskkern.data.storage.csr_store import State, index_dtype
from daskkern.data.storage.raw_rows import StoredRows
from daskkern.data.storage.store import Store, open_store, read_array
from daskkern.errors import StoreError

_CHECK_SECONDS = 2.0  # between two looks whether the work is still wanted
_AT_ONCE, _AT_ONCE_BYTES = 8, 32 << 20  # chunks that are written side by side
_STEPS = 4  # in which a load is put in order: the sorted copy is never complete in memory


@dataclass(frozen=True)
class PieceShuffle:
    """Settings of all tasks: the source, where the new group is, the seed, bytes of a load, the format of pieces."""

    source: str
    place: str
    seed: int
    load_bytes: int
    form: PieceFormat

    @property
    def where(self) -> Path | str:
        """The place as a path, or as a URL."""
        return self.place if is_url(self.place) else Path(self.place)

    @property
    def label(self) -> str:
        """Begins the names of the pieces: a late task of a killed shuffle with other settings replaces none of them."""
        return blake2b(repr((self.source, self.seed, self.load_bytes, self.form)).encode(), digest_size=6).hexdigest()

    def group(self) -> zarr.Group:
        """Open the group to write to. StoreError in a process that does not find it."""
        try:
            return open_zarr(self.place, mode="r+")
        except FileNotFoundError:
            raise StoreError(
                f"a worker finds no store at {self.place}, which the command has begun there; give an output that all "
                "workers reach"
            ) from None


@dataclass(frozen=True)
class ScatterJob:
    """A task of pass one: the rows of the source from `start` to `stop`."""

    shuffle: PieceShuffle
    number: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Written:
    """The pieces of a task of pass one: their names and offsets (pieces, 1 or 2, intervals + 1)."""

    names: tuple[str, ...]
    offsets: HostArray


@dataclass(frozen=True, eq=False)
class GatherJob:
    """A task of pass two: the values of some arrays from `start` to `stop`, as whole chunks.

    `bounds` (pieces, 1 or 2, loads + 1) has the offsets of the loads in each piece, `totals` (pieces,) their rows.
    """

    shuffle: PieceShuffle
    kind: Kind
    start: int
    stop: int
    loads: Loads
    names: tuple[str, ...] = field(repr=False)
    bounds: HostArray = field(repr=False)
    totals: HostArray = field(repr=False)


def scatter(job: ScatterJob) -> Written:
    """Write the rows of a part as pieces, unless they are there."""
    shuffle = job.shuffle
    shuffle.group()
    check_wanted(shuffle.where)
    store = open_store(shuffle.source, chunks_present=False)
    rows, pieces = StoredRows(store), Pieces(shuffle.place, shuffle.form)
    names, found = [], []
    for number, (start, stop) in enumerate(_cut(store, job)):
        name = f"{shuffle.label}-{job.number}-{number}"
        offsets = pieces.offsets(name)
        if offsets is None:
            piece = encoded(shuffle.form, row_keys(shuffle.seed, start, stop), rows.read(start, stop))
            pieces.write(name, piece)
            offsets = head_offsets(shuffle.form, piece)
        names.append(name)
        found.append(offsets)
    return Written(tuple(names), np.stack(found))


def _cut(store: Store, job: ScatterJob) -> list[tuple[int, int]]:
    """Return the rows of each piece: all of a part, or of sparse rows as many as a load has bytes for."""
    entry, load = job.shuffle.form.entry, job.shuffle.load_bytes
    if entry is None:
        return [(job.start, job.stop)]
    pointers: IntArray = read_array(store.array("X/indptr"), job.start, job.stop + 1).astype(np.int64)
    sizes: IntArray = np.diff(pointers) * entry.itemsize + job.shuffle.form.row.itemsize
    return [(job.start + first, job.start + last) for first, last in row_steps(sizes, load)]


def gather(job: GatherJob) -> tuple[State, tuple[()]]:
    """Write the chunks of a job; return their checksums, as the state of a part."""
    shuffle = job.shuffle
    arrays = arrays_of(job.kind, open_store(shuffle.source, chunks_present=False), shuffle.group(), shuffle.load_bytes)
    arrays.continue_at(job.start)
    at = {"rows": job.loads.first_row, "entries": job.loads.first_entry, "pointers": job.loads.first_row + 1}[job.kind]
    if job.kind == "pointers" and job.start == 0:
        _put(arrays, {"indptr": np.zeros(1, np.int64)})
    for values in _in_order(job):
        n = len(next(iter(values.values())))
        inside = slice(max(job.start - at, 0), max(job.stop - at, 0))
        _put(arrays, {name: array[inside] for name, array in values.items()})
        at += n
    return arrays.leave(), ()


def arrays_of(kind: Kind, like: Store, group: zarr.Group, load_bytes: int = 0) -> ChunkedArrays:
    """Return the arrays of a kind in the new store `group`, with buffers for a chunk or for several at once."""
    layout = layout_of(like)
    if kind == "rows":
        chunk, one, parent = chunk_of(like, kind), layout.buffers(1), group
    else:
        found = group["X"]
        assert isinstance(found, zarr.Group)
        one = {"indptr": np.empty(1, np.int64)}
        if kind == "entries":
            one = {"data": np.empty(1, layout.dtype), "indices": np.empty(1, index_dtype(layout.n_features))}
        chunk, parent = chunk_of(like, kind), found
    n_bytes = chunk * sum(array.nbytes for array in one.values())
    at_once = max(1, min(_AT_ONCE, min(_AT_ONCE_BYTES, load_bytes // 2) // n_bytes))
    buffers = {name: np.empty((chunk * at_once, *array.shape[1:]), array.dtype) for name, array in one.items()}
    return ChunkedArrays(parent, buffers, chunk, at_once)


def _put(arrays: ChunkedArrays, values: Mapping[str, HostArray]) -> None:
    done, n = 0, len(next(iter(values.values())))
    while done < n:
        fill, step = arrays.fill, min(n - done, arrays.room)
        for name, array in values.items():
            arrays.buffers[name][fill : fill + step] = array[done : done + step]
        arrays.commit(step)
        done += step


def _in_order(job: GatherJob) -> Iterator[dict[str, HostArray]]:
    """Yield the values of the loads of a job in their new order."""
    pieces, checked = Pieces(job.shuffle.place, job.shuffle.form), 0.0
    entries_before = job.loads.first_entry
    for load in range(job.bounds.shape[2] - 1):
        if time.monotonic() - checked > _CHECK_SECONDS:
            check_wanted(job.shuffle.where)
            checked = time.monotonic()
        bounds = job.bounds[:, :, load : load + 2].astype(np.int64)
        found = pieces.read(job.names, bounds, job.totals, entries=job.kind == "entries")
        rows = found[0]
        order = np.argsort(rows["key"], kind="stable")
        if job.kind == "entries":
            yield from _entries_in_order(rows["length"], found[1], order)
        elif job.kind == "pointers":
            yield {"indptr": entries_before + np.cumsum(rows["length"][order])}
            entries_before += int(rows["length"].sum())
        else:
            yield from _rows_in_order(rows, order)


def _rows_in_order(rows: HostArray, order: IntArray) -> Iterator[dict[str, HostArray]]:
    names = [name for name in rows.dtype.names or () if name not in ("key", "length")]
    step = max(1, -(-len(order) // _STEPS))
    for start in range(0, len(order), step):
        some = rows[order[start : start + step]]
        yield {name: some[name] for name in names}


def _entries_in_order(lengths: IntArray, entries: HostArray, order: IntArray) -> Iterator[dict[str, HostArray]]:
    starts = (np.cumsum(lengths) - lengths)[order]
    lengths = lengths[order]
    for first, last in row_steps(lengths, max(1, len(entries) // _STEPS)):
        some = entries[entry_positions(starts[first:last], lengths[first:last])]
        yield {"data": some["value"], "indices": some["index"]}
