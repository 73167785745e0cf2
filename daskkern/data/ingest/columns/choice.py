"""The choice of features, targets and weight among named columns of a table."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from daskkern.data.ingest.readers.tables import Request
from daskkern.data.schema.table_schema import TableSchema
from daskkern.errors import DataError

_SHOWN = 12  # column names shown in a message
_INDEX = re.compile(r"|Unnamed: \d+(\.\d+)?")
"""Names of an index in text: that of pandas and R, and that of pandas when it has read such a table."""


@dataclass(frozen=True)
class ColumnRoles:
    """Columns by role, features in the order of the file."""

    features: tuple[str, ...]
    targets: tuple[str, ...]
    weight: str | None
    kept: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        """Return every column to read, features first."""
        roles = (*self.features, *self.targets, *([self.weight] if self.weight else []))
        return list(dict.fromkeys((*roles, *self.kept)))

    @property
    def only_kept(self) -> tuple[str, ...]:
        """The columns that are kept and not used otherwise."""
        return tuple(name for name in self.kept if name not in (*self.features, *self.targets, self.weight))


def choose_columns(names: Sequence[str], request: Request, source: str, left_out: Sequence[str] = ()) -> ColumnRoles:
    """Assign the columns of `source` to their roles. Those `left_out` are not features.

    Raises
    ------
    DataError
        When no target was named, a named column is missing, or no column is left as a feature.
    """
    twice = sorted({name for name in names if list(names).count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"{source} has more than one column named {twice[0]!r}; give every column a name of its own")
    for name in request.keep:
        if name not in names:
            raise DataError(f"{source} has no column {name!r} to keep{_meant(name, names, source)}")
    if request.like is not None:
        return _choose_like(names, request, request.like, source)
    if request.columns is not None:
        names = _named(names, request, request.columns, source)
    if request.target is None:
        raise DataError(f"which column of {source} is the target? Pass --target NAME; the columns are {_listed(names)}")
    roles = [*request.target, *request.drop, *([request.weight] if request.weight else [])]
    for name in roles:
        if name not in names:
            raise DataError(f"{source} has no column {name!r}{_meant(name, names, source)}")
        if roles.count(name) > 1:
            raise DataError(
                f"column {name!r} was named more than once among --target, --weight and --drop; name it once"
            )
    features = tuple(name for name in names if name not in (*roles, *left_out))
    if not features:
        raise DataError(f"no column of {source} is left as a feature; drop fewer columns")
    return ColumnRoles(features, request.target, request.weight, request.keep)


def written_indexes(names: Sequence[str], request: Request) -> tuple[str, ...]:
    """Return the index columns of a text table, such as the row numbers that pandas writes, except requested ones.

    They are its first columns. Raises DataError for another column without a name.
    """
    if request.like is not None or request.columns is not None:
        return ()
    found = list(takewhile(lambda name: _INDEX.fullmatch(name.strip()), names))
    for number, name in enumerate(names):
        if number >= len(found) and not name.strip():
            raise DataError(f"column {number} (counted from 0) has no name in the first line; give it one")
    wanted = (*(request.target or ()), request.weight, *request.drop)
    return tuple(name for name in found if name not in wanted)


def note_on_indexes(found: Sequence[str]) -> tuple[str, ...]:
    """Return notes for the user on the columns of :func:`written_indexes`; none without any."""
    if not found:
        return ()
    shown = ", ".join(f"column {name!r}" if name.strip() else "the column without a name" for name in found)
    return (f"{shown} left out: the index that pandas or R wrote",)


def _named(names: Sequence[str], request: Request, columns: Sequence[str], source: str) -> list[str]:
    """Return the columns that were named as features, with the targets and the weight."""
    for name in columns:
        if name not in names:
            raise DataError(f"{source} has no column {name!r}{_meant(name, names, source)}")
    return [name for name in names if name in (*columns, *(request.target or ()), request.weight, *request.drop)]


def source_columns(like: TableSchema) -> tuple[str, ...]:
    """Return the columns of the source that a store was made from; empty when they had no names."""
    if like.encoding is not None:
        return tuple(column.name for column in like.encoding)
    return like.feature_names or ()


def _choose_like(names: Sequence[str], request: Request, like: TableSchema, source: str) -> ColumnRoles:
    """Return the columns by the roles that they had for another store; other columns are left out."""
    features = source_columns(like)
    if not features:
        raise DataError(
            f"the training rows had no column names, so the columns of {source} cannot be matched to theirs; give an "
            "array (.npy, .npz) of the same columns instead"
        )
    target = request.target
    if target is None:
        known = like.target_names or ()
        target = known if set(known) <= set(names) else ()
    for name, why in (
        *((name, ", which the training rows had") for name in (*features, *target)),
        (request.weight, ""),
    ):
        if name is not None and name not in names:
            raise DataError(f"{source} has no column {name!r}{why}{_meant(name, names, source)}")
    return ColumnRoles(features, target, request.weight, request.keep)


def check_same_columns(first: Sequence[str], names: Sequence[str], source: str, first_source: str) -> None:
    """Raise DataError unless both files have the same columns, in whatever order."""
    missing, extra = sorted(set(first) - set(names)), sorted(set(names) - set(first))
    if missing or extra:
        found = [f"lacks {_listed(missing)}"] * bool(missing) + [f"also has {_listed(extra)}"] * bool(extra)
        raise DataError(
            f"the columns of {source} differ from those of {first_source}: it {' and '.join(found)}; "
            "make the columns the same, or ingest the files separately"
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more


def _meant(name: str, names: Sequence[str], source: str) -> str:
    if f"/{name}=" in f"/{source}":
        return (
            f"; the folders in this path have it in their names: give the folder above '{name}=...', or a pattern of it"
        )
    by_lower = {known.lower().strip(): known for known in names}
    close = [by_lower[key] for key in difflib.get_close_matches(name.lower().strip(), by_lower, n=3)]
    if close:
        return f"; did you mean {' or '.join(repr(match) for match in close)}?"
    return f"; the columns are {_listed(names)}"
