"""A ``pyarrow.dataset.Dataset`` as a table, with Arrow's file formats, file systems and partitions."""

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.typed_tables import TypedFile, after, open_typed
from daskkern.errors import DataError

if TYPE_CHECKING:
    import pyarrow.dataset as pads


def is_arrow_dataset(X: Any) -> bool:
    """Return whether `X` is a dataset of Arrow."""
    datasets = sys.modules.get("pyarrow.dataset")  # imported by whoever has a dataset; it imports pandas, too
    return datasets is not None and isinstance(X, datasets.Dataset)


def open_dataset(dataset: "pads.Dataset", request: Request) -> Parts:
    """Return the rows of a dataset, a row group of a file after the other. Partitions are columns.

    Raises
    ------
    DataError
        For a dataset with a filter, and one without rows.
    """
    if getattr(dataset, "_scan_options", None):
        raise DataError("got a filtered pyarrow dataset, whose row groups are unknown; write it, or ingest it once")
    files = []
    for fragment in dataset.get_fragments():
        files += [_Fragment(part, dataset.schema) for part in _row_groups(_in_place(fragment))]
    if not files:
        raise DataError("the pyarrow dataset has no files; at least one row is needed")
    typed = [TypedFile(Path(file.path), file.n_rows, file.schema, file.batches, (0,)) for file in files if file.n_rows]
    if not typed:
        raise DataError("the pyarrow dataset has no rows; at least one is needed")
    return open_typed(typed, request)


def dataset_stamps(dataset: "pads.Dataset") -> list[str]:
    """Return what changes when the rows do: sizes and times of files, or of rows in memory a digest."""
    import pyarrow.dataset as pads

    if isinstance(dataset, pads.UnionDataset):
        return [stamp for child in dataset.children for stamp in dataset_stamps(child)]
    files = list(getattr(dataset, "files", []))
    if files:
        found = dataset.filesystem.get_file_info(files)
        places = [_absolute(dataset.filesystem, file)[1] for file in files]
        return [f"{place} {i.size} {i.mtime_ns}" for place, i in zip(places, found, strict=True)]
    digest = hashlib.sha256()
    for batch in dataset.to_batches():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        digest.update(sink.getvalue())
    return [digest.hexdigest()]


def held_bytes(dataset: "pads.Dataset") -> int:
    """Return the bytes of rows that are in the memory of this process; 0 for a dataset of files."""
    held = [part for part in dataset.get_fragments() if not hasattr(part, "path")]
    return sum(batch.nbytes for part in held for batch in part.to_batches())


def _in_place(fragment: Any) -> Any:
    """Return the fragment of a local file at its absolute path, since workers may run in another folder."""
    files = getattr(fragment, "filesystem", None)
    if files is None:
        return fragment
    system, path = _absolute(files, fragment.path)
    if path == fragment.path and system is files:
        return fragment
    split = {"row_groups": [group.id for group in fragment.row_groups]} if hasattr(fragment, "row_groups") else {}
    return fragment.format.make_fragment(path, system, fragment.partition_expression, **split)


def _absolute(files: Any, path: str) -> tuple[Any, str]:
    """Return a file system and a path in it that do not depend on the current folder."""
    if files.type_name in ("local", "file"):  # of Arrow, and of fsspec
        return files, os.path.abspath(path)
    if files.type_name != "subtree":
        return files, path
    base = _absolute(files.base_fs, files.base_path)
    return (files if base[1] == files.base_path else type(files)(base[1], base[0])), path


def _row_groups(fragment: Any) -> Sequence[Any]:
    split = getattr(fragment, "split_by_row_group", None)
    return [fragment] if split is None else list(split())


@dataclass(frozen=True, eq=False)
class _Fragment:
    """A row group of a dataset."""

    fragment: Any
    schema: pa.Schema

    @property
    def path(self) -> str:
        return getattr(self.fragment, "path", "") or "the pyarrow dataset"

    @property
    def n_rows(self) -> int:
        return int(self.fragment.count_rows())

    def batches(self, names: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        try:
            found = self.fragment.to_batches(
                schema=self.schema, columns=list(names), batch_size=rows, use_threads=False, batch_readahead=1
            )
            yield from after((batch for batch in found if batch.num_rows), start)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path} cannot be read: {error}") from error
