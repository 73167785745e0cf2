"""Data sets whose features are nasty: scales, offsets, tails, constants, dependence, length."""

from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from tests.nasty.data import Generator, Rows, mapped, nasty, plain, signal


@nasty("plain", "nothing: independent standard normal features, for comparison")
def _plain(rng: Generator) -> Rows:
    return plain(rng)


def _one_times(factor: float, name: str) -> None:
    @nasty(name, f"one feature is multiplied by {factor:g}")
    def _scaled(rng: Generator) -> Rows:
        return mapped(plain(rng), lambda X: X * np.array([factor, 1, 1, 1, 1]))


_one_times(1e-6, "feature times 1e-6")
_one_times(1e-3, "feature times 1e-3")
_one_times(1e3, "feature times 1e3")
_one_times(1e6, "feature times 1e6")


@nasty("all features times 1e-6", "distances are near 0, and squares of them below the rounding of float32")
def _tiny(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: X * 1e-6)


@nasty("all features times 1e6", "squared distances are 1e13")
def _huge(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: X * 1e6)


@nasty("each feature another scale", "five features of scales 1e-6, 1e-3, 1, 1e3 and 1e6")
def _scales(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: X * 10.0 ** np.array([0, 3, -3, 6, -6]))


@nasty("offset 1e3", "all features have mean 1000 and spread 1")
def _offset_3(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: X + 1e3)


@nasty("offset 1e6", "all features have mean 1e6 and spread 1: float32 keeps one digit of the differences")
def _offset_6(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: X + 1e6)


@nasty("one offset 1e6", "one feature has mean 1e6 and spread 1, as a time stamp has")
def _one_offset(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: X + np.array([0, 0, 0, 0, 1e6]))


@nasty("constant columns", "five informative features beside five constant ones, 0 and 1e4 among them")
def _constant(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: np.hstack([X, np.tile([0.0, 1, -1, 1e4, 1e-4], (len(X), 1))]))


@nasty("nearly constant column", "a sixth feature is 0 but for one row of 1e4")
def _nearly_constant(rng: Generator) -> Rows:
    rows = mapped(plain(rng), lambda X: np.hstack([X, np.zeros((len(X), 1))]))
    rows.X[7, 5] = 1e4
    return rows


@nasty("copied columns", "every feature occurs four times")
def _copied(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: np.tile(X, 4))


@nasty("one direction", "ten features that are one but for noise of 1e-3")
def _collinear(rng: Generator) -> Rows:
    rows = plain(rng)
    return mapped(rows, lambda X: np.hstack([X[:, :3], X[:, :1] + 1e-3 * rng.standard_normal((len(X), 9))]))


@nasty("one feature", "d = 1")
def _one(rng: Generator) -> Rows:
    X, X_test = rng.standard_normal((250, 1)), rng.standard_normal((600, 1))
    return Rows(X, X_test, np.sin(3 * X[:, 0]), np.sin(3 * X_test[:, 0]))


@nasty("long rows", "2,000 features, of which 3 matter a little more, for 200 rows")
def _long(rng: Generator) -> Rows:
    scale = np.r_[np.full(3, 12.0), np.full(1997, 0.5)]
    return mapped(plain(rng, 200, 2000), lambda X: X * scale)


@nasty("some long rows", "one row in twenty is 100 times as long as the others")
def _some_long(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: X * np.where(np.arange(len(X)) % 20 == 0, 100.0, 1.0)[:, None])


@nasty("one row far off", "one row lies at 1e8, the others around 0")
def _far_row(rng: Generator) -> Rows:
    rows = plain(rng)
    rows.X[3] = 1e8
    return rows


@nasty("Cauchy tails", "features of a Cauchy distribution: some are 1e4")
def _cauchy(rng: Generator) -> Rows:
    # The quantiles of a Cauchy distribution, at those of the normal one.
    return mapped(plain(rng), lambda X: np.tan(np.pi * (ndtr(X) - 0.5)))


@nasty("lognormal features", "features exp(2 u): skewed, from 1e-3 to 1e3")
def _lognormal(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: np.exp(2 * X))


@nasty("two-valued features", "twenty features of 0 and 1, a few of them seldom 1")
def _binary(rng: Generator) -> Rows:
    share = np.r_[np.full(15, 0.5), np.full(5, 0.01)]
    X, X_test = ((rng.random((n, 20)) < share) * 1.0 for n in (250, 600))
    f, f_test = (U[:, 0] + U[:, 1] * U[:, 2] - U[:, 3] for U in (X, X_test))
    return Rows(X, X_test, f, f_test)


@nasty("counts", "whole numbers with a long tail, most of them 0, unscaled")
def _counts(rng: Generator) -> Rows:
    rows = mapped(plain(rng), lambda X: np.floor(np.exp(1.5 * X)))
    return replace(rows, f=signal(np.log1p(rows.X)), f_test=signal(np.log1p(rows.X_test)))


@nasty("near-singular kernel", "rows on a grid of 1e-3 around five points: a kernel matrix of numerical rank 5")
def _near_singular(rng: Generator) -> Rows:
    centres = rng.standard_normal((5, 5)) * 2

    def around(n: int) -> np.ndarray:
        return centres[rng.integers(5, size=n)] + np.round(1e-3 * rng.standard_normal((n, 5)), 3)

    X, X_test = around(250), around(600)
    return Rows(X, X_test, signal(X), signal(X_test))


@nasty("tiny differences", "rows differ by 1e-5 around a point of norm 10, and the signal is in the differences")
def _tiny_differences(rng: Generator) -> Rows:
    return mapped(plain(rng), lambda X: 1e-5 * X + 4.0)
