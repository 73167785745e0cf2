"""Data sets whose rows are nasty: few, repeated, weighted, sorted, drifting, clustered."""

from dataclasses import replace

import numpy as np

from tests.nasty.data import Generator, Rows, nasty, plain, signal, taken


def _few(n: int) -> None:
    @nasty(f"{n} rows", f"n = {n}")
    def _rows(rng: Generator) -> Rows:
        rows = plain(rng, n)
        order = np.argsort(rows.f + 0.1 * rng.standard_normal(n))
        codes = np.zeros(n, np.int64)
        codes[order[n // 2 :]] = 1
        middle = rows.f[order[n // 2 - 1 : n // 2 + 1]].mean()
        return replace(rows, codes=(codes, (rows.f_test > middle).astype(np.int64)))


for _n in (2, 3, 5, 10, 20):
    _few(_n)


@nasty("duplicate rows", "every row occurs ten times, with other noise")
def _duplicates(rng: Generator) -> Rows:
    return taken(plain(rng, 40), np.repeat(np.arange(40), 10))


@nasty("contradicting duplicates", "every row occurs twice, and noise is as large as the signal")
def _contradicting(rng: Generator) -> Rows:
    return replace(taken(plain(rng, 150), np.repeat(np.arange(150), 2)), noise=1.0)


@nasty("one row many times", "half of the rows are one and the same")
def _one_row(rng: Generator) -> Rows:
    return taken(plain(rng), np.r_[np.arange(125), np.zeros(125, np.int64)])


def _weighted(name: str, why: str, weight: object) -> None:
    @nasty(name, why)
    def _weights(rng: Generator) -> Rows:
        rows = plain(rng)
        return replace(rows, weight=weight(rng, len(rows.X)))  # type: ignore[operator]


def _some(share: float, factor: float) -> object:
    return lambda rng, n: np.where(rng.random(n) < share, factor, 1.0)


_weighted("heavy weights", "one row in a hundred weighs 1,000 times as much", _some(0.01, 1e3))
_weighted("one heavy row", "one row weighs 1e6 times as much as each other", lambda rng, n: np.r_[1e6, np.ones(n - 1)])
_weighted("weights 1 and 100", "one row in ten weighs 100 times as much", _some(0.1, 100.0))
_weighted("weights of 0", "half of the rows weigh nothing", _some(0.5, 0.0))
_weighted("lognormal weights", "weights exp(2 u), from 1e-3 to 1e3", lambda rng, n: np.exp(2 * rng.standard_normal(n)))
_weighted(
    "weights of 1e12", "all weights are large, and differ by a factor of two", lambda rng, n: 1e12 * (1 + rng.random(n))
)


@nasty("sorted by target", "rows come in the order of the signal")
def _sorted(rng: Generator) -> Rows:
    rows = plain(rng)
    return taken(rows, np.argsort(rows.f))


@nasty("sorted clusters", "ten clusters far apart, one after the other, each with its own level")
def _clusters(rng: Generator) -> Rows:
    centres, levels = 10 * rng.standard_normal((10, 5)), rng.standard_normal(10)

    def around(number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        U = rng.standard_normal((len(number), 5))
        return centres[number] + U, levels[number] + 0.5 * signal(U)

    X, f = around(np.repeat(np.arange(10), 25))
    X_test, f_test = around(rng.integers(10, size=600))
    return Rows(X, X_test, f, f_test)


@nasty("unequal clusters", "a tight cluster with 19 rows in 20, and a wide one that is a third of the test rows")
def _unequal(rng: Generator) -> Rows:
    def at(share: float, n: int) -> np.ndarray:
        wide = rng.random(n) < share
        return np.where(wide[:, None], 3 + 2 * rng.standard_normal((n, 5)), 0.1 * rng.standard_normal((n, 5)))

    X, X_test = at(0.05, 250), at(0.33, 600)
    return Rows(X, X_test, signal(X), signal(X_test))


@nasty("drift", "features move from 0 to 3 in the order of the rows, and test rows follow behind the last")
def _drift(rng: Generator) -> Rows:
    rows = plain(rng)
    X = rows.X + np.linspace(0, 3, len(rows.X))[:, None]
    X_test = rows.X_test + 3.2
    return Rows(X, X_test, signal(X / 2), signal(X_test / 2))


@nasty("drifting target", "the level of the targets grows with the row number by 3 standard deviations")
def _drifting_target(rng: Generator) -> Rows:
    rows = plain(rng)
    return replace(rows, f=rows.f + np.linspace(-1.5, 1.5, len(rows.f)))


@nasty("steps", "the signal jumps at planes, and is constant elsewhere")
def _steps(rng: Generator) -> Rows:
    rows = plain(rng)
    return replace(rows, f=np.sign(rows.X[:, 0] * rows.X[:, 1]), f_test=np.sign(rows.X_test[:, 0] * rows.X_test[:, 1]))


@nasty("needles", "the signal is 0 but for one row in fifty")
def _needles(rng: Generator) -> Rows:
    rows = plain(rng)
    return replace(rows, f=(rows.X[:, 0] > 2.05) * 1.0, f_test=(rows.X_test[:, 0] > 2.05) * 1.0, noise=0.01)
