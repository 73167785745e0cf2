"""Tables in files and the columns to read: the Python form of ``daskkern fit LAKE --target``."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from daskkern.data.remote.stores import public
from daskkern.data.schema.encoding import check_choices
from daskkern.errors import DataError


@dataclass(frozen=True)
class TableFiles:
    """A table in files, which a fit reads in place, and what is read of it.

    ``KernelRegressor().fit(TableFiles("lake/", where="day < 90"), target="y")``. Nothing is read, copied or checked on
    disk before the fit. Also accepted as ``validation=`` of such a fit, whose columns and encoding it then gets.

    Parameters
    ----------
    place : path or URL
        Parquet, Arrow, ORC or JSON lines: a file, a folder, a pattern; Delta Lake, Iceberg. See ``docs/sources.md``.
    columns : sequence of str
        The columns that are features; all others than target and weight if empty. Others are not read.
    where : str or None
        Of Parquet: only rows that pass this filter, such as ``"day >= 3 and region in ('north', 'south')"``. Folders
        and row groups without such rows are not read.
    categorical : "auto", "refuse", "onehot", "ordinal" or "codes"
        How columns of text become features.
    missing : "auto", "refuse", "mean", "most_frequent" or "constant"
        What missing values become. Both choices as in :func:`daskkern.ingest`.

    Raises
    ------
    DataError
        For columns that are not names.
    SpecError
        For unknown choices.
    """

    place: str | os.PathLike[str]
    columns: Sequence[str] = ()
    where: str | None = None
    categorical: str = "auto"
    missing: str = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.place, str | os.PathLike):
            raise DataError(f"got place of type {type(self.place).__name__}; expected a path, a pattern or a URL")
        names = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns or ())
        if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise DataError(f"got columns={self.columns!r}; give different names of columns")
        check_choices(self.categorical, self.missing)
        object.__setattr__(self, "columns", names)

    def __repr__(self) -> str:
        place = repr(public(os.fspath(self.place)))
        usual = {"columns": (), "where": None, "categorical": "auto", "missing": "auto"}
        given = [f"{name}={getattr(self, name)!r}" for name, value in usual.items() if getattr(self, name) != value]
        return f"TableFiles({', '.join([place, *given])})"
