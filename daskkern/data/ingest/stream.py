"""The one pass of an ingestion over its rows: check, code, deal to the stores."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from daskkern.arrays import HostArray, IntArray
from daskkern.data.ingest.labels import AUTO_LIMIT, KnownLabels, LabelCoder, too_many
from daskkern.data.ingest.split import Split
from daskkern.data.ingest.tables import Table
from daskkern.data.ingest.targets import Decision
from daskkern.data.ingest.values import features_of, labels_of, quantities_of, weights_of
from daskkern.data.schema import ClassLabel
from daskkern.data.writer import StoreWriter
from daskkern.errors import DataError

Progress: TypeAlias = Callable[[int, int | None], None]


class _Encoder(Protocol):
    def encode(self, values: HostArray) -> IntArray: ...


@dataclass(frozen=True)
class _Block:
    """Checked rows, classes coded."""

    X: HostArray
    y: HostArray | None
    weight: HostArray | None

    def where(self, mask: npt.NDArray[np.bool_]) -> "_Block":
        """Return the rows where `mask` (m,) is true."""
        y = None if self.y is None else self.y[mask]
        weight = None if self.weight is None else self.weight[mask]
        return _Block(self.X[mask], y, weight)

    def append_to(self, writer: StoreWriter) -> None:
        writer.append(self.X, self.y, self.weight)


class Stream:
    """The rows of a source on their way into a training store and, when there is one, a test store.

    Test rows come out of the training table by `split`, or from a table of their own, or there are none.
    """

    def __init__(
        self, train: Table, test: Table | None, decision: Decision, split: Split | None, progress: Progress
    ) -> None:
        self._train, self._test, self._decision, self._split = train, test, decision, split
        counts = [table.n_rows for table in (train, test) if table is not None]
        self._total = sum(n for n in counts if n is not None) if None not in counts else None
        self._progress = progress
        self._done = 0

    def run(self, train: StoreWriter, test: StoreWriter | None) -> None:
        """Write everything but what the writers do on leaving."""
        coder = LabelCoder(AUTO_LIMIT if self._decision.guessed else None)
        trained: set[int] = set()  # codes of the labels that training rows have
        for block in self._blocks(self._train, coder):
            kept = block
            if self._split is not None and test is not None:
                mask = self._split.is_test(self._done, self._done + len(block.X))
                block.where(mask).append_to(test)
                kept = block.where(~mask)
            kept.append_to(train)
            if kept.y is not None and self._is_classification:
                trained.update(np.unique(kept.y).tolist())
            self._advance(len(block.X))
        if self._done == 0:
            raise DataError(f"{self._train.source} has no rows; at least one is needed")
        if self._is_classification:
            classes = self._finish_classes(coder, trained, train, test)
        if test is not None:
            if self._test is not None:
                for block in self._blocks(self._test, KnownLabels(classes) if self._is_classification else coder):
                    block.append_to(test)
                    self._advance(len(block.X))
            test.set_scaling(train.scaling())

    @property
    def _is_classification(self) -> bool:
        return self._decision.task == "classification"

    def _blocks(self, table: Table, encoder: _Encoder) -> Iterator[_Block]:
        for piece in table.pieces():
            y: HostArray | None = None
            if self._is_classification:
                y = encoder.encode(labels_of(piece, table))
            elif self._decision.task == "regression":
                y = quantities_of(piece, table)
            yield _Block(features_of(piece, table), y, weights_of(piece))

    def _advance(self, rows: int) -> None:
        self._done += rows
        self._progress(self._done, self._total)

    def _finish_classes(
        self, coder: LabelCoder, trained: set[int], train: StoreWriter, test: StoreWriter | None
    ) -> tuple[ClassLabel, ...]:
        """Replace codes by order of appearance with codes by order of value, and check that these are classes."""
        classes, recode = coder.finish()
        if self._decision.guessed and len(classes) > max(2, self._done // 2):
            raise too_many(f"{len(classes)} different values in {self._done} rows")
        if len(classes) < 2:
            raise DataError(
                f"every row of {self._train.source} has the same label {classes[0]!r}; classification needs two classes"
            )
        for code, place in enumerate(recode.tolist()):
            if code not in trained:
                raise DataError(
                    f"the label {classes[place]!r} is so rare that all its rows went to the test part; "
                    "split with another seed, or remove them"
                )
        train.set_classes(classes, recode)
        if test is not None:
            test.set_classes(classes, recode if self._split is not None else None)
        return classes
