"""AMM: its steps are those of a plain loop, its pieces solve what no hyperplane can, and its models are kept whole."""

from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern import KernelClassifier, Linear, RandomFeatures
from daskkern.arrays import HostArray
from daskkern.errors import ModelError, SpecError
from daskkern.kernels import Gaussian
from daskkern.losses import MulticlassHinge
from daskkern.solvers import AMM
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, Runs, toy_source

ALPHA = 1e-2


COSTS = ((0.0, 1.0, 4.0), (0.5, 0.0, 1.0), (1.0, 2.0, 0.0))


def _fit(
    dtype: str = "float64",
    epochs: int = 2,
    solver: AMM | None = None,
    costs: tuple[tuple[float, ...], ...] | None = None,
) -> Fit:
    settings = FitSettings(
        Gaussian(2.0), MulticlassHinge(costs), Linear(), solver or AMM(3, prune=5.0), ALPHA, max_epochs=epochs,
        batch_size=25, dtype=dtype, device="cpu",
    )  # fmt: skip
    return Fit.of(toy_source(weighted=True), settings)


def _loop(fit: Fit, b: int, prune: float) -> list[HostArray]:
    """The algorithm row by row, in the columns themselves: weights (classes, b, d + 1) after each batch, and last."""
    X = np.column_stack([fit.source.X, np.ones(len(fit.source.X))])
    y, weight = fit.source.y, fit.source.weight / fit.source.weight.mean()
    W, t, after = np.zeros((3, b, X.shape[1])), 0, []
    rows = fit.source.open("float64")
    assert isinstance(fit.settings.loss, MulticlassHinge)
    delta = 1 - np.eye(3) if fit.settings.loss.costs is None else np.array(fit.settings.loss.costs)
    for epoch in range(1, fit.settings.max_epochs + 1):
        batches = [item.positions for item in _batches(rows, fit, epoch)]
        ends = set(np.cumsum([len(part) for part in batches]) + t)
        for i in np.concatenate(batches):
            t += 1
            g = W @ X[i]
            z, rest = g[y[i]].argmax(), g.copy()
            rest[y[i]] = -np.inf
            rest += delta[y[i]][:, None]
            k, j = np.unravel_index(rest.argmax(), rest.shape)
            W *= 1 - 1 / t
            if rest[k, j] > g[y[i], z]:
                W[y[i], z] += weight[i] / (ALPHA * t) * X[i]
                W[k, j] -= weight[i] / (ALPHA * t) * X[i]
            if t in ends:
                after.append(W.copy())
        norms = (W**2).sum(axis=2).ravel()
        gone = np.argsort(norms, kind="stable")
        gone = gone[np.cumsum(norms[gone]) <= (prune / (ALPHA * (t - 1))) ** 2]
        W.reshape(3 * b, -1)[gone] = 0
    return [*after, W]


def _batches(rows: object, fit: Fit, epoch: int) -> list[object]:
    from daskkern.data.rows.batches import iter_batches

    return list(iter_batches(rows, fit.prepared.plan, epoch))


@pytest.mark.parametrize(("averaging", "costs"), [(0.0, None), (0.5, None), (0.0, COSTS)])
def test_steps_are_those_of_a_plain_loop(averaging: float, costs: tuple[tuple[float, ...], ...] | None) -> None:
    fit = _fit(solver=AMM(3, prune=5.0, averaging=averaging), costs=costs)
    (result,) = fit.results(1)
    coef = np.empty_like(result.coef)
    coef[result.ids] = result.coef
    *after, W = _loop(fit, 3, 5.0)
    assert (np.abs(W).sum(axis=2) == 0).any(), "nothing was pruned"
    if averaging:
        W = np.mean(after[round(len(after) * averaging) - 1 :], axis=0)
    np.testing.assert_allclose(coef.T.reshape(W.shape), W, atol=1e-8 * np.abs(W).max())


def test_any_number_of_ranks_makes_the_same_model() -> None:
    fit = _fit()
    alone = fit.scores(fit.results(1))
    for ranks in (2, 3):
        np.testing.assert_allclose(fit.scores(fit.results(ranks)), alone, rtol=0, atol=1e-9 * np.abs(alone).max())


def test_a_run_in_parts_has_the_same_bits() -> None:
    fit = _fit(epochs=3, solver=AMM(3, prune=5.0, averaging=0.5))
    whole = fit.scores(fit.results(2))
    runs = Runs(fit)
    for until in (5, 9):
        runs.run(2, until=until)
    np.testing.assert_array_equal(runs.scores(2), whole)


@pytest.fixture(scope="module")
def crossed() -> tuple[HostArray, HostArray]:
    """Two classes of two clusters each, crosswise: a hyperplane is right for half of the rows."""
    rng = np.random.default_rng(0)
    corner = rng.integers(0, 2, (800, 2))
    X = (2 * corner - 1) * 2 + 0.5 * rng.standard_normal((800, 2))
    return X.astype(np.float32), np.array(["even", "odd"])[corner.sum(axis=1) % 2]


@pytest.mark.parametrize("basis", [Linear(), RandomFeatures(100)], ids=["linear", "random features"])
def test_pieces_solve_what_no_hyperplane_can(
    basis: Linear | RandomFeatures, crossed: tuple[HostArray, HostArray], tmp_path: Path
) -> None:
    X, y = crossed
    model = KernelClassifier(
        "gaussian:3", "multiclass_hinge", basis, AMM(6), 1e-3, 20, device="cpu", early_stopping=True
    ).fit(X[:600], y[:600])
    assert model.score(X[600:], y[600:]) > 0.95
    if isinstance(basis, Linear):
        plain = KernelClassifier("linear", "multiclass_hinge", basis, "pegasos", 1e-3, 20, device="cpu")
        assert plain.fit(X[:600], y[:600]).score(X[600:], y[600:]) < 0.8
    model.save(tmp_path / "m.zarr")
    light = daskkern.load(tmp_path / "m.zarr")
    assert light.scores_each == 6
    np.testing.assert_array_equal(light.predict(X), model.predict(X))
    assert light.decision_function(X).shape == (800,)
    np.testing.assert_array_equal(light.decision_function(X) > 0, model.predict(X) == "odd")


def test_what_is_refused(crossed: tuple[HostArray, HostArray]) -> None:
    X, y = crossed
    with pytest.raises(SpecError, match="averaging=2"):
        AMM(averaging=2)
    with pytest.raises(SpecError, match="got alpha=0 for solver amm"):
        KernelClassifier("linear", "multiclass_hinge", Linear(), "amm", 0.0, device="cpu").fit(X, y)
    with pytest.raises(SpecError, match="amm needs a loss with one margin over all classes"):
        KernelClassifier("linear", "hinge", Linear(), "amm", 1e-3, device="cpu").fit(X, y)
    for wrong in ({"hyperplanes": 0}, {"prune": -1.0}):
        with pytest.raises(SpecError, match=f"{next(iter(wrong))}="):
            AMM(**wrong)
    model = KernelClassifier("linear", "multiclass_hinge", Linear(), AMM(2), 1e-3, 1, device="cpu").fit(X, y).model_
    with pytest.raises(ModelError, match="damaged"):
        _saved_with(model, 3)


def _saved_with(model: object, each: int) -> None:
    import zarr

    from daskkern.models import load_model, save_model

    store = "memory://amm.zarr"
    save_model(model, store)
    group = zarr.open_group(store)
    group.attrs["scores_each"] = each
    load_model(group)
