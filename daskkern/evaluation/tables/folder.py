"""Predictions as a folder of files, written atomically and named by their rows.

Part k holds the rows from ``k * rows_per_file`` on, in one file, or in one for each value of the columns that the
folder is partitioned by (``day=2026-01-01/part-00000.parquet``, as Hive and its readers name them). When the files of a
part are there, ``_parts/part-00000.json`` says so; a run that goes on after a kill leaves such parts and writes the
others again, under the same names. ``_predictions.json`` tells what is written, and at the end that it is complete.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from daskkern.arrays import IntArray
from daskkern.data.remote.stores import is_url, public
from daskkern.data.transactions.output_files import OutputFolder, is_partial, output_folder
from daskkern.errors import SpecError, StoreError
from daskkern.evaluation.tables.formats import ENDING, BatchWriter, TableFormat, batch_writer

MANIFEST, PARTS = "_predictions.json", "_parts"
KIND = "daskkern-predictions"
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class FolderLayout:
    """A folder of predictions: its place, the format of its files, and how rows are divided among them."""

    place: str
    kind: TableFormat
    rows_per_file: int
    partition_by: tuple[str, ...] = ()

    @property
    def folder(self) -> OutputFolder:
        return output_folder(self.place)

    def name(self, number: int) -> str:
        """Return the name of a part."""
        return f"part-{number:05d}{ENDING[self.kind]}"

    def begin(self, key: str | None, *, overwrite: bool) -> set[int]:
        """Claim the folder for the work that `key` identifies, and return the parts that are there already.

        Raises
        ------
        StoreError
            When something else is there, or complete predictions without `overwrite`.
        """
        folder, shown = self.folder, public(self.place)
        names = folder.names()
        found = _manifest(folder)
        if names and found is None and not all(is_partial(name) for name in names):
            raise StoreError(f"{shown} exists and holds no predictions; choose another name or remove it first")
        if found is not None and not found.get("complete") and key is not None and found.get("key") == key:
            return {number for number in map(_number, names) if number is not None}
        if found is not None and not overwrite:
            what = "exists" if found.get("complete") else "holds unfinished predictions of another job"
            raise StoreError(f"{shown} {what}; choose another name, or replace it with --overwrite (overwrite=True)")
        self._remove(folder, names)
        with folder.writing(MANIFEST) as file:
            file.write(_json({"format": KIND, "version": 1, "complete": False, "key": key}))
        return set()

    def abandon(self) -> None:
        """Remove what a job that failed has claimed, unless a part is there, from which the same job continues."""
        folder, names = self.folder, self.folder.names()
        if not any(_number(name) is not None for name in names):
            self._remove(folder, names)
            if not is_url(self.place):
                with suppress(OSError):  # other files are in it
                    os.rmdir(self.place)

    @contextmanager
    def part(self, number: int) -> Iterator["PartWriter"]:
        """Yield a writer of the rows of one part, whose files are complete when the block ends."""
        folder = self.folder
        with ExitStack() as files:
            writer = PartWriter(self, folder, number, files)
            yield writer
            writer.finish()
        with folder.writing(f"{PARTS}/{number:05d}.json") as file:
            file.write(_json({"files": writer.written}))

    def finish(self, key: str | None, n_parts: int) -> tuple[int, int]:
        """Say that the folder is complete, and return its numbers of rows and files."""
        folder = self.folder
        files: dict[str, int] = {}
        for number in range(n_parts):
            held = folder.read(f"{PARTS}/{number:05d}.json")
            if held is None:
                raise StoreError(f"part {number} of {public(self.place)} is missing; predict again to write it")
            files |= json.loads(held)["files"]
        rows = sum(files.values())
        record = {"format": KIND, "version": 1, "complete": True, "key": key, "n_rows": rows, "files": files}
        with folder.writing(MANIFEST) as file:
            file.write(_json(record))
        for name in folder.names():
            if name.startswith(f"{PARTS}/") or is_partial(name):
                folder.delete(name)
        return rows, len(files)

    def _remove(self, folder: OutputFolder, names: Sequence[str]) -> None:
        """Remove earlier predictions: the manifest last, so that a kill leaves a folder of ours."""
        for name in names:
            last = name.rpartition("/")[2]
            if last.startswith("part-") or name.startswith(f"{PARTS}/") or is_partial(name):
                folder.delete(name)
        folder.delete(MANIFEST)


class PartWriter:
    """Writes the batches of one part: at once, or in the end where their values decide the files."""

    def __init__(self, layout: FolderLayout, folder: OutputFolder, number: int, files: ExitStack) -> None:
        self._layout, self._folder, self._number, self._files = layout, folder, number, files
        self._writer: BatchWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self.written: dict[str, int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the next rows."""
        if self._layout.partition_by:
            self._held.append(batch)
            return
        name = self._layout.name(self._number)
        if self._writer is None:
            file = self._files.enter_context(self._folder.writing(name))
            self._writer = self._files.enter_context(batch_writer(file, self._layout.kind, batch.schema))
        self._writer.write(batch)
        self.written[name] = self.written.get(name, 0) + batch.num_rows

    def finish(self) -> None:
        """Write what was held back."""
        if not self._held:
            return
        table = pa.Table.from_batches([batch.cast(self._held[0].schema) for batch in self._held])
        for folder, rows in _divided(table, self._layout.partition_by):
            name = f"{folder}/{self._layout.name(self._number)}"
            with self._folder.writing(name) as file, batch_writer(file, self._layout.kind, rows.schema) as writer:
                for batch in rows.to_batches():
                    writer.write(batch)
            self.written[name] = rows.num_rows


def _divided(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each folder that the values of the columns `names` decide, in their order.

    Different values may have one folder: a missing text and an empty one.
    """
    codes = np.zeros(table.num_rows, np.int64)
    for name in names:
        column = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * (len(column.dictionary) + 1) + column.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]  # so that many columns do not exceed 64 bits
    order = np.argsort(codes, kind="stable")
    _, starts = np.unique(codes[order], return_index=True)
    rest = table.drop_columns(list(names))
    if rest.num_columns == 0:
        raise SpecError("got a partition by all columns; keep at least one other column")
    found: dict[str, list[IntArray]] = {}
    for rows in np.split(order, starts[1:]):
        values = [table.column(name)[int(rows[0])].as_py() for name in names]
        folder = "/".join(f"{quote(name)}={_text(value)}" for name, value in zip(names, values, strict=True))
        found.setdefault(folder, []).append(rows)
    for folder, parts in found.items():
        yield folder, rest.take(pa.array(np.sort(np.concatenate(parts))))


def _text(value: object) -> str:
    return _NULL if value is None or value == "" else quote(str(value), safe=" ")


def check_partition(schema: pa.Schema, names: Sequence[str]) -> None:
    """Raise SpecError unless rows can be divided by the columns `names`: texts, whole numbers, dates or booleans."""
    for name in names:
        kind = schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_binary(kind):
            raise SpecError(f"got --partition-by {name}, which holds {kind}; give a column of texts, dates or counts")


def _number(name: str) -> int | None:
    last = name.removeprefix(f"{PARTS}/").removesuffix(".json")
    return int(last) if name.startswith(f"{PARTS}/") and last.isdigit() else None


def _manifest(folder: OutputFolder) -> dict[str, Any] | None:
    held = folder.read(MANIFEST)
    try:
        found = None if held is None else json.loads(held)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("format") == KIND else None


def _json(record: dict[str, object]) -> bytes:
    return json.dumps(record, indent=1).encode()
