"""EigenPro's preconditioner of explicit features against the dense formula, and the bound of theorem 3."""

from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.errors import DataError, SpecError
from daskkern.preconditioners import (
    CovarianceState,
    FeatureBlocks,
    SpectrumSettings,
    batch_norm_bound,
    covariance_state,
)

M_ROWS, H_ROWS, WIDTH, DIRECTIONS = 90, 60, 30, 7


def _rows(n: int, seed: int, d: int = WIDTH) -> HostArray:
    return np.random.default_rng(seed).standard_normal((n, d)) * np.arange(1, d + 1) ** -1.0


def _weights(n: int, seed: int) -> HostArray:
    w = np.random.default_rng(seed).uniform(0.2, 3.0, n)
    return w / w.mean()


def _blocks(phi: HostArray, width: int = 8) -> FeatureBlocks:
    def blocks() -> Iterator[tuple[slice, HostArray]]:
        for start in range(0, phi.shape[1], width):
            part = slice(start, min(start + width, phi.shape[1]))
            yield part, phi[:, part]

    return blocks


INSIDE, OUTSIDE = _rows(M_ROWS, 0), _rows(H_ROWS, 1)


def _state(
    inside: HostArray = INSIDE,
    outside: HostArray = OUTSIDE,
    rho: float = 1.0,
    tau: float | str = 1.0,
    q: int | None = DIRECTIONS,
    weighted: bool = False,
    batch: int = 1000,
    dtype: str = "float64",
) -> CovarianceState:
    w = (_weights(M_ROWS, 2), _weights(H_ROWS, 3)) if weighted else (None, None)
    spectrum = SpectrumSettings(q, rho, tau)
    return covariance_state(
        inside.shape[1], _blocks(inside), w[0], _blocks(outside), w[1], spectrum, batch, dtype, seed=0
    )


def _dense(rho: float, tau: float, weighted: bool) -> tuple[HostArray, HostArray]:
    """Return P and the eigenvalues from the covariance itself."""
    weight = _weights(M_ROWS, 2) if weighted else np.ones(M_ROWS)
    values, E = np.linalg.eigh(INSIDE.T @ (weight[:, None] * INSIDE) / M_ROWS)
    values, E = values[::-1], E[:, ::-1]
    factors = (tau * values[DIRECTIONS] / values[:DIRECTIONS]) ** rho
    lead = E[:, :DIRECTIONS]
    return np.eye(WIDTH) - (lead * (1 - factors)) @ lead.T, values


@pytest.mark.parametrize("weighted", [False, True])
def test_few_features_and_many_have_one_state(weighted: bool) -> None:
    few = _state(weighted=weighted)
    assert 2 * WIDTH <= M_ROWS < 2 * (WIDTH + M_ROWS)  # so that the other is made from the rows' inner products
    wide = [np.pad(rows, ((0, 0), (0, M_ROWS))) for rows in (INSIDE, OUTSIDE)]
    many = _state(*wide, weighted=weighted)
    np.testing.assert_allclose(few.eigenvalues, many.eigenvalues, rtol=1e-10)
    np.testing.assert_allclose(few.damping, many.damping, rtol=1e-8, atol=1e-10)
    assert few.beta == pytest.approx(many.beta, rel=1e-8)
    assert few.top == pytest.approx(many.top, rel=1e-6)
    across = np.abs(few.vectors.T @ many.vectors[:WIDTH])
    np.testing.assert_allclose(across, np.eye(len(few.damping)), atol=1e-7)


@pytest.mark.parametrize(
    ("rho", "tau", "weighted"), [(1.0, 1.0, False), (0.95, 1.0, False), (0.5, 0.25, False), (0.95, 0.7, True)]
)
def test_it_is_the_dense_formula(rho: float, tau: float, weighted: bool) -> None:
    state = _state(rho=rho, tau=tau, weighted=weighted)
    P, values = _dense(rho, tau, weighted)
    np.testing.assert_allclose(state.eigenvalues, values[: DIRECTIONS + 1], rtol=1e-9)
    found = np.eye(WIDTH) - (state.vectors * state.damping) @ state.vectors.T
    np.testing.assert_allclose(found, P, atol=1e-9)
    w_S, w_H = (_weights(M_ROWS, 2), _weights(H_ROWS, 3)) if weighted else (np.ones(M_ROWS), np.ones(H_ROWS))
    reach = [(w * np.einsum("ij,jk,ik->i", phi, P, phi)).max() for phi, w in ((INSIDE, w_S), (OUTSIDE, w_H))]
    assert state.beta == pytest.approx(max(reach), rel=1e-8)
    root = np.linalg.cholesky(P)
    here = np.linalg.eigvalsh(root.T @ (OUTSIDE.T @ (w_H[:, None] * OUTSIDE)) @ root / H_ROWS)[-1]
    damped = values[0] * (tau * values[DIRECTIONS] / values[0]) ** rho
    assert state.top == pytest.approx(max(here, damped, values[DIRECTIONS]), rel=2e-3)
    assert state.critical_batch == state.beta / state.top
    assert state.step_size(5, 2.0, 0.1) == pytest.approx(0.99 * 5 / (2 * (state.beta + 4 * state.top) + 0.5))


