"""Writing the predictions of any number of rows: to a file, a folder of files, or a Zarr group."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from daskkern.arrays import IntArray
from daskkern.data.remote.stores import absolute, is_url, public
from daskkern.data.storage.store import Store
from daskkern.data.transactions.atomic import atomic_group, check_destination
from daskkern.data.transactions.output_files import check_new_file, output_folder, split_place, sweep_file
from daskkern.data.transactions.resumable import work_key
from daskkern.errors import DaskkernError, DataError, SpecError, StoreError
from daskkern.evaluation.raw_tables import TablePlace
from daskkern.evaluation.tables.blocks import BlockResult, PredictBlock, columns_of_categories, model_digest
from daskkern.evaluation.tables.columns import RequestedColumns
from daskkern.evaluation.tables.folder import KIND, MANIFEST, FolderLayout, PartWriter, check_partition
from daskkern.evaluation.tables.formats import TableFormat, batch_writer, format_of
from daskkern.evaluation.tables.rows import BLOCK_ROWS, Cuts, InputBlock, InputRows
from daskkern.evaluation.tables.tasks import BlockTask, ScoringJob, ScoringPlace, are_shared, in_order, scoring_jobs
from daskkern.evaluation.tables.zarr_groups import GroupWriter
from daskkern.models import KernelModel

RowProgress: TypeAlias = Callable[[int, int | None], None]
"""Called with rows done and rows in all, or None while unknown."""
_FILE_ROWS, _FILE_BYTES = 1 << 20, 64 << 20


@dataclass(frozen=True)
class Division:
    """How predictions are divided into files: none for one file, else a folder.

    Attributes
    ----------
    partition_by : tuple of str
        Kept columns, of whose values each has a folder.
    rows_per_file : int or None
        Rows of each file, of which a partition has some; None means about a million.
    """

    partition_by: tuple[str, ...] = ()
    rows_per_file: int | None = None

    @property
    def is_folder(self) -> bool:
        """Whether there are several files."""
        return bool(self.partition_by) or self.rows_per_file is not None


@dataclass(frozen=True)
class PredictionReport:
    """What was written: rows, a few words, and by column the cells with categories that the training data lack."""

    n_rows: int
    what: str
    unseen: dict[str, int]


@dataclass(frozen=True, eq=False)
class PredictionJob:
    """Predictions of `rows` by `model` at `out`. `key` identifies the rows; None where that is not possible."""

    model: KernelModel
    rows: InputRows
    out: str
    wanted: RequestedColumns
    division: Division
    key: str | None = None
    overwrite: bool = False

    def check(self) -> None:
        """Raise DaskkernError for what the model does not have, and for a place that is taken; nothing is read."""
        kind = self.kind
        self.wanted.check(self.model)
        if self.division.rows_per_file is not None and self.division.rows_per_file < 1:
            raise SpecError(f"got rows_per_file={self.division.rows_per_file}; give 1 or more")
        if kind == "zarr" and self.division.is_folder:
            raise SpecError("got a Zarr group to divide into files; write .parquet, .csv or .arrow instead")
        if kind == "zarr":
            check_destination(self.out, kind=KIND, overwrite=self.overwrite)
        elif not self.division.is_folder:
            check_new_file(self.out, overwrite=self.overwrite)

    @property
    def kind(self) -> TableFormat:
        """The format of the files: that of the ending, without one Parquet in a folder, and else Zarr."""
        return format_of(self.out) or ("parquet" if self.division.is_folder else "zarr")

    def run(self, where: ScoringPlace, progress: RowProgress | None = None) -> PredictionReport:
        """Predict and write all rows.

        Raises
        ------
        DaskkernError
            When rows or settings are invalid, or the place is taken. Nothing remains, except of a folder: there the
            same job continues.
        """
        self.check()
        watch = _Watch(self, progress)
        with self.model.threads(where.threads, self.rows.n_rows or 1 << 30):
            if self.division.is_folder:
                what = self._folder(where, watch)
            elif self.kind == "zarr":
                what = self._group(where, watch)
            else:
                what = self._file(where, watch)
        return PredictionReport(watch.done, what, watch.found())

    def _results(
        self, where: ScoringPlace, cuts: Cuts = (BLOCK_ROWS,), rows: InputRows | None = None
    ) -> Iterator[BlockResult]:
        task = BlockTask(PredictBlock(self.wanted, as_arrays=self.kind == "zarr"))
        jobs = scoring_jobs(rows or self.rows, self.model, cuts, where.client)
        for results in in_order(task, jobs, self.model, where):
            yield from results

    def _group(self, where: ScoringPlace, watch: "_Watch") -> str:
        with atomic_group(self.out, kind=KIND, overwrite=self.overwrite) as group:
            writer = GroupWriter(group, self.model, self.rows.n_rows)
            for result in self._results(where):
                writer.write(result)
                watch.add(result)
            watch.refuse_none()
            return writer.finish()

    def _file(self, where: ScoringPlace, watch: "_Watch") -> str:
        folder, name = split_place(self.out)
        if not is_url(self.out):
            sweep_file(self.out)
        names: list[str] = []
        with ExitStack() as files:
            writer = None
            for result in self._results(where):
                assert result.batch is not None
                if writer is None:
                    file = files.enter_context(output_folder(folder).writing(name))
                    writer = files.enter_context(batch_writer(file, self.kind, result.batch.schema))
                    names = result.batch.schema.names
                writer.write(result.batch)
                watch.add(result)
            watch.refuse_none()
        return f"columns {_listed(names)}"

    def _folder(self, where: ScoringPlace, watch: "_Watch") -> str:
        rows_per_file = self.division.rows_per_file or _file_rows(self.model)
        place = absolute(self.out)
        layout = FolderLayout(place, self.kind, rows_per_file, self.division.partition_by)
        settings = [repr(self.wanted), repr(replace(layout, place=""))]
        key = self.key and work_key([self.key, model_digest(self.model), *settings])
        present = layout.begin(key, overwrite=self.overwrite)
        try:
            return self._parts(layout, key, present, where, watch)
        except DaskkernError:
            if where.client is None:  # workers may still be writing
                layout.abandon()
            raise

    def _parts(
        self, layout: FolderLayout, key: str | None, present: set[int], where: ScoringPlace, watch: "_Watch"
    ) -> str:
        rows_per_file = layout.rows_per_file
        function = PredictBlock(self.wanted)
        n = self.rows.n_rows
        if n is not None and (where.client is None or are_shared(self.rows, where.client)):
            jobs = [
                ScoringJob(self.rows, k * rows_per_file, min(n, (k + 1) * rows_per_file), (BLOCK_ROWS, rows_per_file))
                for k in range(-(-n // rows_per_file))
            ]
            watch.skip(sum(jobs[k].size for k in present))
            waiting = (job for k, job in enumerate(jobs) if k not in present)
            for written in in_order(_WritePart(layout, function), waiting, self.model, where):
                watch.add(written)
            n_parts = len(jobs)
        else:
            n_parts = self._parts_in_order(layout, present, where, watch)
        watch.refuse_none()
        total, n_files = layout.finish(key, n_parts)
        return f"{n_files:,} files, {total:,} rows"

    def _parts_in_order(self, layout: FolderLayout, present: set[int], where: ScoringPlace, watch: "_Watch") -> int:
        """Write the parts from this process, where workers cannot read rows on their own; return their number."""
        N = layout.rows_per_file
        rows = _Absent(self.rows, N, present, watch)
        number, last = -1, max(present, default=-1)
        with ExitStack() as part:
            writer: PartWriter | None = None
            for result in self._results(where, (BLOCK_ROWS, N), rows):
                assert result.batch is not None
                if writer is None or result.first // N != number:
                    part.close()
                    number = result.first // N
                    writer = part.enter_context(layout.part(number))
                    check_partition(result.batch.schema, layout.partition_by)
                writer.write(result.batch)
                watch.add(result)
        return max(last, number) + 1


@dataclass(frozen=True)
class _WritePart:
    """Predicts the rows of one part and writes its files, on a worker or here."""

    layout: FolderLayout
    function: PredictBlock

    def __call__(self, model: KernelModel, job: ScoringJob) -> BlockResult:
        if self.layout.folder.read(MANIFEST) is None:
            raise StoreError(
                f"a worker cannot access the folder {public(self.layout.place)}; give one on a file system that all "
                "workers share, or a URL"
            )
        results: list[BlockResult] = []
        with self.layout.part(job.start // self.layout.rows_per_file) as writer:
            for block in job.read():
                result = self.function(model, block)
                assert result.batch is not None
                if not results:
                    check_partition(result.batch.schema, self.layout.partition_by)
                writer.write(result.batch)
                results.append(replace(result, batch=None))
        unseen: IntArray = np.sum([result.unseen for result in results], axis=0)
        return BlockResult(job.start, sum(result.n_rows for result in results), unseen)


@dataclass(frozen=True)
class _Absent:
    """Rows without those of parts that are there already."""

    rows: InputRows
    rows_per_file: int
    present: set[int]
    watch: "_Watch"

    n_rows = None
    is_shared = False
    starts = None
    task = None
    classes = None

    @property
    def source(self) -> str:
        return self.rows.source

    def blocks(self, cuts: Cuts, start: int = 0, stop: int | None = None) -> Iterator[InputBlock]:
        for block in self.rows.blocks(cuts, start, stop):
            if block.first // self.rows_per_file in self.present:
                self.watch.skip(block.stop - block.first)
            else:
                yield block


class _Watch:
    """Counts what is done."""

    def __init__(self, job: PredictionJob, progress: RowProgress | None) -> None:
        self._job, self._progress = job, progress
        self.done = 0
        self._names = list(columns_of_categories(job.model.encoding))
        self._unseen = np.zeros(len(self._names), np.int64)

    def add(self, result: BlockResult) -> None:
        self._unseen += result.unseen
        self.skip(result.n_rows)

    def skip(self, rows: int) -> None:
        self.done += rows
        if self._progress is not None and rows:
            self._progress(self.done, self._job.rows.n_rows)

    def refuse_none(self) -> None:
        if self.done == 0:
            raise DataError(f"{self._job.rows.source} has no rows; at least one is needed")

    def found(self) -> dict[str, int]:
        return {name: int(count) for name, count in zip(self._names, self._unseen, strict=True) if count}


def _file_rows(model: KernelModel) -> int:
    """Return the rows of a file: a million, fewer where a row has many outputs."""
    row_bytes = 16 * (2 + 3 * model.n_outputs)
    return max(BLOCK_ROWS, min(_FILE_ROWS, _FILE_BYTES // row_bytes // BLOCK_ROWS * BLOCK_ROWS))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def same_file(out: str, source: object) -> bool:
    """Return whether predictions would replace the rows that they are of."""
    known = source.path if isinstance(source, Store) else source.place if isinstance(source, TablePlace) else source
    if not isinstance(known, str | Path):
        return False
    return absolute(out).rstrip("/") == absolute(str(known)).rstrip("/")
