"""The time that ingestion would save a fit that reads rows in place, measured on some groups of its rows."""

import tempfile
import time
from dataclasses import dataclass

import numpy as np

from daskkern.backend.random import generator
from daskkern.data.rows.grouped_rows import GroupedRows
from daskkern.data.rows.rows import ALL, Rows
from daskkern.monitor.formatting import format_bytes
from daskkern.training.direct.group_source import GroupSource
from daskkern.training.feeding.block_cache_policy import disk_room
from daskkern.training.feeding.disk_rates import measure_disk
from daskkern.training.run.settings import FitSettings

_SECONDS = 2.0
_MOST_GROUPS = 8
_STREAM = 0x1A6E
_USUAL_RATE = 1e9
"""Bytes a second of a store, where the temporary folder lies in memory and says nothing about disks."""


@dataclass(frozen=True)
class IngestGain:
    """Seconds per epoch that reading takes, directly and from a store, and what making the store costs once.

    Attributes
    ----------
    direct_s, store_s : float
        Of one thread, for all rows.
    ingest_s : float
        Reading all rows once, and writing them.
    n_bytes : int
        Of the store.
    kept : bool
        Whether a fit keeps the rows in a scratch file, and decodes them once.
    """

    direct_s: float
    store_s: float
    ingest_s: float
    n_bytes: int
    kept: bool = False

    @property
    def pays_after(self) -> float:
        """Epochs after which an ingestion has paid for itself; infinite where it never does."""
        saved = self.direct_s - self.store_s
        return self.ingest_s / saved if saved > 0 else float("inf")

    def in_words(self, epochs: int) -> str:
        """Return two sentences for a fit of `epochs` epochs."""
        if self.kept:
            return self._of_kept_rows()
        saved = epochs * (self.direct_s - self.store_s) - self.ingest_s
        each = f"reading takes {_s(self.direct_s)} per epoch in place, and {_s(self.store_s)} from a store"
        once = f"an ingestion takes about {_s(self.ingest_s)} and {format_bytes(self.n_bytes)} of disk, once"
        verdict = (
            f"ingesting first would save about {_s(saved)} of reading in {epochs} epochs"
            if saved > 0
            else f"it pays after {self.pays_after:,.0f} epochs; this fit has {epochs}"
            if np.isfinite(self.pays_after)
            else "it never pays"
        )
        return f"ingesting first: {each}; {once}: {verdict}. Reading is hidden behind the steps where these are slower."

    def _of_kept_rows(self) -> str:
        once = f"decoding takes {_s(self.direct_s)}, once a fit, and further epochs {_s(self.store_s)} of reading"
        place = f"from a scratch file of {format_bytes(self.n_bytes)}"
        verdict = f"it saves nothing in one fit, and about {_s(self.direct_s)} in each further one on the same rows"
        return f"ingesting first: {verdict}; {once} each, {place}, as from a store."


def ingest_gain(source: GroupSource, settings: FitSettings) -> IngestGain:
    """Measure how fast some random groups of `source` are read, and compare with a store on this machine's disk.

    Reads for about 2 seconds, and writes and reads up to 48 MB in the temporary folder.
    `settings` are those of the fit.
    """
    info = source.info
    rows = source.open("float32")
    assert isinstance(rows, GroupedRows)
    per_row = _seconds_per_row(rows)
    n_bytes = info.n_rows * (4 * info.n_features + 8 * max(1, info.n_targets))
    disk = measure_disk(tempfile.gettempdir())
    read, write = (_USUAL_RATE, _USUAL_RATE) if disk is None else (disk.read, disk.write)
    direct_s, store_s = per_row * info.n_rows, n_bytes / read
    kept = source.kept_on_disk(settings).kept is not None and n_bytes <= disk_room(settings)
    return IngestGain(direct_s, store_s, direct_s + n_bytes / write, n_bytes, kept)


def _seconds_per_row(rows: Rows) -> float:
    edges = rows.chunk_edges
    count = -(-rows.n_rows // rows.chunk_rows) if edges is None else edges.n_chunks
    order = generator(0, _STREAM).permutation(count)[:_MOST_GROUPS]
    read, begun = 0, time.perf_counter()
    for chunk in order.tolist():
        first = chunk * rows.chunk_rows
        start, stop = (first, min(first + rows.chunk_rows, rows.n_rows)) if edges is None else edges.bounds_of(chunk)
        rows.read(start, stop, ALL)
        read += stop - start
        if time.perf_counter() - begun > _SECONDS:
            break
    return (time.perf_counter() - begun) / max(1, read)


def _s(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds:,.0f} s"