@pytest.mark.parametrize("weighted", [False, True])
def test_directions_may_be_damped_to_the_mean_of_the_other_eigenvalues(weighted: bool) -> None:
    """Equations 9 and 10 of Pfahler and Morik."""
    _, values = _dense(0.5, 1.0, weighted)
    a = np.sqrt(values[DIRECTIONS:].mean())
    state = _state(rho=0.5, tau="tail_mean", weighted=weighted)
    np.testing.assert_allclose(state.damping, 1 - a / np.sqrt(values[:DIRECTIONS]), rtol=1e-8)


def test_parts_together_are_the_whole() -> None:
    state = _state()
    r = _rows(WIDTH, 5, 3)
    ids = [np.arange(0, 12), np.arange(12, WIDTH)]
    parts = [state.part(own, "float64") for own in ids]
    blocks = [(slice(0, 5), slice(5, 12)), (slice(0, 18),)]
    projected = sum(part.project(r[own], cut) for part, own, cut in zip(parts, ids, blocks, strict=True))
    found = np.concatenate(
        [part.apply(r[own], projected, cut) for part, own, cut in zip(parts, ids, blocks, strict=True)]
    )
    np.testing.assert_allclose(found, _dense(1.0, 1.0, False)[0] @ r, atol=1e-9)


def test_directions_are_orthonormal_whatever_the_dtype_and_the_rank() -> None:
    low = (INSIDE[:, :4] @ _rows(4, 7)).astype(np.float32)
    state = _state(low, (OUTSIDE[:, :4] @ _rows(4, 7)).astype(np.float32), dtype="float32")
    k = state.damping.size
    assert 1 <= k <= 4  # what is rounding is left alone
    np.testing.assert_allclose(state.vectors.T @ state.vectors, np.eye(k), atol=1e-5)


def test_sparse_features_and_automatic_directions() -> None:
    X = np.where(_rows(M_ROWS, 0) > 0.1, INSIDE, 0.0)

    def sparse() -> Iterator[tuple[slice, HostArray]]:
        yield slice(0, WIDTH), scipy.sparse.csr_matrix(X)

    spectrum = SpectrumSettings(None, 0.95, 1.0)
    found = covariance_state(WIDTH, sparse, None, _blocks(OUTSIDE), None, spectrum, 1000, "float64", 0)
    wanted = _state(X, rho=0.95, q=None)
    np.testing.assert_allclose(found.eigenvalues, wanted.eigenvalues, rtol=1e-9)
    assert (found.beta, found.top) == pytest.approx((wanted.beta, wanted.top), rel=1e-9)
    assert found.damping.size <= M_ROWS // 5
    small = _state(rho=0.95, q=None, batch=2)
    assert small.damping.size < _state(rho=0.95, q=None).damping.size  # a small batch has no use for more


def test_a_number_of_directions_that_is_asked_for_is_kept_where_an_automatic_one_is_smaller() -> None:
    assert [_state(q=q, batch=40).n_damped for q in (20, WIDTH - 1)] == [20, WIDTH - 1]
    assert _state(q=None, batch=40).n_damped < M_ROWS // 5 < 20


def test_no_directions_no_held_out_rows_and_what_is_refused() -> None:
    plain = _state(q=0)
    assert plain.vectors.shape == (WIDTH, 0)
    assert plain.top == pytest.approx(plain.eigenvalues[0], rel=1.0)
    alone = _state(outside=np.empty((0, WIDTH)))
    assert alone.top == pytest.approx(alone.eigenvalues[-1])
    with pytest.raises(DataError, match="are 0 on all sampled rows"):
        _state(np.zeros((M_ROWS, WIDTH)))
    with pytest.raises(DataError, match="are not finite on the rows"):
        _state(np.full((M_ROWS, WIDTH), np.inf))
    with pytest.raises(SpecError, match="delta below 1"):
        batch_norm_bound(0.1, 1.0, 10, 10, 1.0)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10_000), m=st.sampled_from([1, 8, 64, 400]), k=st.integers(0, 20))
def test_batches_stay_below_the_bound_of_theorem_3(seed: int, m: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    X = _rows(800, seed) * rng.choice([-1.0, 1.0], (800, 1))
    values, E = np.linalg.eigh(X.T @ X / len(X))
    factors = np.minimum(1.0, values[::-1][k] / values)  # exact eigendirections, tau = rho = 1
    half = (E * np.sqrt(factors)) @ E.T
    conditioned = X @ half
    kappa = float((conditioned**2).sum(axis=1).max())
    delta = 1e-3
    bound = batch_norm_bound(float(values[::-1][k]), kappa, m, WIDTH, delta)
    draws = [conditioned[rng.integers(0, len(X), m)] for _ in range(20)]
    assert max(np.linalg.norm(batch.T @ batch / m, 2) for batch in draws) <= bound
