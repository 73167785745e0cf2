"""Checks that rows match the schema of an existing store, for example test rows that of the training store."""

import os
from collections.abc import Sequence

from daskkern.data.ingest.columns.targets import Decision
from daskkern.data.ingest.readers.tables import Table
from daskkern.data.schema.table_schema import TableSchema
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError, SpecError


def like_of(
    like: str | os.PathLike[str] | TableSchema,
    scale: str,
    categorical: str,
    missing: str,
    drop: Sequence[str],
    columns: Sequence[str] | None = None,
) -> TableSchema:
    """Return the schema that rows must match, after checking that no option was given that it determines."""
    path = "the model" if isinstance(like, TableSchema) else os.fspath(like)
    for option, value, default in (
        ("scale", scale, "none"),
        ("categorical", categorical, "auto"),
        ("missing", missing, "auto"),
    ):
        if value != default:
            raise SpecError(
                f"got --{option} {value} together with --like, which takes it from {path}; leave one of them out"
            )
    for option, names in (("--drop", drop), ("--columns", columns)):
        if names:
            raise SpecError(
                f"got {option} together with --like, which takes exactly the columns of its store; leave out {option}"
            )
    return like if isinstance(like, TableSchema) else TableSchema.of(open_store(like).info)


def decide_like(table: Table, like: TableSchema) -> Decision:
    """Return the kind of the targets of `table`, that of the store or none, after checking that both match."""
    if table.n_features != like.n_features:
        raise DataError(
            f"{table.source} has {table.n_features} features, but the training rows had {like.n_features}; give "
            "rows of the same columns"
        )
    if table.target_kind is None:
        return Decision(None, "there are no targets", guessed=False)
    if like.task is None:
        raise DataError(f"the --like store has no targets; read {table.source} without targets, or leave out --like")
    if table.n_targets != like.n_targets:
        raise DataError(f"{table.source} has {table.n_targets} targets, but the --like store has {like.n_targets}")
    if like.task == "regression" and table.target_kind == "text":
        raise DataError(f"the target of {table.source} is text, but the training rows had a quantity")
    return Decision(like.task, "as in the --like store", guessed=False)
