"""Zarr arrays of which every chunk is stored: a missing one means damage."""

import zarr

from daskkern.arrays import HostArray


def write_whole(
    group: zarr.Group, name: str, values: HostArray, chunks: tuple[int, ...] | None = None, *, overwrite: bool = False
) -> None:
    """Write `values` as a new array. By default Zarr leaves out chunks of zeros."""
    group.create_array(
        name,
        data=values,
        chunks=chunks or "auto",
        compressors=None,
        overwrite=overwrite,
        config={"write_empty_chunks": True},
    )
