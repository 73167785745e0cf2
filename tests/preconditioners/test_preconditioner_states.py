"""The set-up of EigenPro and of Nystrom-SGD against the dense formulas, in float64."""

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian, Laplacian, LinearKernel
from daskkern.preconditioners import EigenProState, NystromState, SpectrumSettings, eigenpro_state, nystrom_state
from tests.support import naive

KERNEL = Laplacian(3.0)
S_ROWS, H_ROWS, DIRECTIONS = 80, 50, 8


def _rows(n: int, seed: int = 0, d: int = 4) -> HostArray:
    return np.random.default_rng(seed).standard_normal((n, d))


def _weights(n: int, seed: int) -> HostArray:
    w = np.random.default_rng(seed).uniform(0.2, 3.0, n)
    return w / w.mean()


X_S, X_H = _rows(S_ROWS), _rows(H_ROWS, 1)
NOTHING = np.empty((0, 4))


def _state(
    rho: float = 1.0, tau: float | str = 1.0, q: int | None = DIRECTIONS, weighted: bool = False, held: bool = True
) -> EigenProState:
    w_S = _weights(S_ROWS, 2) if weighted else None
    w_H = _weights(H_ROWS, 3) if weighted and held else None
    return eigenpro_state(KERNEL, X_S, w_S, X_H if held else NOTHING, w_H, SpectrumSettings(q, rho, tau), 1000, 0)


def _conditioned(X: HostArray, rho: float, tau: float, weighted: bool) -> HostArray:
    """Return ``<P k_x, k_z>`` for all pairs of rows of S and then `X`, by the formula for P."""
    every = np.concatenate([X_S, X])
    K = naive.kernel_matrix(KERNEL.spec(), every, every)
    weight = _weights(S_ROWS, 2) if weighted else None
    return naive.precondition(K, np.arange(S_ROWS), K, DIRECTIONS, rho, tau, weight)


every_damping = pytest.mark.parametrize(
    ("rho", "tau", "weighted"), [(1.0, 1.0, False), (0.95, 1.0, False), (0.5, 0.25, False), (0.95, 0.7, True)]
)


@every_damping
def test_eigenpro_vectors_and_damping_are_the_dense_formula(rho: float, tau: float, weighted: bool) -> None:
    state = _state(rho, tau, weighted=weighted)
    weight = _weights(S_ROWS, 2) if weighted else None
    values, psi, damping = naive.damped_directions(
        naive.kernel_matrix(KERNEL.spec(), X_S, X_S), DIRECTIONS, rho, tau, weight
    )
    np.testing.assert_allclose(state.eigenvalues, values, rtol=1e-10)
    np.testing.assert_allclose(state.damping * S_ROWS * values[:-1], damping, rtol=1e-9)
    ours = (state.vectors * state.damping) @ state.vectors.T
    np.testing.assert_allclose(ours, (psi * damping) @ psi.T, atol=1e-9 * np.abs(ours).max())


@every_damping
def test_beta_and_top_are_those_of_the_preconditioned_kernel_on_held_out_rows(
    rho: float, tau: float, weighted: bool
) -> None:
    state = _state(rho, tau, weighted=weighted)
    root = np.sqrt(np.concatenate([_weights(S_ROWS, 2), _weights(H_ROWS, 3)]) if weighted else np.ones(130))
    P = _conditioned(X_H, rho, tau, weighted) * root[:, None] * root[None, :]
    assert state.beta == pytest.approx(P.diagonal().max(), rel=1e-8)
    held_out = np.linalg.eigvalsh(P[S_ROWS:, S_ROWS:])[-1] / H_ROWS
    leading = state.eigenvalues[0] * (tau * state.eigenvalues[-1] / state.eigenvalues[0]) ** rho
    assert state.top == pytest.approx(max(held_out, leading, state.eigenvalues[-1]), rel=2e-3)
    assert state.critical_batch == state.beta / state.top


