"""Columns that are no kernels: products are those of their blocks, inner products those of the kernel."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from scipy.spatial.distance import pdist
from sklearn.random_projection import johnson_lindenstrauss_min_dim

import daskkern
from daskkern.arrays import HostArray
from daskkern.backend.random import generator
from daskkern.basis import RandomFeatures
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError, SpecError
from daskkern.features import KINDS, FourierFeatures, random_columns
from daskkern.kernels import (
    ArcCosine,
    Cauchy,
    Coordinate,
    Drawn,
    Fastfood,
    Gaussian,
    Kernel,
    Laplacian,
    LinearKernel,
    LocalFeatures,
    Mapped,
    Matern,
    Neuron,
    Polynomial,
    TensorSketch,
    from_spec,
    nystrom_map,
)
from daskkern.kernels.functions.activations import ACTIVATIONS
from daskkern.losses import Squared
from daskkern.solvers import SGD
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.memory_by_columns import rank_items
from daskkern.training.planning.planner import summarise
from daskkern.training.planning.sizes_of_fits import sizes_of
from tests.support.fits import Fit, toy_settings

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 6))
Z = RNG.standard_normal((20, 6))
UNITS = scipy.sparse.vstack([scipy.sparse.identity(6, format="csr"), scipy.sparse.csr_matrix((1, 6))], format="csr")


def _mapped() -> tuple[Kernel, HostArray]:
    M = nystrom_map(Gaussian(2.0).block(Z, Z), 1e-10)
    return Mapped(Gaussian(2.0), Z), np.ascontiguousarray(M)


FUNCTIONS: dict[str, Callable[[], tuple[Kernel, HostArray]]] = {
    "fourier": lambda: random_columns(Gaussian(2.0), "auto", 50, 6, 0, "float64", 1.0),
    "sigmoid": lambda: random_columns(Gaussian(2.0), "sigmoid", 50, 6, 0, "float64", 2.0),
    "relu": lambda: random_columns(ArcCosine(1), "auto", 50, 6, 0, "float64", 1.0),
    "projection": lambda: random_columns(Gaussian(2.0), "projection", 50, 6, 0, "float64", 1.0),
    "fastfood": lambda: random_columns(Cauchy(2.0), "fastfood", 50, 6, 0, "float64", 1.0),
    "fast fastfood": lambda: (Fastfood(Cauchy(2.0), 20, 0, 6), np.arange(20.0)[:, None]),
    "some fastfood": lambda: (
        Fastfood(Matern(2.0, 1.5), 36, 1, 6),
        np.array([3.0, 4, 5, 17, 15, 16, 32, 35, 0])[:, None],
    ),
    "tensor sketch": lambda: random_columns(Polynomial(3), "auto", 52, 6, 0, "float64", 1.0),
    "coordinate": lambda: (Coordinate(), UNITS),
    "locally linear": lambda: (LocalFeatures(Z[:5], 3), LocalFeatures(Z[:5], 3).numbers.astype(float)),
    "some locally linear": lambda: (LocalFeatures(Z[:5], 2), np.array([[4.0, 6], [0, 2], [4, 1], [3, 3]])),
    "some coordinates": lambda: (Coordinate(), UNITS[[1, 6, 4]]),
    "mapped": _mapped,
    "drawn": lambda: (Drawn(Matern(2.0, 1.5), 3, 8, 6), np.arange(52.0)[:, None]),
    "some drawn": lambda: (Drawn(ArcCosine(1), 3, 8, 6), np.array([1.0, 40, 41, 7, 6, 23, 24])[:, None]),
}


def test_the_map_does_not_depend_on_the_signs_that_a_library_gives_eigenvectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    K = Gaussian(2.0).block(Z, Z)
    expected = nystrom_map(K, 1e-10)
    eigh = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda K: (eigh(K)[0], eigh(K)[1] * RNG.choice([-1, 1], len(K))))
    np.testing.assert_array_equal(nystrom_map(K, 1e-10), expected)
    np.testing.assert_allclose(expected @ K @ expected.T, np.eye(len(expected)), atol=1e-9)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_products_are_those_of_the_block(name: str, sparse: bool) -> None:
    kernel, weights = FUNCTIONS[name]()
    if sparse and name == "mapped":
        kernel = Mapped(Gaussian(2.0), scipy.sparse.csr_matrix(Z))
    rows = scipy.sparse.csr_matrix(X * (X > 0)) if sparse else X * (X > 0)
    p = weights.shape[0]
    points = kernel.points(weights, kernel.placement_for(weights), [slice(0, p // 2), slice(p // 2, p)])
    A, G = RNG.standard_normal((p, 3)), RNG.standard_normal((30, 3))
    K = kernel.block(rows, points)
    out = np.empty((30, p))
    np.testing.assert_array_equal(kernel.block(rows, points, out), K)
    head = np.empty((30, 2))
    np.testing.assert_allclose(kernel.matvec(rows, points, A, head), K @ A, atol=1e-12)
    np.testing.assert_allclose(head, K[:, :2], atol=1e-12)
    np.testing.assert_allclose(kernel.rmatvec(rows, points, G), K.T @ G, atol=1e-12)
    between = kernel.double_product(rows, points, A, lambda f, where: f * G[where])
    np.testing.assert_allclose(between, K.T @ (K @ A * G), atol=1e-11)
    assert kernel.features_of(weights) == 6


def test_coordinates_are_the_features_and_a_constant() -> None:
    block = Coordinate().block(X, Coordinate().points(UNITS))
    np.testing.assert_array_equal(block, np.column_stack([X, np.ones(30)]))
    view = Coordinate().columns(X, Coordinate().points(UNITS[2:5]))
    assert np.shares_memory(view, X)
    np.testing.assert_array_equal(view, X[:, 2:5])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str) -> None:
    t = np.linspace(-3, 3, 7)[:, None]
    plain = {
        "fourier": np.cos(t) + np.sin(t),
        "step": 2**0.5 * (t > 0),
        "relu": 2**0.5 * np.maximum(t, 0),
        "projection": t,
        "relu2": 2**0.5 * np.maximum(t, 0) ** 2,
        "sigmoid": 1 / (1 + np.exp(-t)),
        "tanh": np.tanh(t),
    }[activation]
    np.testing.assert_allclose(Neuron(activation, 4).block(t, np.ones((1, 1))), plain / 2, atol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(1.5),
        Gaussian((1.0, 2.0, 1.0, 3.0, 1.0, 1.5)),
        Gaussian.from_metric(np.diag([1.0, 0.5, 0.0, 2.0, 1.0, 0.2]) / 4),
        Laplacian(3.0),
        Cauchy(2.0),
        Matern(2.0, nu=1.5),
        ArcCosine(0),
        ArcCosine(1),
    ],
    ids=repr,
)
def test_inner_products_approach_the_kernel(kernel: Kernel) -> None:
    errors = []
    for n in (400, 40_000):
        function, weights = random_columns(kernel, "auto", n, 6, 0, "float64", 1.0)
        phi = function.block(X, weights)
        errors.append(np.abs(phi @ phi.T - kernel.block(X, X)).mean())
    assert errors[1] < errors[0] / 4  # 10 by the rate n^(-1/2)
    assert errors[1] < 0.02 * kernel.block(X, X).max()


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_a_sketch_is_the_convolution_of_count_sketches(degree: int, sparse: bool) -> None:
    kernel = TensorSketch(degree, 0.5, 2.0, 7, 3, 6)
    rows = np.column_stack([0.5**0.5 * X, np.full(30, 2.0**0.5)])
    expected: HostArray | None = None
    for sketch in kernel.sketches:
        table = np.zeros((7, 7))
        table[np.arange(7), sketch.sums] = sketch.signs
        each = rows @ table
        if expected is not None:
            each = sum(np.roll(expected, k, axis=1) * each[:, k, None] for k in range(7))
        expected = each
    numbers = np.array([[3.0], [0.0], [6.0]])
    found = kernel.block(scipy.sparse.csr_matrix(X) if sparse else X, numbers)
    np.testing.assert_allclose(found, expected[:, [3, 0, 6]], atol=1e-10)
    again = from_spec(json.loads(json.dumps(kernel.spec())))
    np.testing.assert_array_equal(again.block(X, numbers), kernel.block(X, numbers))


@pytest.mark.parametrize("width", [3, 64, 2000])
def test_count_sketches_keep_numbers_of_features_in_place_of_matrices(width: int) -> None:
    kernel = TensorSketch(2, 1.0, 1.0, width, 0, 500)
    largest = max(np.bincount(sketch.sums[:-1]).max() for sketch in kernel.sketches)
    assert kernel.table_bytes <= 2 * 12 * (501 + largest * width) < 2 * 4 * 501 * max(width, 30)
    assert RandomFeatures(width).table_bytes(Polynomial(2), 500, 0) == kernel.table_bytes
    assert RandomFeatures(width).table_bytes(Gaussian(1.0), 500, 0) == 0


def test_the_plan_counts_the_tables_of_a_sketch_and_no_points() -> None:
    rows = np.random.default_rng(0).standard_normal((60, 2000)).astype(np.float32)
    info = SourceInfo(60, 2000, "regression", None, Scaling(), None, 1, True)
    source = ArraySource(rows, np.arange(60.0)[:, None], None, info)
    settings = replace(toy_settings(RandomFeatures(3000), SGD(), Squared(), "float32"), kernel=Polynomial(2))
    fit = Fit.of(source, settings)
    sizes = sizes_of(summarise(fit.prepared, settings), source, settings, 1, 1, on_device=False)
    items = dict(rank_items(sizes)[0])
    assert items["tables of columns"] == TensorSketch(2, 1.0, 1.0, 3000, settings.seed, 2000).table_bytes
    assert items["own columns"] + items["precomputed column data"] < 3000 * 100 < 3000 * 2000 * 4


def test_sketches_are_unbiased_and_vary_less_with_more_columns() -> None:
    K, spreads = Polynomial(2, 0.5, 1.0).block(X[:8], X[:8]), []
    for width in (16, 64):
        drawn = [
            phi @ phi.T for phi in (TensorSketch(2, 0.5, 1.0, width, seed, 6).sketch(X[:8]) for seed in range(300))
        ]
        spreads.append(np.std(drawn, axis=0).mean())
        errors = np.abs(np.mean(drawn, axis=0) - K)
        assert (errors < 5 * np.std(drawn, axis=0) / 300**0.5 + 1e-9).all()
    assert spreads[1] < 0.75 * spreads[0]  # 1/2 by the rate width^(-1/2)


def test_what_is_no_sketch_is_refused() -> None:
    with pytest.raises(SpecError, match=r"got width=0.* for a TensorSketch; give a whole number from 1 on"):
        TensorSketch(2, 1.0, 1.0, 0, 0, 6)
    with pytest.raises(SpecError, match=r"got gamma=0 and coef0=1\.0 for a TensorSketch"):
        TensorSketch(2, 0, 1.0, 8, 0, 6)
    with pytest.raises(DataError, match="expected one number below 8 for each"):
        TensorSketch(2, 1.0, 1.0, 8, 0, 6).points(np.array([[8.0]]))
    with pytest.raises(SpecError, match="has no gradients; take the polynomial kernel"):
        TensorSketch(2, 1.0, 1.0, 8, 0, 6).gradient_matvec(X, np.zeros((1, 1)), np.ones((1, 1)))


def test_fastfood_is_the_product_of_its_matrices() -> None:
    H = scipy.linalg.hadamard(8)
    found = FourierFeatures(Gaussian(1.0), 16, 4).fastfood(6)
    rng = generator(4, 81)
    B, G = np.diag([*rng.choice((-1.0, 1.0), 6), 1, 1]), rng.standard_normal(8)
    P = np.eye(8)[rng.permutation(8)]
    S = np.diag(np.sqrt(rng.chisquare(8, 8)) / np.linalg.norm(G))
    np.testing.assert_allclose(found, (S @ H @ np.diag(G) @ P @ H @ B / 8**0.5)[:, :6].T, atol=1e-12)


def test_fastfood_approaches_the_kernel() -> None:
    K, errors = Cauchy(2.0).block(X, X), []
    for n in (400, 40_000):
        function, weights = random_columns(Cauchy(2.0), "fastfood", n, 6, 0, "float64", 1.0)
        phi = function.block(X, weights)
        errors.append(np.abs(phi @ phi.T - K).mean())
    assert errors[1] < errors[0] / 4
    assert errors[1] < 0.02


@pytest.mark.parametrize(("kernel", "kind"), [("polynomial:2", "auto"), ("gaussian:3", "fastfood")])
def test_a_model_of_them_is_saved_and_explains_as_the_kernel_does(kernel: str, kind: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(2).standard_normal((200, 6))
    y = rows[:, 0] * rows[:, 1] + rows[:, 2]
    model = daskkern.KernelRegressor(
        kernel=kernel, basis=daskkern.RandomFeatures(400, kind), solver="direct", alpha=1e-4, random_state=0,
    ).fit(rows[:150], y[:150])  # fmt: skip
    assert model.score(rows[150:], y[150:]) > 0.6
    model.save(tmp_path / "model")
    again = daskkern.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(rows), model.predict(rows), atol=1e-4)


def test_projections_keep_distances_as_johnson_and_lindenstrauss_say() -> None:
    rows = np.random.default_rng(1).standard_normal((40, 300))
    n = int(johnson_lindenstrauss_min_dim(40, eps=0.5))
    function, weights = random_columns(Gaussian(2.0), "projection", n, 300, 0, "float64", 1.0)
    ratios = pdist(function.block(rows, weights)) ** 2 / pdist(rows) ** 2
    assert 0.5 < ratios.min() < ratios.max() < 1.5
    assert abs(ratios.mean() - 1) < 0.05


def test_orthogonal_features_vary_less() -> None:
    def error(kind: str) -> float:
        K, found = Gaussian(3.0).block(X, X), []
        for seed in range(20):
            function, weights = random_columns(Gaussian(3.0), kind, 12, 6, seed, "float64", 1.0)
            phi = function.block(X, weights)
            found.append(np.mean((phi @ phi.T - K) ** 2))
        return float(np.mean(found))

    assert error("orthogonal") < 0.7 * error("fourier")


def test_nystrom_coordinates_are_orthonormal() -> None:
    kernel, M = _mapped()
    phi = kernel.block(Z, kernel.points(M))
    np.testing.assert_allclose(phi @ phi.T, Gaussian(2.0).block(Z, Z), atol=1e-9)


@pytest.mark.parametrize("kernel", [Neuron("tanh", 7, bias=True), Coordinate()])
def test_what_is_written_is_read(kernel: Kernel) -> None:
    assert from_spec(kernel.spec()) == kernel


def test_what_is_refused() -> None:
    with pytest.raises(SpecError, match="linear kernel"):
        random_columns(LinearKernel(), "auto", 10, 3, 0, "float32", 1.0)
    with pytest.raises(SpecError, match="'nix'; choose one of auto"):
        random_columns(Gaussian(1.0), "nix", 10, 3, 0, "float32", 1.0)
    with pytest.raises(SpecError, match="activation 'nix'"):
        Neuron("nix")
    with pytest.raises(SpecError, match="mapped columns have no spec"):
        _mapped()[0].spec()
    with pytest.raises(DataError, match="unit vectors"):
        Coordinate().points(np.eye(3))
    assert "orthogonal" in KINDS


def test_drawn_features_are_a_sample_of_the_kernel_from_block_to_block() -> None:
    for kernel in (Gaussian((1.0, 2.0, 1.5, 1.0, 3.0, 2.0)), ArcCosine(1), Cauchy(2.0)):
        drawn = Drawn(kernel, 0, 16, 6)
        phi = drawn.block(X, drawn.points(np.arange(16.0 * 800)[:, None]))
        np.testing.assert_allclose(phi @ phi.T / 800, kernel.block(X, X), atol=0.08 * kernel.diagonal(X).max())


def test_drawn_features_are_numbers_and_come_again() -> None:
    drawn = Drawn(Gaussian(2.0), 5, 8, 6)
    again = from_spec(json.loads(json.dumps(drawn.spec())))
    assert again == drawn
    whole, part = (drawn.points(np.arange(a, b, dtype=float)[:, None]) for a, b in ((0, 40), (19, 33)))
    np.testing.assert_allclose(again.block(X, part), drawn.block(X, whole)[:, 19:33], atol=1e-14)
    other = Drawn(Gaussian(2.0), 6, 8, 6)
    assert np.abs(other.block(X, part) - drawn.block(X, part)).max() > 0.1


def test_products_skip_coefficients_of_zero() -> None:
    drawn = Drawn(Gaussian(2.0), 5, 8, 6)
    points = drawn.points(np.arange(40.0)[:, None])
    A = np.zeros((40, 1))
    A[9] = 1.0
    requested: list[int] = []

    class ValidationResult(Drawn):
        def weights(self, number: int) -> HostArray:
            requested.append(number)
            return super().weights(number)

    found = ValidationResult(Gaussian(2.0), 5, 8, 6).matvec(X, points, A)
    np.testing.assert_allclose(found, drawn.block(X, points) @ A, atol=1e-14)
    assert requested == [1]


def test_threads_share_drawn_points() -> None:
    kernel = Drawn(Gaussian(1.0), 0, 2, 6)
    points = kernel.points(np.arange(600.0)[:, None], blocks=[slice(k, k + 2) for k in range(0, 600, 2)])
    expected = Drawn(Gaussian(1.0), 0, 2, 6).block(X, kernel.points(np.arange(600.0)[:, None]))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: kernel.block(X, points), range(8)):
            np.testing.assert_array_equal(found, expected)


def test_weights_of_the_first_pieces_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.kernels.columns.regenerated_features.KEPT_BYTES", 2 * (16 + 256) * 6 * 8 + 100)
    blocks: list[int] = []

    class ValidationResult(Drawn):
        def weights(self, number: int) -> HostArray:
            blocks.append(number)
            return super().weights(number)

    X, A = np.random.default_rng(0).standard_normal((5, 6)), np.random.default_rng(1).standard_normal((48, 2))
    kernel, cuts = ValidationResult(Gaussian(2.0), 5, 8, 6), [slice(0, 16), slice(16, 32), slice(32, 48)]
    points = kernel.points(np.arange(48.0)[:, None], blocks=cuts)
    first = kernel.matvec(X, points, A)
    assert blocks == [0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(kernel.matvec(X, points, A), first)
    assert blocks[6:] == [4, 5]  # the third piece did not fit
    np.testing.assert_allclose(first, Drawn(Gaussian(2.0), 5, 8, 6).block(X, points) @ A, atol=1e-13)
    later = A.copy()
    later[:8] = 0  # a piece in part: drawn for itself
    np.testing.assert_allclose(kernel.matvec(X, points, later), kernel.block(X, points) @ later, atol=1e-13)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Drawn(Gaussian(1.0), 0, 7, 6), "blocks of 7 random Fourier features"),
        (lambda: Drawn(LinearKernel(), 0, 8, 6), "got the linear kernel for random Fourier features"),
        (lambda: Drawn(Gaussian(1.0), -1, 8, 6), "got seed=-1"),
        (lambda: from_spec({"name": "drawn", "kernel": {"name": "gaussian"}}), "the drawn of kernels takes"),
    ],
)
def test_drawn_features_that_make_no_sense_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make()
    with pytest.raises(DataError, match="expected one number below"):
        Drawn(Gaussian(1.0), 0, 8, 6).points(np.array([[1e9]]))
