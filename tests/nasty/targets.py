"""Data sets whose targets are nasty: scales, offsets, tails, noise, many classes, few positives."""

from dataclasses import replace

import numpy as np

from tests.nasty.data import Generator, Rows, nasty, plain

_REGRESSION = ("regression",)
_CLASSIFICATION = ("classification",)


def _numbers(name: str, why: str, change: object) -> None:
    @nasty(name, why, tasks=_REGRESSION)
    def _changed(rng: Generator) -> Rows:
        rows = plain(rng)
        noisy = (f + 0.1 * rng.standard_normal(f.shape) for f in (rows.f, rows.f_test))
        train, test = (change(y, rng) for y in noisy)  # type: ignore[operator]
        return replace(rows, targets=(train, test))


def _one_outlier(y: np.ndarray, rng: Generator) -> np.ndarray:
    return np.where((np.arange(len(y)) == 5) & (len(y) == 250), 1e4, y)


_numbers("targets times 1e12", "targets of 1e12", lambda y, rng: y * 1e12)
_numbers("targets times 1e-12", "targets of 1e-12", lambda y, rng: y * 1e-12)
_numbers("targets plus 1e6", "targets of mean 1e6 and spread 1", lambda y, rng: y + 1e6)
_numbers("Cauchy noise", "noise without a variance", lambda y, rng: y + 0.1 * rng.standard_cauchy(y.shape))
_numbers("one outlier", "one training target is 1e4", _one_outlier)
_numbers("lognormal targets", "targets exp(2 y)", lambda y, rng: np.exp(2 * y))
_numbers("mostly 0", "nine targets in ten are 0", lambda y, rng: np.where(y > 1.2, y, 0.0))
_numbers("constant target", "all targets are 3", lambda y, rng: np.full(y.shape, 3.0))
_numbers(
    "two targets of unequal scale", "one target of 1, one of 1e6", lambda y, rng: np.stack([y, 1e6 * y**2], axis=1)
)


@nasty("noise only", "targets do not depend on the features")
def _noise(rng: Generator) -> Rows:
    rows = plain(rng)
    return replace(rows, f=0 * rows.f, f_test=0 * rows.f_test, noise=1.0)


@nasty("noise three times the signal", "noise of standard deviation 3")
def _noisy(rng: Generator) -> Rows:
    return replace(plain(rng), noise=3.0)


@nasty("label noise", "three labels in ten are wrong, in the test rows as well", tasks=_CLASSIFICATION)
def _labels(rng: Generator) -> Rows:
    rows = plain(rng)
    codes = [((f > 0) ^ (rng.random(f.shape) < 0.3)).astype(np.int64) for f in (rows.f, rows.f_test)]
    return replace(rows, codes=(codes[0], codes[1]))


@nasty("4 positives of 20,000", "one class has four rows", tasks=_CLASSIFICATION, landmarks=400, balanced=True)
def _rare(rng: Generator) -> Rows:
    rows = plain(rng, 20_000, n_test=4000)
    codes, test = np.zeros(20_000, np.int64), np.zeros(4000, np.int64)
    codes[[17, 5000, 12_000, 19_999]] = 1
    test[:400] = 1
    rows.X[codes == 1] += 2.5
    rows.X_test[test == 1] += 2.5
    return replace(rows, codes=(codes, test))


@nasty("one in a hundred", "one row in a hundred is positive", tasks=_CLASSIFICATION, balanced=True)
def _imbalanced(rng: Generator) -> Rows:
    rows = plain(rng, 600)
    codes, test = (np.arange(600) % 100 == 0).astype(np.int64), (np.arange(600) % 3 == 0).astype(np.int64)
    rows.X[codes == 1] += 1.5
    rows.X_test[test == 1] += 1.5
    return replace(rows, codes=(codes, test))


@nasty("1,000 classes", "two training rows for each class", tasks=_CLASSIFICATION, landmarks=2000)
def _classes(rng: Generator) -> Rows:
    return _around(rng, 1000, 2, 1)


@nasty("100 classes of unequal size", "from 1 to 40 rows a class", tasks=_CLASSIFICATION)
def _unequal(rng: Generator) -> Rows:
    return _around(rng, 100, np.r_[np.full(5, 40), np.full(25, 10), np.full(70, 3)], 6)


def _around(rng: Generator, n_classes: int, each: object, each_test: int) -> Rows:
    centres = 1.5 * rng.standard_normal((n_classes, 8))
    codes, test = np.repeat(np.arange(n_classes), each), np.repeat(np.arange(n_classes), each_test)  # type: ignore[call-overload]
    X, X_test = (centres[c] + 0.7 * rng.standard_normal((len(c), 8)) for c in (codes, test))
    return Rows(X, X_test, X[:, 0], X_test[:, 0], codes=(codes, test))


@nasty("labels of 1e15", "classes are named by numbers that float32 cannot tell apart", tasks=_CLASSIFICATION)
def _named(rng: Generator) -> Rows:
    rows = plain(rng)
    train, test = ((f > 0).astype(np.int64) + 10**15 for f in (rows.f, rows.f_test))
    return replace(rows, codes=(train, test))
