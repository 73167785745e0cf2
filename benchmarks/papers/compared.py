"""Rows of the papers that compare: orders of rows, costs of errors, and another program on the same rows."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
from contest.data import Data
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from daskkern import KernelClassifier
from daskkern.losses import parse_loss
from daskkern.solvers import SGD, SVRG
from papers.form import PaperRow, points_of

ORDERS = ("independent", "fixed", "fresh")
"""The order of the rows: drawn from all of them, one permutation, another one in every epoch."""
SEEDS = 3


def row_orders(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return how far the objective of linear support vectors is above the least one after so many epochs.

    The medians of :data:`SEEDS` seeds, for each order. The least objective is that of scikit-learn's LinearSVC, with
    the constant feature that the linear basis has.
    """
    epochs = [2**k for k in range(row.n_epochs.bit_length())]
    phi = np.column_stack([data.X, np.ones(len(data.X))]).astype(np.float64)
    signs = np.where(data.y == np.unique(data.y)[1], 1.0, -1.0)

    def objective(w: np.ndarray) -> float:
        return float(np.maximum(0, 1 - signs * (phi @ w)).mean() + row.alpha / 2 * (w @ w))

    exact = LinearSVC(
        C=1 / (row.alpha * len(phi)), loss="hinge", fit_intercept=False, tol=1e-6, max_iter=1_000_000, random_state=0
    ).fit(phi, signs)
    least = objective(exact.coef_[0])
    gaps: dict[str, list[float]] = {}
    for order in ORDERS:
        runs = [
            [objective(_weights(replace(row, n_epochs=count), data, order, seed)) for count in epochs]
            for seed in range(SEEDS)
        ]
        gaps[order] = [float(f"{value:.4g}") for value in np.median(runs, axis=0) - least]
    return {"n_epochs_each": epochs, "least_loss": least, **{f"{order}_gap_loss": gaps[order] for order in ORDERS}}


def finite_sums(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return how far the objective of a linear logistic regression is above the least one after so many epochs.

    With stochastic average gradients, stochastic gradients of one row a step, and full gradients. The least objective
    is that of scikit-learn's LogisticRegression, with the constant feature that the linear basis has.
    """
    epochs = [2**k for k in range(row.n_epochs.bit_length())]
    phi = np.column_stack([data.X, np.ones(len(data.X))]).astype(np.float64)
    signs = np.where(data.y == np.unique(data.y)[1], 1.0, -1.0)

    def objective(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -signs * (phi @ w)).mean() + row.alpha / 2 * (w @ w))

    exact = LogisticRegression(C=1 / (row.alpha * len(phi)), fit_intercept=False, solver="newton-cholesky", tol=1e-10)
    least = objective(exact.fit(phi, signs).coef_[0])
    curves = {
        f"{name}, excess loss": [
            objective(_weights(replace(each, n_epochs=count), data, "uniform", 0)) - least for count in epochs
        ]
        for name, each in _finite_sum_rows(row, len(phi)).items()
    }
    return points_of(epochs, curves)


def _finite_sum_rows(row: PaperRow, n_rows: int) -> dict[str, PaperRow]:
    """Return a row for each method, by its name."""
    constant = SGD("constant", averaging=0.0)
    return {
        "SAG of steps 1 / (16 L)": row,
        "SAG with line search": replace(row, solver=replace(row.solver, steps="line_search")),
        "SVRG": replace(row, solver=SVRG()),
        "SGD of constant steps": replace(row, solver=constant, batch_size=1),
        "SGD of steps theta / t": replace(row, solver=SGD("inverse", averaging=0.0), batch_size=1),
        "gradient descent": replace(row, solver=constant, batch_size=n_rows),
    }


def _weights(row: PaperRow, data: Data, order: str, seed: int) -> np.ndarray:
    """Return the weights of the features, and that of the constant one."""
    model = row.estimator(data, scale=None, sampling=order, random_state=seed, calibrate=False).fit(data.X, data.y)
    assert isinstance(model, KernelClassifier)
    return np.asarray(model.dual_coef_, np.float64)[:, 0]


def beside_peer(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return the error and the time of our fit, and those of another program's on the same rows."""
    assert row.peer is not None
    if row.unit_range:  # test rows may lie a little outside the range of the training rows
        data = replace(data, X_test=np.clip(data.X_test, 0, 1))
    found: dict[str, Any] = {"peer": row.peer_name}
    for name, estimator in (("our", row.estimator(data, scale=None, calibrate=False)), ("peer", row.peer(data))):
        begun = time.process_time()
        model = estimator.fit(data.X, data.y)
        found[f"{name}_seconds"] = round(time.process_time() - begun, 2)
        found[f"{name}_error"] = data.error(model.predict(data.X_test))
        found[f"n_{name}_support_vectors"] = len(model.support_ if name == "peer" else model.dual_coef_)
    return found


def costs_of_errors(row: PaperRow, data: Data) -> dict[str, Any]:
    """Return the mean costs of a fit without costs, with them, and of the classes that are cheapest by the first one.

    That is, by the probabilities of the fit without.
    """
    loss = parse_loss(row.loss)
    costs = np.array(loss.costs)
    models = [replace(row, loss=each).estimator(data).fit(data.X, data.y) for each in (loss.name, row.loss)]
    plain, costly = (np.asarray(model.predict(data.X_test)) for model in models)
    cheapest = (models[0].predict_proba(data.X_test) @ costs).argmin(axis=1)
    found = {"plain": plain, "our": costly, "cheapest": cheapest}
    mean = {f"{name}_cost": round(float(costs[data.y_test, codes].mean()), 4) for name, codes in found.items()}
    return {**mean, "plain_error": data.error(plain), "our_error": data.error(costly)}
