"""A source of rows in groups: files and arrays that a fit reads in place, without a store."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from distributed import Client

from daskkern.data.rows.grouped_rows import GroupedRows, GroupReader, RowTargets
from daskkern.data.rows.rows import ALL, Fields, Rows
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.column_statistics import Moments
from daskkern.training.direct.decoded_groups import DecodedGroups, KeptGroups, groups_here
from daskkern.training.feeding.cluster_blocks import BlockSource, LazyBlock, Triple
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sent_rows import Releasable
from daskkern.training.run.settings import FitSettings

LazyBlocks = Callable[[str], "tuple[LazyBlock, ...]"]
"""Returns groups as tasks, with features in a dtype."""


@dataclass(frozen=True, eq=False)
class GroupSource(RowSource):
    """Groups of rows that each process reads itself, where it can reach them.

    Attributes
    ----------
    reader : GroupReader
    info : SourceInfo
    place : str
        Where the rows come from, without the secrets of a URL.
    label : str
        A name, without folders.
    identity : dict
        JSON values that differ where the values of the rows do.
    lazy : callable or None
        Returns the groups as tasks, where their arrays are results on the cluster, which no other process can compute.
    kept : DecodedGroups or None
        Keeps groups that were decoded, for the passes of a fit.
    """

    reader: GroupReader
    info: SourceInfo
    place: str
    label: str
    identity: dict[str, Any]
    lazy: LazyBlocks | None = field(default=None, repr=False)
    kept: DecodedGroups | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        return self.place

    @property
    def name(self) -> str:
        return self.label

    @property
    def local_bytes(self) -> int:
        return self.reader.held_bytes

    def open(self, dtype: str) -> Rows:
        info = self.info
        targets = RowTargets(info.task, info.n_targets, info.classes)  # type: ignore[arg-type]
        reader: GroupReader = self.reader
        if self.kept is not None:
            as_read = np.dtype(np.float64) if info.scaling.is_far else self.kept.dtype
            reader = KeptGroups(reader, self.kept, as_read)
        return GroupedRows(reader, info.n_features, targets, dtype=dtype, scaling=info.scaling)

    def kept_on_disk(self, settings: FitSettings) -> "GroupSource":
        """Return the source of groups that are decoded once, and then read from a scratch file."""
        if self.reader.held_bytes or self.lazy is not None or not self.reader.is_slow:
            return self
        return replace(self, kept=groups_here(settings))

    def check_reach(self, dtype: str) -> None:
        """Read targets: opening alone reads nothing."""
        if not self.reader.held_bytes and self.lazy is None:
            self.open(dtype).read(0, 1, Fields.y)

    def for_cluster(
        self, client: Client, workers: Sequence[str] | None = None, dtype: str = "float32"
    ) -> tuple[RowSource, tuple[Releasable, ...]]:
        reader, sizes = self.reader, self.reader.sizes
        if self.lazy is not None:
            dtype = self._sent_as(dtype)
            return BlockSource(
                self.lazy(dtype), sizes, reader.has_weight, self.info, True, np.dtype(dtype).itemsize
            ).for_cluster(client, workers, dtype)
        if not reader.held_bytes:
            return self, ()
        dtype = self._sent_as(dtype)
        blocks = [partial(self._triple, number, dtype) for number in range(len(sizes))]
        sent, kept = BlockSource.sent(
            client, blocks, sizes, reader.has_weight, self.info, workers, np.dtype(dtype).itemsize
        )
        return replace(sent, whole_blocks=True), kept  # as here, batches are drawn from whole groups

    def digest(self) -> dict[str, Any]:
        return self.identity

    def _sent_as(self, dtype: str) -> str:
        """Return the dtype in which features are sent: float64 where a column of the first group lies far from 0.

        The scaling is learned later, from the rows that were sent.
        """
        X = self.reader.read(0, Fields.X, np.float64).X
        assert X is not None
        moments = Moments(self.info.n_features)
        moments.update(X)
        return "float64" if Scaling.of("standard", moments.result()).is_far else dtype

    def _triple(self, number: int, dtype: str) -> Triple:
        block = self.reader.read(number, ALL, dtype)
        assert block.X is not None
        return block.X, block.y, block.weight
