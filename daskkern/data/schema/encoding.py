"""Encoding of table columns as features: numbers unchanged, categories as features or codes, missing values filled.

An encoding is decided once, on training data, and recorded in the store. Everything that is ingested like that store or
predicted by its model is encoded the same way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from daskkern.arrays import FloatArray
from daskkern.errors import SpecError

CategoricalChoice: TypeAlias = Literal["auto", "refuse", "onehot", "ordinal", "codes"]
MissingChoice: TypeAlias = Literal["auto", "refuse", "mean", "most_frequent", "constant"]
UnknownChoice: TypeAlias = Literal["refuse", "ignore"]
"""What becomes of rows with a category that the training data lack, in a column of one feature for each: an error, or
0 in all features of the column."""
ColumnKind: TypeAlias = Literal["number", "onehot", "ordinal", "code"]

CATEGORICAL_CHOICES: tuple[CategoricalChoice, ...] = ("auto", "refuse", "onehot", "ordinal", "codes")
MISSING_CHOICES: tuple[MissingChoice, ...] = ("auto", "refuse", "mean", "most_frequent", "constant")
ABSENT = "missing"
"""The category of missing values, where training rows have some."""
MISSING_TEXTS = ("", " ", "  ", "?", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None")
"""Texts of files without types, such as CSV, that stand for a missing value."""
_KINDS: tuple[ColumnKind, ...] = ("number", "onehot", "ordinal", "code")


@dataclass(frozen=True)
class ColumnEncoding:
    """The encoding of one source column as features.

    Attributes
    ----------
    name : str
        Name of the column in the source; ``"column 3"`` where columns have no names.
    kind : "number", "onehot", "ordinal" or "code"
        A number is one feature, unchanged. A category is either one feature for each of `categories`, 1 where it is
        that one and 0 elsewhere, or one feature with its position among them: an "ordinal" is a number for kernels, of
        a "code" they see only whether two rows have the same one. A code beyond all positions is that of categories
        that the training data do not have.
    categories : tuple of str
        In ascending order; empty for numbers.
    fill : float, str or None
        Replacement of missing values: a number, or one of the categories. None refuses missing values.
    is_date : bool
        Whether the numbers are days since 1970-01-01, and the column may hold dates, also written as texts.
    """

    name: str
    kind: ColumnKind = "number"
    categories: tuple[str, ...] = ()
    fill: float | str | None = None
    is_date: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        if self.kind == "onehot":
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name,)

    @property
    def width(self) -> int:
        """Number of features that the column becomes."""
        return len(self.categories) if self.kind == "onehot" else 1

    @property
    def is_plain(self) -> bool:
        """Whether the column is used unchanged."""
        return self.kind == "number" and self.fill is None and not self.is_date

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that :func:`encoding_from_json` reads."""
        date = {"date": True} if self.is_date else {}  # a key that older versions do not know
        return {"name": self.name, "kind": self.kind, "categories": list(self.categories), "fill": self.fill, **date}


Encoding: TypeAlias = tuple[ColumnEncoding, ...]


def encoding_from_json(value: object) -> Encoding | None:
    """Return the encoding that a list of JSON objects describes; None when it describes none."""
    if not isinstance(value, list) or not value:
        return None
    columns = [_column(item) for item in value]
    known = tuple(column for column in columns if column is not None)
    return known if len(known) == len(columns) else None


def _column(item: object) -> ColumnEncoding | None:
    if not isinstance(item, Mapping):
        return None
    name, categories, fill = item.get("name"), item.get("categories"), item.get("fill")
    kind = next((known for known in _KINDS if known == item.get("kind")), None)
    if kind is None or not isinstance(name, str) or not isinstance(categories, list):
        return None
    if not all(isinstance(category, str) for category in categories):
        return None
    is_date = item.get("date", False)
    if not isinstance(is_date, bool) or (is_date and kind != "number"):
        return None
    if kind == "number":
        sound = not categories and (fill is None or (isinstance(fill, int | float) and not isinstance(fill, bool)))
        return ColumnEncoding(name, kind, (), None if fill is None else float(fill), is_date) if sound else None
    sound = len(categories) > 0 and len(set(categories)) == len(categories) and (fill is None or fill in categories)
    return ColumnEncoding(name, kind, tuple(categories), fill) if sound else None


def check_choices(categorical: str, missing: str) -> tuple[CategoricalChoice, MissingChoice]:
    """Return both choices, typed. Raises SpecError for unknown names."""
    for value, known, option in (
        (categorical, CATEGORICAL_CHOICES, "categorical"),
        (missing, MISSING_CHOICES, "missing"),
    ):
        if value not in known:
            raise SpecError(f"got {option} {value!r}; choose one of {', '.join(known)}")
    return (
        next(choice for choice in CATEGORICAL_CHOICES if choice == categorical),
        next(choice for choice in MISSING_CHOICES if choice == missing),
    )


def code_columns(encoding: Sequence[ColumnEncoding] | None) -> tuple[int, ...]:
    """Return the numbers of the features that are codes of categories."""
    kinds = [column.kind for column in encoding or () for _ in column.feature_names]
    return tuple(number for number, kind in enumerate(kinds) if kind == "code")


def with_means(encoding: Encoding, means: Sequence[float] | FloatArray) -> Encoding:
    """Return the encoding with the means of features as replacements in columns of numbers that have none."""
    filled, at = [], 0
    for column in encoding:
        wants = column.kind == "number" and column.fill is None
        filled.append(replace(column, fill=float(means[at])) if wants else column)
        at += len(column.feature_names)
    return tuple(filled)


def feature_names_of(encoding: Sequence[ColumnEncoding]) -> tuple[str, ...]:
    """Return the names of all features, in order."""
    return tuple(name for column in encoding for name in column.feature_names)
