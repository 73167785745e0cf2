"""The schema that new rows must share with earlier ones: with a store, or with the training rows of a model."""

from dataclasses import dataclass

from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.encoding import Encoding
from daskkern.data.schema.schema import ClassLabel, StoreInfo, Task


@dataclass(frozen=True)
class TableSchema:
    """Columns, encoding, scaling and targets of rows.

    Attributes
    ----------
    n_features : int
    feature_names, target_names : tuple of str or None
    encoding : tuple of ColumnEncoding or None
        How the columns of the source become features; None leaves them unchanged.
    scaling : Scaling
        The scaling to record.
    task : "classification", "regression" or None
    n_targets : int
    classes : tuple or None
        Labels by code.
    index_base : int or None
        The number of the first feature in SVMLight files; None where it is unknown.
    """

    n_features: int
    feature_names: tuple[str, ...] | None
    target_names: tuple[str, ...] | None
    encoding: Encoding | None
    scaling: Scaling
    task: Task | None
    n_targets: int
    classes: tuple[ClassLabel, ...] | None
    index_base: int | None = None

    @classmethod
    def of(cls, info: StoreInfo) -> "TableSchema":
        """Return the schema of the rows of a store."""
        return cls(
            info.n_features,
            info.feature_names,
            info.target_names,
            info.encoding,
            info.scaling,
            info.task,
            info.n_targets,
            info.classes,
            info.index_base,
        )
