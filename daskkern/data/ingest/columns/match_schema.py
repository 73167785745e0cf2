"""Rows that must fit a store that exists: a test table beside its training store."""

import os
from collections.abc import Sequence

from daskkern.data.ingest.columns.targets import Decision
from daskkern.data.ingest.readers.tables import Table
from daskkern.data.schema.table_schema import TableSchema
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError, SpecError


def like_of(
    like: str | os.PathLike[str] | TableSchema, scale: str, categorical: str, missing: str, drop: Sequence[str]
) -> TableSchema:
    """Return what rows must have to be like a store, after checking that nothing else was asked that it decides."""
    path = "the model" if isinstance(like, TableSchema) else os.fspath(like)
    for option, asked, default in (
        ("scale", scale, "none"),
        ("categorical", categorical, "auto"),
        ("missing", missing, "auto"),
    ):
        if asked != default:
            raise SpecError(
                f"--{option} {asked} was asked beside --like, which takes it from {path}; leave one of them out"
            )
    if drop:
        raise SpecError(
            "--drop was given beside --like, which takes exactly the columns of its store; leave out --drop"
        )
    return like if isinstance(like, TableSchema) else TableSchema.of(open_store(like).info)


def decide_like(table: Table, like: TableSchema) -> Decision:
    """Return what the targets of `table` are: those of the store, or none. Checks that both fit together."""
    if table.n_features != like.n_features:
        raise DataError(
            f"{table.source} has {table.n_features} features, but the store to be like has {like.n_features}; give "
            "rows of the same columns"
        )
    if table.target_kind is None:
        return Decision(None, "there are no targets", guessed=False)
    if like.task is None:
        raise DataError(f"the store to be like has no targets; say so for {table.source}, too, or leave out --like")
    if table.n_targets != like.n_targets:
        raise DataError(f"{table.source} has {table.n_targets} targets, but the store to be like has {like.n_targets}")
    if like.task == "regression" and table.target_kind == "text":
        raise DataError(f"the target of {table.source} is text, but that of the store to be like is a quantity")
    return Decision(like.task, "as in the store to be like", guessed=False)
