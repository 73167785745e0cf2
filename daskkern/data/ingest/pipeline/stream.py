"""The single pass of an ingestion over its rows: values are checked, labels encoded, and both written."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.data.ingest.columns.labels import (
    AUTO_LIMIT,
    KnownLabels,
    LabelCoder,
    no_classes,
    quantities_as_texts,
    too_many,
)
from daskkern.data.ingest.columns.targets import Decision
from daskkern.data.ingest.columns.values import features_of, labels_of, quantities_of, weights_of
from daskkern.data.ingest.pipeline.resume import IngestCheckpoint
from daskkern.data.ingest.readers.tables import Table
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.schema.schema import ClassLabel
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import DataError

Progress: TypeAlias = Callable[[int, int | None], None]


class LabelEncoder(Protocol):
    """Converts labels to class codes."""

    @property
    def labels(self) -> tuple[ClassLabel, ...]: ...
    def encode(self, values: HostArray) -> IntArray: ...
    def continue_from(self, labels: Sequence[ClassLabel]) -> None: ...


@dataclass(frozen=True)
class IngestBlock:
    """Checked rows, classes coded; `moments` (4, d) of the features, where they are known."""

    X: FeatureRows
    y: HostArray | None
    weight: HostArray | None
    moments: FloatArray | None = None

    def first(self, rows: int) -> "IngestBlock":
        """Return the first `rows` rows."""
        if rows >= self.X.shape[0]:
            return self
        y = None if self.y is None else self.y[:rows]
        return IngestBlock(self.X[:rows], y, None if self.weight is None else self.weight[:rows])

    def append_to(self, writer: StoreWriter) -> None:
        writer.append(self.X, self.y, self.weight, self.moments)


def checked_blocks(table: Table, decision: Decision, encoder: LabelEncoder, start: int = 0) -> Iterator[IngestBlock]:
    """Yield the rows of a table from `start` on, their values checked and their labels coded."""
    for piece in table.rows_from(start):
        y: HostArray | None = None
        if decision.task == "classification":
            y = encoder.encode(labels_of(piece, table))
        elif decision.task == "regression":
            y = quantities_of(piece, table)
        X = features_of(piece, table)
        yield IngestBlock(X, y, weights_of(piece), piece.moments if X is piece.X else None)


class IngestStream:
    """The rows of a source on their way into a training store and, when there is a test table, a test store.

    With `classes`, labels are coded by them and no others are allowed.
    """

    def __init__(
        self,
        train: Table,
        test: Table | None,
        decision: Decision,
        progress: Progress,
        classes: tuple[ClassLabel, ...] | None = None,
    ) -> None:
        self._train, self._test, self._decision, self._classes = train, test, decision, classes
        counts = [table.n_rows for table in (train, test) if table is not None]
        self._total = sum(n for n in counts if n is not None) if None not in counts else None
        self._progress = progress
        self._done = 0

    def run(self, train: StoreWriter, test: StoreWriter | None) -> None:
        """Write all rows; the writers still have to be closed."""
        fresh = LabelCoder(AUTO_LIMIT if self._decision.guessed else None)
        coder: LabelEncoder = fresh if self._classes is None else KnownLabels(self._classes)
        checkpoint = IngestCheckpoint(train)
        kept = checkpoint.take_up()
        if kept is not None:
            coder.continue_from(kept.labels)
            self._advance(kept.n_rows)
        for block in checked_blocks(self._train, self._decision, coder, start=self._done):
            block.append_to(train)
            self._advance(block.X.shape[0])
            checkpoint.keep(self._done, coder.labels)
        checkpoint.forget()
        if self._done == 0:
            raise DataError(f"{self._train.source} has no rows; at least one is needed")
        if self._is_classification:
            classes = self._classes or self._finish_classes(fresh, train)
            if self._classes is not None:
                train.set_classes(classes)
        if self._test is not None and test is not None:
            if self._is_classification:
                test.set_classes(classes)
            known = KnownLabels(classes) if self._is_classification else coder
            for block in checked_blocks(self._test, self._decision, known):
                block.append_to(test)
                self._advance(block.X.shape[0])

    @property
    def _is_classification(self) -> bool:
        return self._decision.task == "classification"

    def _advance(self, rows: int) -> None:
        self._done += rows
        self._progress(self._done, self._total)

    def _finish_classes(self, coder: LabelCoder, train: StoreWriter) -> tuple[ClassLabel, ...]:
        """Replace codes by order of appearance with codes by order of value."""
        classes, recode = coder.finish()
        check_classes(classes, self._decision, self._done, self._train)
        train.set_classes(classes, recode)
        return classes


def check_classes(classes: tuple[ClassLabel, ...], decision: Decision, n_rows: int, table: Table) -> None:
    """Raise DataError unless the labels of all rows look like classes, two at least."""
    if len(classes) > max(2, n_rows // 2):
        found = f"{len(classes)} different values in {n_rows} rows"
        raise too_many(found, classes) if decision.guessed else no_classes(found)
    written = quantities_as_texts(classes) if decision.guessed else None
    if written is not None:
        raise written
    if len(classes) < 2:
        raise DataError(
            f"every row of {table.source} has the same label {classes[0]!r}; classification needs two classes"
        )
