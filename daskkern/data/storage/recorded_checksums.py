"""Recorded checksums of a store, by which a check names the chunk or key that has changed.

The group ``chunk_checksums`` of a store has an array of the same name for each array of the store, with the CRC-32
of every chunk, and in its attributes the CRC-32 of each attribute of the store and of each array's metadata. The
attribute ``records`` of the store is the CRC-32 of all these checksums.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from daskkern.arrays import HostArray
from daskkern.data.storage.checksums import Checksum
from daskkern.data.storage.sizes import check_chunks
from daskkern.data.storage.whole_arrays import write_whole
from daskkern.errors import StoreError

RECORDS = "chunk_checksums"


@dataclass(frozen=True)
class Records:
    """CRC-32 sums by name: of each attribute, each array's metadata, and (n_chunks,) each array's chunks."""

    attributes: Mapping[str, int]
    metadata: Mapping[str, int]
    chunks: Mapping[str, HostArray]


def write_records(group: zarr.Group, sums: Mapping[str, Checksum], attributes: Mapping[str, Any]) -> int:
    """Record the sums of finished arrays and of the attributes that the group will get.

    Returns the CRC-32 of the records, to be stored in the attribute ``records`` of the group.
    """
    records = group.create_group(RECORDS, overwrite=True)  # of a process that was killed before the end
    for name, of_array in sums.items():
        values = np.asarray(of_array.chunks, np.uint32)
        write_whole(records, name, values, values.shape)
    records.update_attributes(
        {
            "attributes": {key: attribute_sum(value) for key, value in attributes.items()},
            "metadata": {name: metadata_sum(group, name) for name in sorted(_with_parents(sums))},
        }
    )
    return records_sum(group, tuple(sums))


def records_sum(group: zarr.Group, names: Iterable[str]) -> int:
    """Return the CRC-32 of the records of the arrays `names`: metadata and values, as bytes."""
    files = [f"{RECORDS}/zarr.json"]
    for name in sorted(_with_parents(names)):
        files += [f"{RECORDS}/{name}/zarr.json", f"{RECORDS}/{name}/c/0"]
    total = 0
    for file in files:
        total = zlib.crc32(_bytes_of(group, file), total)
    return total


def read_records(group: zarr.Group) -> Records | None:
    """Return the recorded checksums, or None for a store without records.

    Raises
    ------
    StoreError
        When the records themselves are damaged.
    """
    try:
        found: Any = group.get(RECORDS)
        if found is None:
            return None
        attributes, metadata = _sums(found, "attributes"), _sums(found, "metadata")
        arrays = [name for name in metadata if isinstance(found[name], zarr.Array)]
        return Records(attributes, metadata, {name: _chunk_sums(found, name) for name in arrays})
    except StoreError:
        raise
    except Exception as error:  # damaged metadata: zarr raises many types
        raise StoreError(
            f"the records under {RECORDS!r} of {group.store_path} are damaged ({type(error).__name__}: {error}); "
            "copy the store again"
        ) from error


def attribute_sum(value: object) -> int:
    """Return the CRC-32 of a JSON value, whatever the order of its keys."""
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def metadata_sum(group: zarr.Group, name: str) -> int:
    """Return the CRC-32 of the metadata file of an array or group; 0 when there is none."""
    return zlib.crc32(_bytes_of(group, f"{name}/zarr.json"))


def _bytes_of(group: zarr.Group, file: str) -> bytes:
    stored = sync((group.store_path / file).get(default_buffer_prototype()))
    return b"" if stored is None else stored.to_bytes()


def _with_parents(names: Iterable[str]) -> set[str]:
    """Return names of arrays, and of the groups that contain them."""
    return {*names, *(name.rpartition("/")[0] for name in names if "/" in name)}


def _sums(records: Any, name: str) -> Mapping[str, int]:
    entry = records.attrs[name]
    return {str(key): int(value) for key, value in entry.items()}


def _chunk_sums(records: Any, name: str) -> HostArray:
    array = records[name]
    whole = array.ndim == 1 and array.dtype == np.uint32
    if not whole or check_chunks(array, f"{RECORDS}/{name} of {records.store_path}") is not None:
        raise StoreError(f"the records {RECORDS}/{name} of {records.store_path} are incomplete; copy the store again")
    return np.asarray(array[:])
