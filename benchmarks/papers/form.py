"""The record of a reproduced row of a paper's table."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from contest.data import Data, median_distance

from daskkern import KernelClassifier
from daskkern.basis import BasisSpec
from daskkern.kernels import Kernel
from daskkern.losses import parse_loss
from daskkern.solvers import Solver


@dataclass(frozen=True)
class PaperRow:
    """A row of a paper's table, and how it is run here.

    Attributes
    ----------
    key : str
        Its name in `--rows`.
    table : str
        The table with the figure: a key of :data:`papers.rows.TABLES`.
    what : str
        Method, kernel, loss, epochs and landmarks, as far as the paper states them.
    paper_data, data : str
        Their data, and the file used in its place.
    kernel : callable from data to kernel
    loss, basis, solver, alpha, n_epochs, batch_size
        Parameters of the fit.
    paper_error, paper_seconds, paper_setup_seconds, paper_epoch_seconds : float or None
        The results of the paper. Errors are shares of the test rows.
    paper_epochs : int or None
        Epochs until the error of the exact solution was reached: ours are counted, too, on held-out training rows.
    paper_loss : float or None
        Their training loss after the last epoch; ours is compared, in place of errors.
    compares_steps : bool
        Compare the steps that daskkern takes with those of the paper, for each of its kernels.
    compares_orders : bool
        Compare orders of the rows: :func:`papers.compared.row_orders`.
    curves : str
        Name of a figure or table over epochs: a key of :data:`papers.curves.CURVES`, or "".
    paper_words : str
        What the paper has, in words, where that is more than one number.
    peer : callable from data to an estimator of scikit-learn, or None
        It is fitted to the same rows, and errors and seconds of processor time are compared, in place of the paper's.
    peer_name : str
    differences : tuple of str
        Known differences, besides machine and program.
    cost : float or None
        C of a support vector machine: the penalty is then 1 / (C n) for the n rows of the fit, in place of `alpha`.
    positive : int or None
        The class that is separated from all others.
    most_rows : int or None
        Use at most this many training rows.
    intercept : bool
        Models of the hinge and its like have a constant; the papers' have none.
    unit_range : bool
        Scale features to the range from 0 to 1 of the training rows.
    takes : str
        Approximate time on two cores.
    """

    key: str
    table: str
    what: str
    paper_data: str
    data: str
    kernel: Callable[[Data], Kernel]
    loss: str
    basis: BasisSpec
    solver: Solver[Any]
    n_epochs: int
    alpha: float = 0.0
    batch_size: int | str = "auto"
    paper_error: float | None = None
    paper_seconds: float | None = None
    paper_setup_seconds: float | None = None
    paper_epoch_seconds: float | None = None
    paper_epochs: int | None = None
    paper_loss: float | None = None
    compares_steps: bool = False
    compares_orders: bool = False
    curves: str = ""
    paper_words: str = ""
    peer: Callable[[Data], Any] | None = None
    peer_name: str = ""
    differences: tuple[str, ...] = ()
    cost: float | None = None
    positive: int | None = None
    most_rows: int | None = None
    intercept: bool = True
    unit_range: bool = False
    takes: str = "1 min"

    @property
    def unit(self) -> str:
        """The compared quantity: errors, seconds, epochs, a loss, steps, orders, curves, costs or a peer's error."""
        if self.curves:
            return "curves"
        if parse_loss(self.loss).costs is not None:
            return "costs"
        if self.compares_orders or self.peer is not None:
            return "orders" if self.compares_orders else "peer"
        if self.compares_steps or self.paper_loss is not None:
            return "steps" if self.compares_steps else "loss"
        return "epochs" if self.paper_epochs else "seconds" if self.paper_setup_seconds else "error"

    def estimator(self, data: Data, **more: Any) -> KernelClassifier:
        """Return the estimator of the row."""
        return KernelClassifier(
            self.kernel(data),
            loss=self.loss,
            basis=self.basis,
            solver=self.solver,
            alpha=self.alpha if self.cost is None else 1 / (self.cost * data.X.shape[0]),
            max_epochs=self.n_epochs,
            batch_size=self.batch_size,
            **{"fit_intercept": self.intercept, "keep_blocks": "auto" if self.most_rows else "never", **more},
        )

    def of(self, data: Data) -> Data:
        """Return the data as this row needs it."""
        X, y, X_test, y_test = data.X, data.y, data.X_test, data.y_test
        if self.unit_range:
            least, most = X.min(axis=0), X.max(axis=0)
            width = np.where(most > least, most - least, 1)
            X, X_test = (X - least) / width, (X_test - least) / width
        if self.positive is not None:
            y, y_test = (np.asarray(labels == self.positive, np.int64) for labels in (y, y_test))
        if self.most_rows is not None:
            chosen = np.sort(np.random.default_rng(0).permutation(X.shape[0])[: self.most_rows])
            X, y = X[chosen], y[chosen]
        return replace(data, X=X, y=y, X_test=X_test, y_test=y_test)


def with_median(make: Callable[[float], Kernel]) -> Callable[[Data], Kernel]:
    """Return a kernel whose length scale is the median distance of the rows."""
    return lambda data: make(median_distance(data.X))


def points_of(points: list[int], values: dict[str, list[float]]) -> dict[str, Any]:
    """Return the flat record of curves: their names, and the numbers of each; a curve may end before the last point."""
    found: dict[str, Any] = {"curves": list(values), "n_epochs_each": points}
    for number, (name, each) in enumerate(values.items(), 1):
        found[f"curve_{number}_{name.split()[-1]}"] = [float(f"{value:.4g}") for value in each]
    return found
