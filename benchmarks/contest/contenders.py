"""The contenders: estimators with `fit` and `predict`, with the same kernel and ridge penalty."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge, RidgeClassifier, SGDClassifier, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, SVR

from contest.data import Data
from daskkern import KernelClassifier, KernelRegressor, Landmarks
from daskkern.kernels import Gaussian
from daskkern.solvers import EigenPro, Falkon, NystromSGD

ALPHA = 1e-6
"""Ridge penalty in (1/n) sum loss + (alpha/2) |f|^2, for all contenders that have one."""
N_SUBSAMPLE = 10_000


@dataclass(frozen=True)
class Contender:
    """One way to fit. `make(data, length_scale, n_landmarks)` returns an estimator; `package` is its library."""

    name: str
    make: Callable[[Data, float, int], Any]
    package: str = ""
    has_landmarks: bool = True

    @property
    def installed(self) -> bool:
        """Whether its library is installed."""
        return not self.package or importlib.util.find_spec(self.package) is not None


def _daskkern(**parameters: Any) -> Callable[[Data, float, int], Any]:
    def make(data: Data, length_scale: float, n_landmarks: int) -> Any:
        kernel, basis = Gaussian(length_scale), Landmarks(n_landmarks)
        if data.task == "regression":
            return KernelRegressor(kernel, basis=basis, **{**parameters, "loss": "squared"})
        return KernelClassifier(kernel, basis=basis, **parameters)

    return make


def _nystroem(linear: Callable[[Data], Any]) -> Callable[[Data, float, int], Any]:
    def make(data: Data, length_scale: float, n_landmarks: int) -> Any:
        features = Nystroem(gamma=gamma_of(length_scale), n_components=n_landmarks, random_state=0)
        return make_pipeline(features, linear(data))

    return make


def _ridge(data: Data) -> Any:
    penalty, centred = ALPHA * len(data.X), data.task == "regression"
    return Ridge(penalty) if centred else RidgeClassifier(penalty)


def _sgd(data: Data) -> Any:
    epochs = {"alpha": ALPHA, "average": True, "max_iter": 50, "random_state": 0}
    return SGDRegressor(**epochs) if data.task == "regression" else SGDClassifier(**epochs, n_jobs=-1)


def _libsvm(most_rows: int | None) -> Callable[[Data, float, int], Any]:
    def make(data: Data, length_scale: float, n_landmarks: int) -> Any:
        machine = SVR if data.task == "regression" else SVC
        return OnFewerRows(machine(gamma=gamma_of(length_scale), cache_size=2000), most_rows)

    return make


class OnFewerRows:
    """An estimator fitted to at most a given number of rows, drawn with seed 0."""

    def __init__(self, estimator: Any, most_rows: int | None) -> None:
        self._estimator, self._most_rows = estimator, most_rows

    def fit(self, X: Any, y: Any) -> "OnFewerRows":
        rows = np.random.default_rng(0).permutation(len(X))[: self._most_rows]
        self._estimator.fit(X[rows], y[rows])
        return self

    def predict(self, X: Any) -> Any:
        return self._estimator.predict(X)


class WithValidation:
    """xRFM with its own defaults, which needs validation rows: every fifth of its rows."""

    def __init__(self) -> None:
        from xrfm import xRFM

        self._model = xRFM(device="cpu", random_state=0, verbose=False)

    def fit(self, X: Any, y: Any) -> "WithValidation":
        held = np.arange(len(X)) % 5 == 0
        self._model.fit(X[~held], y[~held], X[held], y[held])
        return self

    def predict(self, X: Any) -> Any:
        return np.asarray(self._model.predict(X))


def _torch(way: str) -> Callable[[Data, float, int], Any]:
    def make(data: Data, length_scale: float, n_landmarks: int) -> Any:
        from contest.torch_nystrom import TorchNystrom

        return TorchNystrom(way, data.task, length_scale, n_landmarks, ALPHA)

    return make


def gamma_of(length_scale: float) -> float:
    """Return scikit-learn's gamma, of exp(-gamma |x - z|^2)."""
    return 1 / (2 * length_scale**2)


CONTENDERS = (
    Contender("daskkern auto", _daskkern()),
    Contender("daskkern EigenPro, squared", _daskkern(solver=EigenPro(), loss="squared")),
    Contender("daskkern Falkon", _daskkern(solver=Falkon(), loss="squared", alpha=ALPHA, max_epochs=20)),
    Contender("daskkern NystromSGD", _daskkern(solver=NystromSGD())),
    Contender("scikit-learn Nystroem + Ridge", _nystroem(_ridge)),
    Contender("scikit-learn Nystroem + SGD", _nystroem(_sgd)),
    Contender("libsvm, all rows", _libsvm(None), has_landmarks=False),
    Contender("libsvm, 10,000 rows", _libsvm(N_SUBSAMPLE), has_landmarks=False),
    Contender("xRFM", lambda data, length_scale, n_landmarks: WithValidation(), "xrfm", has_landmarks=False),
    Contender("torch Nystrom + Cholesky", _torch("cholesky"), "torch"),
    Contender("torch Nystrom + Adam", _torch("adam"), "torch"),
)
"""In the order of tables. libsvm is scikit-learn's SVC or SVR, with C = 1."""
