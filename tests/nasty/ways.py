"""The ways of fitting: every solver with settings that are written out, and the estimators with none."""

from collections.abc import Iterator
from dataclasses import dataclass

from daskkern.basis import AllRows, BasisSpec, DoublyStochastic, Landmarks, LocalRows, NystromFeatures
from tests.nasty import features, rows, targets  # noqa: F401 - they enter the data sets
from tests.nasty.data import DATA_SETS, TASKS

EPOCHS = 20


@dataclass(frozen=True)
class Method:
    """A solver by its name, and what it is for: its function space, its loss for classes, its epochs."""

    solver: str
    space: str
    loss: str = "squared_hinge"
    epochs: int = EPOCHS

    def basis(self, n: int) -> BasisSpec:
        """Return the function space; models of landmarks have `n` of them."""
        if self.space == "all rows":
            return AllRows()
        if self.space == "local rows":
            return LocalRows(max(10, n))
        if self.space == "doubly stochastic":
            return DoublyStochastic()
        return NystromFeatures(n) if self.space == "nystrom features" else Landmarks(n)


METHODS = {
    name: Method(name, space, *more)
    for name, space, *more in (
        ("auto", "landmarks"),
        ("eigenpro", "all rows"),
        ("nystrom_sgd", "landmarks"),
        ("falkon", "landmarks"),
        ("nytro", "landmarks"),
        ("direct", "landmarks", "squared"),
        ("pcg", "all rows", "squared"),
        ("block_cd", "all rows", "squared"),
        ("askotch", "all rows", "squared"),
        ("local_ridge", "local rows", "squared"),
        ("sgd", "nystrom features"),
        ("adagrad", "nystrom features"),
        ("coordinate_descent", "nystrom features"),
        ("sdca", "nystrom features"),
        ("svm", "all rows", "hinge"),
        ("miso", "nystrom features"),
        ("pegasos", "nystrom features"),
        ("norma", "all rows"),
        ("sag", "nystrom features"),
        ("svrg", "nystrom features"),
        ("preconditioned_svrg", "nystrom features"),
        ("s2gd", "nystrom features"),
        ("sarah", "nystrom features"),
        ("mixed_gradient", "nystrom features"),
        ("bsgd", "landmarks"),
        ("doubly_sgd", "doubly stochastic"),
        ("amm", "nystrom features", "multiclass_hinge"),
    )
}

WAYS = {
    "written out": "the Laplacian kernel of the median distance, alpha = 1e-3 and 20 epochs",
    "defaults": "`KernelRegressor()` and `KernelClassifier()` without any argument",
    "alpha 0": "the Gaussian kernel of the median distance, alpha = 0 and 20 epochs",
    "polynomial": "the polynomial kernel of degree 2, alpha = 1e-3 and 20 epochs",
}
_SOME_DATA = (
    "plain", "offset 1e6", "feature times 1e6", "constant columns", "long rows", "one row far off", "5 rows",
    "duplicate rows", "heavy weights", "sorted clusters", "near-singular kernel", "targets times 1e12", "label noise",
)  # fmt: skip
_FOR_ALPHA_0 = ("auto", "eigenpro", "nystrom_sgd", "falkon", "nytro", "direct", "pcg", "sgd", "sag", "adagrad")
_FOR_POLYNOMIAL = ("auto", "eigenpro", "nystrom_sgd", "falkon", "direct", "pcg", "sgd", "sdca", "askotch")


@dataclass(frozen=True)
class Case:
    """One fit."""

    way: str
    data: str
    task: str
    method: str

    @property
    def key(self) -> str:
        """The name of the case, as one line."""
        return f"{self.way} / {self.data} / {self.task} / {self.method}"


def cases() -> Iterator[Case]:
    """Yield all cases, the defaults first."""
    for way in ("defaults", "written out", "alpha 0", "polynomial"):
        for data in (
            DATA_SETS.values() if way in ("defaults", "written out") else map(DATA_SETS.__getitem__, _SOME_DATA)
        ):
            for task in TASKS:
                if task in data.tasks:
                    yield from (Case(way, data.name, task, method) for method in _methods(way, task))


def _methods(way: str, task: str) -> tuple[str, ...]:
    every = {"defaults": ("auto",), "alpha 0": _FOR_ALPHA_0, "polynomial": _FOR_POLYNOMIAL}.get(way, tuple(METHODS))
    return tuple(name for name in every if task == "classification" or name != "amm")
