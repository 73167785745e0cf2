"""Rows for searches, and runners and clocks that need no time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskkern import KernelClassifier, KernelRegressor
from daskkern.arrays import HostArray
from daskkern.errors import DaskkernError
from daskkern.estimators.array_inputs import array_source
from daskkern.model_selection.running import DrawnSample, LocalRunner
from daskkern.model_selection.samples import SearchSample
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.settings import FitSettings


def classes_by_one_feature(n: int = 240, d: int = 6, seed: int = 0) -> tuple[HostArray, HostArray]:
    """Return rows whose three classes depend on two of the features, in units of their own."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.digitize(X[:, 1] + X[:, 2] ** 2, [0.3, 1.2])
    return X * 10.0 ** np.arange(d), y


def class_source(n: int = 240, seed: int = 0) -> ArraySource:
    X, y = classes_by_one_feature(n, seed=seed)
    return array_source(X, y.astype(np.int64), None, np.arange(3))


def number_source(n: int = 240, seed: int = 0) -> ArraySource:
    X, _ = classes_by_one_feature(n, seed=seed)
    y = np.sin(3 * X[:, 1] / 10) + X[:, 2] / 100
    return array_source(X, 5 + 100 * y, None, None)


def usual(source: ArraySource, **parameters: Any) -> FitSettings:
    """Return the settings of the defaults for a source."""
    plain = KernelRegressor if source.info.task == "regression" else KernelClassifier
    return plain(device="cpu", **parameters).fit_settings(source.info.n_rows)


@dataclass
class FakeClock:
    """A clock that stands still until it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, eq=False)
class TimedRunner(LocalRunner):
    """Runs trials here, one after the other, each of which takes so many seconds of a clock; it records their names."""

    clock: FakeClock
    seconds: Callable[[str], float]
    ran: list[str] = field(default_factory=list)

    def run(
        self,
        trial: Callable[[Any, SearchSample, Any], Any],
        candidates: Sequence[Any],
        drawn: DrawnSample,
        folds: Any,
        allowed: Callable[[], bool],
        *,
        together: bool = False,
    ) -> Iterator[tuple[int, Any | DaskkernError]]:
        for number, found in super().run(trial, candidates, drawn, folds, allowed):
            self.clock.now += self.seconds(candidates[number].name)
            self.ran.append(candidates[number].name)
            yield number, found