@pytest.mark.parametrize("weighted", [False, True])
def test_the_preconditioned_covariance_of_the_sample_ends_at_the_next_eigenvalue(weighted: bool) -> None:
    # The nonzero eigenvalues of P^(1/2) H P^(1/2) are those of the preconditioned kernel matrix over s.
    state = _state(weighted=weighted)
    K = naive.kernel_matrix(KERNEL.spec(), X_S, X_S)
    conditioned = K - K @ (state.vectors * state.damping) @ state.vectors.T @ K
    root = np.sqrt(_weights(S_ROWS, 2)) if weighted else np.ones(S_ROWS)
    eigenvalues = np.linalg.eigvalsh(conditioned * root[:, None] * root[None, :] / S_ROWS)[::-1]
    np.testing.assert_allclose(eigenvalues[: DIRECTIONS + 1], state.eigenvalues[-1], rtol=1e-8)
    assert eigenvalues[DIRECTIONS + 1] < state.eigenvalues[-1]


def test_without_held_out_rows_the_sample_alone_decides() -> None:
    state = _state(held=False)
    assert state.beta == pytest.approx(_conditioned(NOTHING, 1.0, 1.0, False).diagonal().max(), rel=1e-8)
    assert state.top == pytest.approx(state.eigenvalues[-1], rel=1e-12)


def test_integer_weights_are_repeated_rows() -> None:
    times = np.random.default_rng(4).integers(1, 4, S_ROWS)
    repeated = np.repeat(X_S, times, axis=0)
    chosen = SpectrumSettings(DIRECTIONS, 0.9, 0.8)
    one = eigenpro_state(KERNEL, X_S, times / times.mean(), NOTHING, None, chosen, 1000, 0)
    other = eigenpro_state(KERNEL, repeated, None, NOTHING, None, chosen, 1000, 0)
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-9)
    assert one.top == pytest.approx(other.top, rel=1e-9)
    effects = []
    for state, rows in ((one, X_S), (other, repeated)):
        K = naive.kernel_matrix(KERNEL.spec(), X_H, rows)
        effects.append(K @ (state.vectors * state.damping) @ state.vectors.T @ K.T)
    np.testing.assert_allclose(*effects, atol=1e-10)


def test_the_spectrum_may_come_from_the_krylov_method() -> None:
    X, H = _rows(300), _rows(60, 1)
    dense, krylov = (
        eigenpro_state(Gaussian(3.0), X, None, H, None, SpectrumSettings(10, eigen_method=method), 1000, 0)
        for method in ("dense", "krylov")
    )
    np.testing.assert_allclose(krylov.eigenvalues, dense.eigenvalues, rtol=1e-3)
    assert krylov.beta == pytest.approx(dense.beta, rel=1e-2)
    assert krylov.top == pytest.approx(dense.top, rel=1e-2)


def test_no_direction_leaves_plain_gradient_descent() -> None:
    state = _state(q=0)
    assert (state.vectors.shape, state.damping.shape) == ((S_ROWS, 0), (0,))
    assert state.beta == pytest.approx(1.0)
    assert state.top >= state.eigenvalues[0]


