"""What rows must have in common with others that came before: with a store, or with the rows of a model."""

from dataclasses import dataclass

from daskkern.data.schema.column_statistics import Scaling
from daskkern.data.schema.encoding import Encoding
from daskkern.data.schema.schema import ClassLabel, StoreInfo, Task


@dataclass(frozen=True)
class TableSchema:
    """Columns, encoding, scaling and targets that rows get.

    Attributes
    ----------
    n_features : int
    feature_names, target_names : tuple of str or None
    encoding : tuple of ColumnEncoding or None
        How the columns of the source become features; None for as they are.
    scaling : Scaling
        To be recorded.
    task : "classification", "regression" or None
    n_targets : int
    classes : tuple or None
        Labels by code.
    """

    n_features: int
    feature_names: tuple[str, ...] | None
    target_names: tuple[str, ...] | None
    encoding: Encoding | None
    scaling: Scaling
    task: Task | None
    n_targets: int
    classes: tuple[ClassLabel, ...] | None

    @classmethod
    def of(cls, info: StoreInfo) -> "TableSchema":
        """Return what rows must have to be like those of a store."""
        return cls(
            info.n_features,
            info.feature_names,
            info.target_names,
            info.encoding,
            info.scaling,
            info.task,
            info.n_targets,
            info.classes,
        )
