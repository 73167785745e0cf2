"""Eigenvectors differ from library to library: saved weights of Nystrom-SGD are those of the coefficients, in any."""

import numpy as np
import pytest

from daskkern.errors import DataError
from daskkern.kernels import Gaussian
from daskkern.preconditioners import NystromState, nystrom_state
from daskkern.solvers.nystrom_sgd.solver import _check_basis, _in_this_basis
from daskkern.solvers.snapshot import Shard, Snapshot

P, R = 50, 20


def _saved(dtype: str) -> tuple[np.ndarray, np.ndarray, Snapshot]:
    rng = np.random.default_rng(0)
    orthogonal = np.linalg.qr(rng.standard_normal((P, P)))[0][:, :R]
    M = (orthogonal / np.geomspace(1, 1e-3, R)).astype(dtype)
    w = rng.standard_normal((R, 3)).astype(dtype)
    return M, w, Snapshot({"A": Shard(np.arange(P), M @ w)}, {"w": w}, {})


@pytest.mark.parametrize(("dtype", "accuracy"), [("float32", 2e-3), ("float64", 1e-9)])
def test_weights_are_found_again_in_another_basis(dtype: str, accuracy: float) -> None:
    M, w, saved = _saved(dtype)
    rng = np.random.default_rng(1)
    signs, order = rng.choice([-1.0, 1.0], R).astype(dtype), rng.permutation(R)
    found = _in_this_basis((M * signs)[:, order], saved)
    assert found.dtype == w.dtype
    np.testing.assert_allclose(found, (w * signs[:, None])[order], atol=accuracy)


def test_weights_of_the_same_basis_stay_as_they_are_to_the_bit() -> None:
    M, w, saved = _saved("float32")
    rounded = Snapshot({"A": Shard(np.arange(P), saved.shards["A"].values * np.float32(1 + 1e-5))}, {"w": w}, {})
    np.testing.assert_array_equal(_in_this_basis(M, rounded), w)
    nothing = Snapshot({"A": Shard(np.arange(P), np.zeros((P, 3)))}, {"w": np.zeros((R, 3))}, {})
    np.testing.assert_array_equal(_in_this_basis(M, nothing), 0)


def test_the_largest_number_of_each_eigenfeature_is_positive() -> None:
    rng = np.random.default_rng(2)
    X, Z = rng.standard_normal((300, 4)), rng.standard_normal((40, 4))
    kernel = Gaussian(2.0)

    def gram(T: np.ndarray) -> np.ndarray:
        phi = kernel.block(X, Z) @ T
        return phi.T @ phi

    M = nystrom_state(kernel, Z, [gram], 300, X, None, None).M
    assert (M[np.abs(M).argmax(axis=0), np.arange(M.shape[1])] > 0).all()


def test_stored_weights_of_another_basis_are_refused() -> None:
    M, w, _ = _saved("float64")
    state, other = (NystromState(basis, np.ones(R), np.ones(R), 1.0, 1.0) for basis in (M, M[:, ::-1]))
    saved = Snapshot({"w": Shard(np.arange(R), w)}, {"probe": state.probe * (1 + 1e-6)}, {})
    _check_basis(state.probe, saved)
    for probe in (other.probe, state.probe[:-1]):
        with pytest.raises(DataError, match="belong to other eigenfeatures"):
            _check_basis(probe, saved)
    with pytest.raises(DataError, match="belong to other eigenfeatures"):
        _check_basis(state.probe, Snapshot({"w": Shard(np.arange(R), w)}, {}, {}))