@pytest.mark.parametrize("max_batch", [8, 64, 4000])
def test_automatic_directions_are_as_many_as_the_largest_batch_can_use(max_batch: int) -> None:
    state = eigenpro_state(KERNEL, X_S, None, X_H, None, SpectrumSettings(), max_batch, 0)
    q = state.damping.size
    values = naive.damped_directions(naive.kernel_matrix(KERNEL.spec(), X_S, X_S), S_ROWS - 1, 1, 1)[0]
    usable = int((values[1 : S_ROWS // 5 + 1] >= 1 / max_batch).sum())
    assert q == usable
    assert q <= S_ROWS // 5


def test_directions_end_where_the_kernel_has_no_more() -> None:
    state = eigenpro_state(LinearKernel(), X_S, None, X_H, None, SpectrumSettings(20), 1000, 0)
    assert state.damping.size == 3  # rank 4: l_4 is the last one above noise
    assert np.isfinite(state.damping).all()


@pytest.mark.parametrize(("m", "smoothness", "alpha"), [(1, 1.0, 0.0), (50, 2.0, 0.0), (50, 0.25, 0.1)])
def test_the_step_is_the_formula_just_below_its_limit(m: int, smoothness: float, alpha: float) -> None:
    limit = m / (smoothness * (2.0 + (m - 1) * 0.1) + m * alpha)
    eigenpro = EigenProState(np.zeros((3, 1)), np.zeros(1), np.ones(2), beta=2.0, top=0.1)
    nystrom = NystromState(np.zeros((3, 1)), np.ones(1), np.ones(1), beta=2.0, top=0.1)
    for state in (eigenpro, nystrom):
        assert state.step_size(m, smoothness, alpha) == pytest.approx(0.99 * limit)
        assert state.critical_batch == pytest.approx(20)


def test_parts_of_the_ranks_add_up_to_the_whole() -> None:
    state = _state()
    gradient = np.random.default_rng(0).standard_normal((S_ROWS, 2))
    parts = [state.part(ids, "float64") for ids in (np.arange(0, 80, 2), np.arange(1, 80, 2))]
    blocks = [slice(0, 25), slice(25, 40)]
    projected = parts[0].project(gradient[::2], blocks) + parts[1].project(gradient[1::2], blocks)
    expected = state.vectors @ np.diag(state.damping) @ state.vectors.T @ gradient
    np.testing.assert_allclose(parts[0].apply(projected, blocks), expected[::2], atol=1e-10 * np.abs(expected).max())
    np.testing.assert_allclose(parts[1].apply(projected, blocks), expected[1::2], atol=1e-10 * np.abs(expected).max())
    assert state.part(np.arange(3), "float32").vectors.dtype == np.float32


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rho": 0.0}, r"got rho=0\.0 and tau=1\.0; both must lie in \(0, 1\]"),
        ({"rho": 1.5}, "both must lie in"),
        ({"tau": -1.0}, "both must lie in"),
        ({"tau": "mean"}, r"got tau='mean'; give a number in \(0, 1\], or 'tail_mean'"),
        ({"n_directions": -1}, "got n_directions=-1; give 0 or more, or None"),
    ],
)
def test_impossible_spectrum_settings_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        SpectrumSettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("weighted", [False, True])
def test_directions_may_be_damped_to_the_mean_of_the_other_eigenvalues(weighted: bool) -> None:
    """Equations 9 and 10 of Pfahler and Morik."""
    weight = _weights(S_ROWS, 2) if weighted else np.ones(S_ROWS)
    root = np.sqrt(weight)
    K = naive.kernel_matrix(KERNEL.spec(), X_S, X_S)
    values = np.linalg.eigvalsh(root[:, None] * K * root / S_ROWS)[::-1]
    a = np.sqrt(values[DIRECTIONS:].mean())
    state = _state(0.5, "tail_mean", weighted=weighted)
    damping = (1 - a / np.sqrt(values[:DIRECTIONS])) / (S_ROWS * values[:DIRECTIONS])
    np.testing.assert_allclose(state.damping, damping, rtol=1e-9)
    assert state.top >= values[DIRECTIONS] * (1 - 1e-9)


Z, X = _rows(30, 5), _rows(200, 6)
K_ZZ, K_XZ = naive.kernel_matrix(KERNEL.spec(), Z, Z), naive.kernel_matrix(KERNEL.spec(), X, Z)


def _nystrom(w: HostArray | None = None, k: int | None = None, rows: HostArray = K_XZ, shares: int = 3) -> NystromState:
    n = len(rows)
    weight = np.ones(n) if w is None else w

    def part(numbers: HostArray) -> object:
        return lambda T: (rows[numbers] @ T).T @ (weight[numbers, None] * (rows[numbers] @ T))

    parts = [part(numbers) for numbers in np.array_split(np.arange(n), shares)]
    return nystrom_state(KERNEL, Z, parts, n, X, w if len(rows) == len(X) else None, k)  # type: ignore[arg-type]


@pytest.mark.parametrize("weighted", [False, True])
def test_eigenfeatures_are_orthonormal_in_the_space_and_uncorrelated_over_the_rows(weighted: bool) -> None:
    w = _weights(200, 7) if weighted else None
    state = _nystrom(w)
    assert state.M.shape == (30, 30)
    np.testing.assert_allclose(state.M.T @ K_ZZ @ state.M, np.eye(30), atol=1e-9)
    psi = K_XZ @ state.M
    C = psi.T @ (psi if w is None else w[:, None] * psi) / 200
    np.testing.assert_allclose(C, np.diag(state.eigenvalues), atol=1e-12)
    assert (np.diff(state.eigenvalues) <= 0).all()


def test_eigenvalues_are_those_of_the_nystrom_kernel_over_n() -> None:
    state = _nystrom()
    values, psi = naive.nystrom_features(K_XZ, K_ZZ, 30)
    np.testing.assert_allclose(state.eigenvalues, values, rtol=1e-9)
    np.testing.assert_allclose(np.abs(K_XZ @ state.M)[:, :10], np.abs(psi)[:, :10], atol=1e-8)


def test_the_conditioner_flattens_the_spectrum_down_to_direction_k() -> None:
    for k in (0, 1, 7, 29, 30, None):
        state = _nystrom(k=k)
        level = state.eigenvalues[29 if k is None else min(k, 29)]  # l_(k+1), or the last
        np.testing.assert_allclose(state.preconditioner, np.minimum(1, (level / state.eigenvalues) ** 0.5), rtol=1e-9)
        assert state.top == pytest.approx((state.preconditioner * state.eigenvalues).max())
        assert state.top == pytest.approx((level * state.eigenvalues[0]) ** 0.5)
        psi = K_XZ @ state.M
        assert state.beta == pytest.approx((psi**2 @ state.preconditioner).max(), rel=1e-9)


def test_shares_of_the_rows_and_integer_weights_change_nothing() -> None:
    np.testing.assert_allclose(_nystrom(shares=1).eigenvalues, _nystrom(shares=7).eigenvalues, rtol=1e-10)
    times = np.random.default_rng(8).integers(1, 4, 200)
    one, other = _nystrom(times / times.mean()), _nystrom(rows=np.repeat(K_XZ, times, axis=0))
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-9)


def test_equal_landmarks_lose_their_direction() -> None:
    twice = np.concatenate([Z, Z[:5]])

    def part(T: HostArray) -> HostArray:
        phi = naive.kernel_matrix(KERNEL.spec(), X, twice) @ T
        return phi.T @ phi

    state = nystrom_state(KERNEL, twice, [part], 200, X, None, None)
    assert state.M.shape == (35, 30)
    np.testing.assert_allclose(state.eigenvalues, _nystrom().eigenvalues, rtol=1e-6)


@pytest.mark.parametrize("k", [-1, 31])
def test_more_directions_than_the_rank_are_refused(k: int) -> None:
    with pytest.raises(SpecError, match=f"got {k} preconditioned directions, but the Nystrom kernel has rank 30"):
        _nystrom(k=k)


def test_a_rank_holds_its_rows_of_the_features() -> None:
    state = _nystrom()
    part = state.part(np.array([4, 9]), "float32")
    assert part.M.dtype == part.preconditioner.dtype == np.float32
    np.testing.assert_allclose(part.M, state.M[[4, 9]], rtol=1e-6)
    np.testing.assert_allclose(part.preconditioner[:, 0], state.preconditioner, rtol=1e-6)
