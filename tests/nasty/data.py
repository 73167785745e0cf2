"""What a nasty data set is: seeded rows with a signal to learn, and why a fit to them goes wrong easily."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Generator = np.random.Generator
TASKS = ("regression", "classification")


@dataclass(frozen=True, eq=False)
class Rows:
    """Training and test rows, with the noiseless signal f that targets are made of.

    `noise` is its standard deviation in the targets; classes are `n_classes` ranges of signal and noise with equal
    numbers of rows. `targets` (train, test) and `codes` (train, test) take their place where they are given.
    """

    X: Any
    X_test: Any
    f: Any
    f_test: Any
    weight: Any = None
    noise: float = 0.1
    n_classes: int = 2
    targets: tuple[Any, Any] | None = None
    codes: tuple[Any, Any] | None = None


@dataclass(frozen=True, eq=False)
class Problem:
    """Training and test rows of one task. With `balanced`, classes count equally in the fit and in the error."""

    task: str
    X: Any
    y: Any
    X_test: Any
    y_test: Any
    weight: Any
    balanced: bool


@dataclass(frozen=True)
class DataSet:
    """One row of the list: `make` draws it, `why` says what makes it nasty.

    `landmarks` is how many of its rows the models of landmarks take: all of them, but for the largest.
    """

    name: str
    why: str
    make: Callable[[Generator], Rows]
    tasks: tuple[str, ...] = TASKS
    landmarks: int = 1000
    balanced: bool = False

    def problem(self, task: str) -> Problem:
        """Return the problem of `task`: the same at every call."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        rows = self.make(rng)
        y, y_test = _targets(rows, rng) if task == "regression" else _codes(rows, rng)
        return Problem(task, rows.X, y, rows.X_test, y_test, rows.weight, self.balanced)


DATA_SETS: dict[str, DataSet] = {}


def nasty(name: str, why: str, **settings: Any) -> Callable[[Callable[[Generator], Rows]], Callable[[Generator], Rows]]:
    """Enter the function that follows in the list."""

    def enter(make: Callable[[Generator], Rows]) -> Callable[[Generator], Rows]:
        assert name not in DATA_SETS
        DATA_SETS[name] = DataSet(name, why, make, **settings)
        return make

    return enter


def signal(U: Any) -> Any:
    """Return f (n,) of variance about 1 for rows (n, d) of standard normal features, d at least 3."""
    return np.sin(2 * U[:, 0]) + 0.8 * U[:, 1] * np.cos(U[:, 2])


def plain(rng: Generator, n: int = 250, d: int = 5, n_test: int = 600) -> Rows:
    """Return independent standard normal features: what every other data set spoils."""
    X, X_test = rng.standard_normal((n, d)), rng.standard_normal((n_test, d))
    return Rows(X, X_test, signal(X), signal(X_test))


def mapped(rows: Rows, change: Callable[[Any], Any]) -> Rows:
    """Return the rows with other features and the same signal."""
    return replace(rows, X=change(rows.X), X_test=change(rows.X_test))


def taken(rows: Rows, order: Any) -> Rows:
    """Return the rows with the training rows numbered `order`."""
    return replace(rows, X=rows.X[order], f=rows.f[order])


def _targets(rows: Rows, rng: Generator) -> tuple[Any, Any]:
    if rows.targets is not None:
        return rows.targets
    return _noisy(rows.f, rows.noise, rng), _noisy(rows.f_test, rows.noise, rng)


def _codes(rows: Rows, rng: Generator) -> tuple[Any, Any]:
    if rows.codes is not None:
        return rows.codes
    values, values_test = _noisy(rows.f, rows.noise, rng), _noisy(rows.f_test, rows.noise, rng)
    edges = np.quantile(values, np.arange(1, rows.n_classes) / rows.n_classes)
    return np.digitize(values, edges), np.digitize(values_test, edges)


def _noisy(f: Any, noise: float, rng: Generator) -> Any:
    return f + noise * rng.standard_normal(f.shape)
