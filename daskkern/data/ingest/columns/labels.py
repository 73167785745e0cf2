"""Codes of class labels in a stream: assigned in order of appearance, sorted by value at the end."""

from collections.abc import Collection, Sequence

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.data.ingest.columns.whole_numbers import FEW, is_whole
from daskkern.data.ingest.columns.written_values import MOST_WRITTEN, is_number, written_as
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError

AUTO_LIMIT = 1000
"""Maximum number of classes when no task was given: with more, the target is probably a quantity or a name."""


class LabelCoder:
    """Coder of labels of one kind. Equal values get equal codes whatever their dtype: 1, 1.0 and True are one label.

    Parameters
    ----------
    limit : int or None
        Maximum number of labels, see :data:`AUTO_LIMIT`; None when the user requested classes. Then more than
        :data:`~daskkern.data.ingest.columns.whole_numbers.FEW` numbers with fractions among them are refused.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._codes: dict[ClassLabel, int] = {}
        self._limit = limit

    def encode(self, values: HostArray) -> IntArray:
        """Return the codes (m,) of labels (m,), giving new codes to new labels."""
        unique, inverse = np.unique(values, return_inverse=True)
        known = [self._codes.setdefault(label, len(self._codes)) for label in unique.tolist()]
        if self._limit is not None and len(known) and len(self._codes) > self._limit:
            raise too_many(f"more than {self._limit} different values", self._codes)
        if self._limit is None and len(self._codes) > FEW and unique.dtype.kind == "f" and not is_whole(unique):
            raise no_classes(f"more than {FEW} different values, and fractions among them")
        return np.asarray(known, np.int64)[inverse]

    @property
    def labels(self) -> tuple[ClassLabel, ...]:
        """The labels by code so far."""
        return tuple(self._codes)

    def continue_from(self, labels: Sequence[ClassLabel]) -> None:
        """Continue with labels that were coded before."""
        self._codes = {label: code for code, label in enumerate(labels)}

    def finish(self) -> tuple[tuple[ClassLabel, ...], IntArray]:
        """Return the labels in ascending order, and the position ``recode[code]`` of each code among them.

        Floats that are all whole numbers become ints. DataError for texts that differ by spaces around them alone.
        """
        labels = list(self._codes)
        _refuse_twins(labels)
        order = sorted(range(len(labels)), key=labels.__getitem__)
        recode = np.empty(len(labels), np.int64)
        recode[order] = np.arange(len(labels))
        ordered = [labels[i] for i in order]
        if all(isinstance(label, float) and label.is_integer() for label in ordered):
            ordered = [int(label) for label in ordered]
        return tuple(ordered), recode


def _refuse_twins(labels: Sequence[ClassLabel]) -> None:
    """Raise DataError for two labels of text that differ by spaces around them alone."""
    known: dict[str, str] = {}
    for label in labels:
        if isinstance(label, str) and known.setdefault(label.strip(), label) != label:
            raise DataError(
                f"the target has the labels {known[label.strip()]!r:.60} and {label!r:.60}, which differ by spaces "
                "alone; write both the same way"
            )


class KnownLabels:
    """Coder of labels by a fixed list of classes, comparing values."""

    def __init__(self, classes: Sequence[ClassLabel]) -> None:
        self._codes = {label: code for code, label in enumerate(classes)}
        self.labels = tuple(classes)

    def continue_from(self, labels: Sequence[ClassLabel]) -> None:
        """Do nothing: the classes are known from the start."""
        del labels

    def encode(self, values: HostArray) -> IntArray:
        """Return the codes (m,) of labels (m,).

        Raises
        ------
        DataError
            When a label is not among the classes.
        """
        unique, inverse = np.unique(values, return_inverse=True)
        unseen = [label for label in unique.tolist() if label not in self._codes]
        if unseen:
            known = ", ".join(repr(label) for label in list(self._codes)[:5])
            if str(unseen[0]) in {str(label) for label in self._codes}:
                raise DataError(
                    f"the test rows hold the label {unseen[0]!r}, which has another type in the training rows (there: "
                    f"{known}{', ...' if len(self._codes) > 5 else ''}); store labels as there, as numbers or as texts"
                )
            raise DataError(
                f"the test rows hold the label {unseen[0]!r}, which no training row has (there: {known}"
                f"{', ...' if len(self._codes) > 5 else ''}); remove those rows or move some to the training part"
            )
        return np.asarray([self._codes[label] for label in unique.tolist()], np.int64)[inverse]


def no_classes(found: str) -> DataError:
    """Return the error for a target of a requested classification whose values are not like classes."""
    return DataError(
        f"--task classification was given, but the target has {found}; classes are few values that several rows "
        "share: use --task regression, or choose another --target"
    )


def too_many(found: str, labels: Collection[ClassLabel]) -> DataError:
    """Return the error for a target with too many values to be classes."""
    quantity = "" if all(isinstance(label, str) for label in labels) else "--task regression when it is a quantity, "
    return quantities_as_texts(labels) or DataError(
        f"the target has {found}, so it does not look like classes; use {quantity}--task classification when these "
        "really are classes, or choose another --target"
    )


def quantities_as_texts(labels: Collection[ClassLabel]) -> DataError | None:
    """Return the error for a guessed classification whose labels are dates or numbers with signs, None for others."""
    texts = [label for label in labels if isinstance(label, str)]
    way = written_as(dict.fromkeys(texts, 1), len(labels)) if len(labels) > MOST_WRITTEN else None
    if way is None:
        return None
    first = next(text for text in texts if way.pattern.fullmatch(text))
    if all(map(is_number, texts)):
        return DataError(
            f"the target holds numbers that are stored as text, such as {first!r:.60}, and would become {len(labels)} "
            "classes; store them as numbers, or use --task classification when these really are classes"
        )
    return DataError(
        f"the target holds {way.name}, such as {first!r:.60}, and would become {len(labels)} classes; {way.remedy}, "
        "choose another --target, or use --task classification when these really are classes"
    )
