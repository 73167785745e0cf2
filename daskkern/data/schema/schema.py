"""The schema of a daskkern store: :class:`StoreInfo`, its attributes in Zarr, and their validation.

A store is a Zarr v3 group: ``X`` (n, d), an array or a group of CSR parts, ``y`` ((n,) int64 class codes or (n, t)
float64 targets) and optionally ``weight`` (n,) float64, all chunked by the same number of rows. Values are stored
unchanged, except that float64 features become float32. Everything else is in the attributes, which are read as
untrusted input: plain JSON, every entry checked, nothing unpickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.data.schema.attributes import Attributes, is_whole
from daskkern.data.schema.column_scaling import (
    RECORDED_KINDS,
    SPARSE_SCALINGS,
    Scaling,
    ScalingKind,
)
from daskkern.data.schema.column_statistics import ColumnStatistics
from daskkern.data.schema.encoding import Encoding, encoding_from_json, feature_names_of
from daskkern.data.schema.rank_tables import tables_from_json
from daskkern.errors import SpecError, StoreError

__all__ = ["FORMAT", "VERSION", "ClassLabel", "ColumnStatistics", "Scaling", "StoreInfo", "Task"]

FORMAT = "daskkern-store"
VERSION = 1
SOURCE_KEY = "source_key"
"""The attribute with a digest of the sources and settings that a store was ingested from."""
STATISTICS = "column_statistics"
"""The array (4, d) with mean, std, min and max, used for very many columns."""

Task: TypeAlias = Literal["classification", "regression"]
ClassLabel: TypeAlias = str | int | float | bool

_LABEL_KINDS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class StoreInfo:
    """The contents of a store.

    Attributes
    ----------
    n_rows, n_features, n_targets, chunk_rows : int
        Sizes; `n_targets` is 1 for classification and 0 for a store without targets.
    task : "classification", "regression" or None
        None when there are no targets.
    classes : tuple or None
        Class labels by code, all of one kind: str, int, float or bool.
    class_counts : tuple of int or None
        Number of rows of each class.
    feature_names, target_names : tuple of str or None
        None when the source had no names.
    statistics, target_statistics : ColumnStatistics or None
        Of the values as stored, before scaling; `target_statistics` for regression only.
    scaling : Scaling
        Applied to `X` whenever rows are read.
    has_weight : bool
        Whether rows have weights.
    checksums : mapping of str to int
        CRC-32 of the bytes of each array, rows in order.
    is_sparse : bool
        Whether `X` is a group of CSR parts rather than an array.
    encoding : tuple of ColumnEncoding or None
        How the columns of the source became features; None when they are the columns unchanged.
    index_base : int or None
        The number of the first feature in the SVMLight files that the rows are from; None for other sources.
    """

    n_rows: int
    n_features: int
    n_targets: int
    chunk_rows: int
    task: Task | None
    classes: tuple[ClassLabel, ...] | None
    class_counts: tuple[int, ...] | None
    feature_names: tuple[str, ...] | None
    target_names: tuple[str, ...] | None
    statistics: ColumnStatistics
    target_statistics: ColumnStatistics | None
    scaling: Scaling
    has_weight: bool
    checksums: Mapping[str, int]
    is_sparse: bool = False
    encoding: Encoding | None = None
    index_base: int | None = None

    def feature_name(self, column: int) -> str:
        """Return the name of a feature for messages, ``column 3`` where features have no names."""
        return self.feature_names[column] if self.feature_names else f"column {column}"

    def to_attributes(self) -> dict[str, Any]:
        """Return the JSON attributes that :meth:`from_attributes` reads."""
        return {
            "version": VERSION,
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "n_targets": self.n_targets,
            "chunk_rows": self.chunk_rows,
            "task": self.task,
            "classes": _labels_to_json(self.classes),
            "class_counts": _list(self.class_counts),
            "feature_names": _list(self.feature_names),
            "target_names": _list(self.target_names),
            "statistics": ({"array": STATISTICS} if self.statistics.is_wide else _statistics_to_json(self.statistics)),
            "target_statistics": _statistics_to_json(self.target_statistics),
            "scaling": self.scaling.to_json(),
            "has_weight": self.has_weight,
            "checksums": dict(self.checksums),
            "layout": "csr" if self.is_sparse else "dense",
            "encoding": None if self.encoding is None else [column.to_json() for column in self.encoding],
            "index_base": self.index_base,
        }

    @classmethod
    def from_attributes(
        cls, attributes: Mapping[str, Any], where: str, statistics: FloatArray | None = None
    ) -> "StoreInfo":
        """Read and check the attributes of the store at `where`; `statistics` (4, d) where an array holds them.

        Raises
        ------
        StoreError
            For the first attribute that is wrong, which the message names.
        """
        check_format(attributes, FORMAT, VERSION, where)
        return _AttributeReader(attributes, where, statistics).info()


def check_format(attributes: Mapping[str, Any], kind: str, version: int, where: str) -> None:
    """Raise StoreError unless `attributes` are those of a complete group of format `kind`, no newer than `version`."""
    found = attributes.get("format")
    if found != kind:
        has = f"its format is {found!r}" if isinstance(found, str) else "it has no format attribute"
        maker = "ingest" if kind == FORMAT else "fit"
        raise StoreError(f"{where} is a Zarr group but not a {kind}: {has}; make one with 'daskkern {maker}'")
    if attributes.get("complete") is not True:
        raise StoreError(f"{where} is a half-written {kind}: writing it never finished; delete it and write it again")
    number = attributes.get("version")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise StoreError(f"{where} is not a valid {kind}: its version is {number!r}; write it again")
    if number > version:
        raise StoreError(
            f"{where} has version {number} of the {kind} format, but this daskkern reads versions up to {version}; "
            "update daskkern"
        )


class _AttributeReader(Attributes):
    """Reads a :class:`StoreInfo` from attributes, and checks that its parts are consistent."""

    def __init__(self, attributes: Mapping[str, Any], where: str, statistics: FloatArray | None) -> None:
        super().__init__(attributes, where)
        self._array = statistics

    def info(self) -> StoreInfo:
        n_rows, d = self.count("n_rows", least=1), self.count("n_features", least=1)
        t = self.count("n_targets", least=0)
        task = self.choice("task", ("classification", "regression", None))
        if (task is None) != (t == 0) or (task == "classification" and t != 1):
            self.refuse("n_targets", f"{t} targets do not fit task {task!r}")
        classes, counts = self._classes(task, n_rows)
        sparse = self.given("layout", "dense") != "dense" and self.choice("layout", ("csr",)) == "csr"
        return StoreInfo(
            n_rows=n_rows,
            n_features=d,
            n_targets=t,
            chunk_rows=self.count("chunk_rows", least=1),
            task=task,
            classes=classes,
            class_counts=counts,
            feature_names=self.names("feature_names", d),
            target_names=self.names("target_names", t),
            statistics=self._statistics("statistics", n_rows, d),
            target_statistics=self._statistics("target_statistics", n_rows, t) if task == "regression" else None,
            scaling=self._scaling(d, sparse),
            has_weight=self.choice("has_weight", (True, False)),
            checksums=self._checksums(),
            is_sparse=sparse,
            encoding=self._encoding(d),
            index_base=self._index_base(),
        )

    def _index_base(self) -> int | None:
        """Return the number of the first feature; None in stores of other sources, and of older versions."""
        found = self.given("index_base", None)
        if found is not None and (isinstance(found, bool) or found not in (0, 1)):
            self.refuse("index_base", "0, 1 or null was expected")
        return None if found is None else int(found)

    def _classes(self, task: str | None, n_rows: int) -> tuple[tuple[ClassLabel, ...] | None, tuple[int, ...] | None]:
        if task != "classification":
            return None, None
        entry = self.mapping("classes")
        kind, values = _LABEL_KINDS.get(str(entry.get("kind"))), entry.get("values")
        if kind is None or not isinstance(values, list) or not values:
            self.refuse("classes", "a kind and a list of labels were expected")
        labels = self.values("classes", values, kind, len(values))
        if len(set(labels)) != len(labels):
            self.refuse("classes", "a label occurs twice")
        counts = self.values("class_counts", self.get("class_counts"), int, len(labels))
        if min(counts) < 0 or sum(counts) != n_rows:
            self.refuse("class_counts", f"the counts do not add up to {n_rows} rows")
        return labels, counts

    def _statistics(self, name: str, n_rows: int, width: int) -> ColumnStatistics:
        entry = self.mapping(name)
        if name == "statistics" and entry.get("array") == STATISTICS:
            if self._array is None or self._array.shape != (4, width) or not np.isfinite(self._array).all():
                self.refuse(name, f"the array {STATISTICS!r} is missing or invalid")
            return ColumnStatistics(n_rows, *self._array)
        mean, std, low, high = (self.values(name, entry.get(k), float, width) for k in ("mean", "std", "min", "max"))
        return ColumnStatistics(n_rows, mean, std, low, high)

    def _scaling(self, width: int, sparse: bool) -> Scaling:
        entry = self.mapping("scaling")
        kind: ScalingKind | None = next((k for k in RECORDED_KINDS if k == entry.get("kind")), None)
        if kind is None:
            self.refuse("scaling", f"kind {entry.get('kind')!r:.80} is not one of {RECORDED_KINDS}")
        length = 0 if kind == "none" else width
        shift = self.values("scaling", entry.get("shift"), float, length)
        scale = self.values("scaling", entry.get("scale"), float, length)
        if any(value <= 0 for value in scale):
            self.refuse("scaling", "a scale is not positive")
        if sparse and kind not in SPARSE_SCALINGS and any(shift):
            self.refuse("scaling", f"{kind} shifts columns, which sparse rows do not allow")
        bend = self.values("scaling", entry.get("bend"), float, length) if "bend" in entry else ()
        if any(value < 0 for value in bend):
            self.refuse("scaling", "a bend is negative")
        try:
            return Scaling(kind, shift, scale, bend, tables_from_json(entry))
        except SpecError as error:
            self.refuse("scaling", str(error))

    def _encoding(self, width: int) -> Encoding | None:
        given = self.given("encoding", None)
        if given is None:
            return None
        encoding = encoding_from_json(given)
        if encoding is None or len(feature_names_of(encoding)) != width:
            self.refuse("encoding", f"columns that make {width} features were expected")
        return encoding

    def _checksums(self) -> Mapping[str, int]:
        entry = self.mapping("checksums")
        if not all(is_whole(value) for value in entry.values()):
            self.refuse("checksums", "whole numbers were expected")
        return {str(name): int(value) for name, value in entry.items()}


def _list(values: tuple[Any, ...] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _labels_to_json(classes: tuple[ClassLabel, ...] | None) -> dict[str, Any] | None:
    if classes is None:
        return None
    kinds = {type(label) for label in classes}
    kind = next((name for name, known in _LABEL_KINDS.items() if kinds == {known}), None)
    if kind is None:
        raise StoreError(
            f"got class labels of kinds {sorted(k.__name__ for k in kinds)}; "
            f"a store holds labels of one kind out of {', '.join(_LABEL_KINDS)}"
        )
    return {"kind": kind, "values": list(classes)}


def _statistics_to_json(statistics: ColumnStatistics | None) -> dict[str, list[float]] | None:
    if statistics is None:
        return None
    return {
        "mean": list(statistics.mean),
        "std": list(statistics.std),
        "min": list(statistics.min),
        "max": list(statistics.max),
    }
