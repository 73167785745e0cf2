"""Fastfood by fast transforms: products are those with its frequencies, whatever part of the columns is taken."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

import daskkern
from daskkern.basis import RandomFeatures
from daskkern.errors import DataError, SpecError
from daskkern.features import FourierFeatures, random_columns
from daskkern.kernels import Cauchy, Fastfood, Gaussian, Kernel, Laplacian, Matern, Neuron, Polynomial, from_spec
from daskkern.kernels.columns.hadamard import walsh_hadamard


@pytest.mark.parametrize("kernel", [Gaussian(1.5), Laplacian(3.0), Matern(2.0, 1.5), Cauchy(2.0)], ids=repr)
@pytest.mark.parametrize(("d", "n"), [(1, 6), (6, 20), (7, 40), (33, 70), (64, 128)])
def test_fast_transforms_are_products_with_the_frequencies(kernel: Kernel, d: int, n: int) -> None:
    rows = np.random.default_rng(d).standard_normal((9, d))
    fast = Fastfood(kernel, n, 5, d)
    frequencies = FourierFeatures(kernel, n, 5).fastfood(d) / kernel.length_scale  # type: ignore[attr-defined]
    np.testing.assert_allclose(fast.frequencies.dense(), frequencies, rtol=1e-12, atol=1e-13)
    numbers = np.arange(n)[:, None]
    phi = fast.block(rows, numbers.astype(float))
    neuron, weights = fast.as_neurons(numbers[:, 0])
    np.testing.assert_allclose(phi, neuron.block(rows, weights), atol=1e-11)
    np.testing.assert_allclose(
        np.sort(phi), np.sort(neuron.block(rows, np.vstack([frequencies.T, -frequencies.T]))), atol=1e-11
    )
    np.testing.assert_allclose(fast.block(rows.astype(np.float32), numbers.astype(np.float32)), phi, atol=1e-3 / n**0.5)
    again = from_spec(json.loads(json.dumps(fast.spec())))
    np.testing.assert_array_equal(again.block(rows, numbers.astype(float)), phi)


@pytest.mark.parametrize("D", [1, 2, 4, 8, 64, 512])
def test_two_small_hadamard_matrices_are_a_large_one(D: int) -> None:
    V = np.random.default_rng(0).standard_normal((D, 3))
    np.testing.assert_allclose(walsh_hadamard(V), scipy.linalg.hadamard(D) @ V, atol=1e-12)


def test_columns_of_fastfood_do_not_depend_on_the_others() -> None:
    """The same bits for any division of the columns: a transform is that of the whole group."""
    fast, rows = Fastfood(Gaussian(2.0), 1000, 0, 300), np.random.default_rng(0).standard_normal((50, 300))
    whole = fast.block(rows, np.arange(1000.0)[:, None])
    for some in (np.arange(100.0, 700.0), np.arange(900.0, 1000.0), np.array([5.0, 999.0])):
        np.testing.assert_array_equal(fast.block(rows, some[:, None]), whole[:, some.astype(int)])


def test_transforms_are_taken_where_they_are_faster_and_are_in_the_plan() -> None:
    def kinds(kernel: Kernel, n: int, d: int, **more: bool) -> type[Kernel]:
        return type(random_columns(kernel, "fastfood", n, d, 0, "float32", 1.0, **more)[0])

    assert kinds(Gaussian(2.0), 2000, 784) is Fastfood
    assert kinds(Gaussian(2.0), 2000, 784, sparse=True) is Neuron
    assert kinds(Gaussian(2.0), 2000, 100) is Neuron
    assert kinds(Gaussian(2.0), 100, 784) is Neuron  # of a group of 1,024
    assert kinds(Gaussian(tuple([1.0, 2.0] * 392)), 2000, 784) is Neuron
    basis = RandomFeatures(5000, "fastfood")
    fast = Fastfood(Gaussian(2.0), 5000, 0, 784)
    assert basis.table_bytes(Gaussian(2.0), 784, 0) == fast.frequencies.nbytes < 5000 * 784
    assert basis.table_bytes(Gaussian(2.0), 20, 0) == 0


def test_what_is_no_fastfood_is_refused() -> None:
    for words, kernel, width, d in (
        ("got width=0 for Fastfood features", Gaussian(1.0), 0, 6),
        ("got 7 Fastfood features", Gaussian(1.0), 7, 6),
        ("at most 16777216", Gaussian(1.0), 1 << 25, 6),
        ("at most 16777216", Gaussian(1.0), 2, 1 << 25),
        ("give one length scale", Gaussian((1.0, 2.0)), 4, 2),
        ("choose gaussian, laplacian, matern or cauchy", Polynomial(2), 4, 2),
    ):
        with pytest.raises(SpecError, match=words):
            Fastfood(kernel, width, 0, d)
    with pytest.raises(DataError, match="expected one number below 8 for each"):
        Fastfood(Gaussian(1.0), 8, 0, 6).points(np.array([[8.0]]))
    with pytest.raises(SpecError, match="takes"):
        from_spec({"name": "fastfood", "kernel": {"name": "gaussian", "length_scale": 1.0}, "width": 4})


def test_a_model_of_fast_transforms_is_saved_and_explained_as_one_of_the_same_neurons(tmp_path: Path) -> None:
    rows = np.random.default_rng(2).standard_normal((400, 256)).astype(np.float32)
    y = rows[:, 0] * 2 + rows[:, 1]
    model = daskkern.KernelRegressor(
        kernel="gaussian:40", basis=RandomFeatures(1000, "fastfood"), solver="direct", alpha=1e-4, random_state=0,
        scale=None, device="cpu",
    ).fit(rows, y)  # fmt: skip
    kernel = model.model_.kernel
    assert isinstance(kernel, Fastfood)
    assert model.score(rows, y) > 0.9
    model.save(tmp_path / "model")
    again = daskkern.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    np.testing.assert_allclose(again.predict(scipy.sparse.csr_matrix(rows)), model.predict(rows), atol=1e-4)
    numbers, A = model.model_.points, np.asarray(model.model_.coef, np.float64)
    neuron, weights = kernel.as_neurons(numbers[:, 0].astype(np.int64))
    some = rows[:5].astype(np.float64)
    np.testing.assert_allclose(
        kernel.gradient_matvec(some, numbers, A), neuron.gradient_matvec(some, weights, A), atol=1e-9
    )
    np.testing.assert_array_equal(model.model_.feature_importances(), np.full(256, 1 / 256))


def test_any_number_of_threads_gives_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    kernel, X = Fastfood(Laplacian(20.0), 1200, 0, 300), rng.standard_normal((2000, 300)).astype(np.float32)
    points = kernel.points(np.arange(1200, dtype=np.float32)[:, None])
    A, G = rng.standard_normal((1200, 4)).astype(np.float32), rng.standard_normal((2000, 4)).astype(np.float32)
    for threads in (2, 3):
        for name, factor in (("matvec", A), ("rmatvec", G)):
            alone, together = (getattr(kernel, name)(X, points, factor, threads=n) for n in (1, threads))
            np.testing.assert_array_equal(together, alone)
