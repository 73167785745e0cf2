"""Deliberately stupid references: one formula a function, float64, dense, nothing saved and nothing shared.

They are written from the papers and not from the code they judge. None of them is fast, and all of them want
every matrix in memory at once.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray

LossFunction = Callable[[FloatArray, FloatArray], FloatArray]


def kernel_matrix(spec: Mapping[str, Any], X: HostArray, Z: HostArray) -> FloatArray:
    """Return ``k(x_i, z_j)`` in float64 for the kernel that `spec` (of :meth:`Kernel.spec`) names, row by row."""
    X64, Z64 = np.asarray(X, np.float64), np.asarray(Z, np.float64)
    return np.array([[_kernel(spec, x, z) for z in Z64] for x in X64]).reshape(len(X64), len(Z64))


def _kernel(spec: Mapping[str, Any], x: FloatArray, z: FloatArray) -> float:
    name = spec["name"]
    if name in ("sum", "product"):
        values = [_kernel(member, x, z) for member in spec["kernels"]]
        return math.fsum(values) if name == "sum" else math.prod(values)
    if name == "scaled":
        return float(spec["factor"]) * _kernel(spec["kernel"], x, z)
    if name == "additive_laplacian":
        return float(np.mean(np.exp(-np.abs(x - z) / np.asarray(spec["length_scale"]))) ** spec["degree"])
    if name in ("laplacian_l1", "laplacian_pq"):
        return _power_laplacian(spec, x - z)
    if "length_scale" in spec:
        return _radial(spec, _radius(spec, x - z))
    return _dot_product(spec, x, z)


def _power_laplacian(spec: Mapping[str, Any], gap: FloatArray) -> float:
    p, q, scale = float(spec.get("p", 1)), float(spec.get("q", 1)), np.asarray(spec["length_scale"], np.float64)
    scaled = np.linalg.solve(scale, gap) if scale.ndim == 2 else gap / scale
    return math.exp(-(math.fsum(abs(float(one)) ** p for one in scaled) ** (q / p)))


def _radius(spec: Mapping[str, Any], gap: FloatArray) -> float:
    scale = np.asarray(spec["length_scale"], np.float64)
    if "metric" in spec:
        return math.sqrt(max(0.0, float(gap @ np.asarray(spec["metric"]) @ gap))) / float(scale)
    scaled = np.linalg.solve(scale, gap) if scale.ndim == 2 else gap / scale
    return math.sqrt(float((scaled**2).sum()))


def _radial(spec: Mapping[str, Any], r: float) -> float:
    one: dict[str, Callable[[], float]] = {
        "gaussian": lambda: math.exp(-(r**2) / 2),
        "laplacian": lambda: math.exp(-r),
        "cauchy": lambda: 1 / (1 + r**2),
        "matern12": lambda: math.exp(-r),
        "matern32": lambda: (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r),
        "matern52": lambda: (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r),
        "rational_quadratic": lambda: (1 + r**2 / (2 * spec["alpha"])) ** -spec["alpha"],
    }
    return one[spec["name"]]()


def _dot_product(spec: Mapping[str, Any], x: FloatArray, z: FloatArray) -> float:
    name, product = spec["name"], float((x * z).sum())
    if name == "linear":
        return product
    if name == "polynomial":
        return float((float(spec["gamma"]) * product + float(spec["coef0"])) ** float(spec["degree"]))
    lengths = math.sqrt(float((x * x).sum())) * math.sqrt(float((z * z).sum()))
    angle = _angle(x, z) if lengths > 0 else math.pi / 2
    if name == "inverse_polynomial":
        return 1 / (2 - math.cos(angle))
    if name == "arc_cosine":
        return lengths ** spec["degree"] * _arc_cosine(spec["degree"], angle)
    if name == "neural_tangent":
        return lengths * _neural_tangent(spec["depth"], angle)
    raise ValueError(f"no naive formula for the kernel {name!r}")


def _angle(x: FloatArray, z: FloatArray) -> float:
    """Return the angle by Kahan's formula, which is exact where arccos loses half of the digits."""
    a, b = x / np.linalg.norm(x), z / np.linalg.norm(z)
    return 2 * math.atan2(float(np.linalg.norm(a - b)), float(np.linalg.norm(a + b)))


def _arc_cosine(degree: int, t: float) -> float:
    if degree == 0:
        return 1 - t / math.pi
    if degree == 1:
        return (math.sin(t) + (math.pi - t) * math.cos(t)) / math.pi
    return (3 * math.sin(t) * math.cos(t) + (math.pi - t) * (1 + 2 * math.cos(t) ** 2)) / math.pi


def _neural_tangent(depth: int, t: float) -> float:
    """Return the tangent kernel of unit rows at the angle `t`, by the recursion over layers."""
    if depth == 0:
        return math.cos(t)
    below = t
    for _ in range(depth - 1):
        below = math.acos(min(1.0, _arc_cosine(1, below)))
    return _arc_cosine(1, below) + _neural_tangent(depth - 1, t) * _arc_cosine(0, below)


def loss_value(spec: str, f: HostArray, y: HostArray) -> FloatArray:
    """Return the loss of each row (m,), a number at a time, for the loss of that name, or "name:parameter"."""
    return np.array([_loss(spec, [float(v) for v in row], [float(v) for v in t]) for row, t in zip(f, y, strict=True)])


def _loss(spec: str, f: list[float], y: list[float]) -> float:
    name, _, word = spec.partition(":")
    if name == "multiclass_hinge":
        right, costs = y.index(1.0), [row.split(",") for row in word.split("/")]
        wrong = [k for k in range(len(f)) if k != right]
        return max(0.0, *((float(costs[right][k]) if word else 1.0) + f[k] - f[right] for k in wrong))
    a = float(word or 1)
    if name == "multinomial_logistic":
        return math.log(sum(math.exp(score) for score in f)) - sum(a * b for a, b in zip(f, y, strict=True))
    one: dict[str, Callable[[float, float], float]] = {
        "absolute": lambda s, t: abs(s - t),
        "quantile": lambda s, t: a * (t - s) if t > s else (1 - a) * (s - t),
        "huber": lambda s, t: (s - t) ** 2 / 2 if abs(s - t) <= a else a * abs(s - t) - a * a / 2,
        "epsilon_insensitive": lambda s, t: max(0.0, abs(s - t) - a),
        "squared_epsilon_insensitive": lambda s, t: max(0.0, abs(s - t) - a) ** 2,
        "smoothed_hinge": lambda s, t: (
            0.0 if t * s >= 1 else 1 - t * s - a / 2 if t * s <= 1 - a else (1 - t * s) ** 2 / (2 * a)
        ),
        "squared": lambda s, t: (s - t) ** 2 / 2,
        "squared_hinge": lambda s, t: max(0.0, 1 - t * s) ** 2,
        "hinge": lambda s, t: max(0.0, 1 - t * s),
        "logistic": lambda s, t: math.log(1 + math.exp(-t * s)),
    }
    return sum(one[name](s, t) for s, t in zip(f, y, strict=True))


def numerical_gradient(value: LossFunction, f: FloatArray, y: FloatArray, step: float = 1e-6) -> FloatArray:
    """Return the derivative of ``value(f, y)`` (m,) with respect to every score, by central differences."""
    gradient = np.zeros_like(f)
    for output in range(f.shape[1]):
        ahead, behind = f.copy(), f.copy()
        ahead[:, output] += step
        behind[:, output] -= step
        gradient[:, output] = (value(ahead, y) - value(behind, y)) / (2 * step)
    return gradient


def objective(
    value: LossFunction,
    K_XZ: FloatArray,
    K_ZZ: FloatArray,
    a: FloatArray,
    y: FloatArray,
    alpha: float,
    weight: FloatArray | None = None,
) -> float:
    """Return ``(1/n) sum_i w_i loss(f(x_i), y_i) + (alpha/2) |f|^2`` for ``f = sum_j k(., z_j) a_j``."""
    losses = value(K_XZ @ a, y)
    mean = float(np.mean(losses if weight is None else losses * weight.ravel()))
    return mean + alpha / 2 * float(np.trace(a.T @ K_ZZ @ a))


def ridge(K: FloatArray, y: FloatArray, alpha: float, weight: FloatArray | None = None) -> FloatArray:
    """Return the minimiser (n, c) of the squared loss with all rows as centres: ``(W K/n + alpha) a = W y/n``."""
    n = len(K)
    W = np.eye(n) if weight is None else np.diag(weight.ravel())
    return np.linalg.solve(W @ K / n + alpha * np.eye(n), W @ y / n)


def nystrom_ridge(K_XZ: FloatArray, K_ZZ: FloatArray, y: FloatArray, alpha: float) -> FloatArray:
    """Return the minimiser (p, c) of the squared loss over p centres: ``(K_ZX K_XZ/n + alpha K_ZZ) a = K_ZX y/n``."""
    n = len(K_XZ)
    return np.linalg.solve(K_XZ.T @ K_XZ / n + alpha * K_ZZ, K_XZ.T @ y / n)


def damped_directions(
    K_SS: FloatArray, q: int, rho: float, tau: float, weight: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the q + 1 leading eigenvalues l of ``W^(1/2) K_SS W^(1/2) / s``, V and ``1 - (tau l_{q+1}/l_i)^rho``.

    Column i of V holds the coefficients over S of the direction ``psi_i``, which has norm 1 in H.
    """
    s = len(K_SS)
    root = np.ones(s) if weight is None else np.sqrt(weight.ravel())
    values, vectors = np.linalg.eigh(np.diag(root) @ K_SS @ np.diag(root) / s)
    values, vectors = values[::-1], vectors[:, ::-1]
    psi = np.diag(root) @ vectors[:, :q] / np.sqrt(s * values[:q])
    return values[: q + 1], psi, 1 - (tau * values[q] / values[:q]) ** rho


def precondition(
    K: FloatArray, S: HostArray, h: FloatArray, q: int, rho: float, tau: float, weight: FloatArray | None = None
) -> FloatArray:
    """Return the values of ``P h`` at the points of `K` (u, u) for a function with the values `h` (u, c) there.

    ``P h = h - sum_i (1 - (tau l_{q+1}/l_i)^rho) <psi_i, h> psi_i``; `S` are the numbers of the subsample's points.
    """
    _, psi, damping = damped_directions(K[np.ix_(S, S)], q, rho, tau, weight)
    result = h.copy()
    for i in range(q):
        inner = psi[:, i] @ h[S]  # <psi_i, h>: the reproducing property
        result -= damping[i] * np.outer(K[:, S] @ psi[:, i], inner)
    return result


def eigenpro_step(
    K: FloatArray,
    S: HostArray,
    B: HostArray,
    f: FloatArray,
    g: FloatArray,
    eta: float,
    alpha: float,
    *,
    q: int,
    rho: float,
    tau: float,
    weight: FloatArray | None = None,
) -> FloatArray:
    """Return the values (u, c) of ``f - eta P ((1/m) sum_{i in B} g_i k(x_i, .) + alpha f)`` at the points of `K`."""
    return f - eta * precondition(K, S, K[:, B] @ g / len(B) + alpha * f, q, rho, tau, weight)


def nystrom_features(K_XZ: FloatArray, K_ZZ: FloatArray, rank: int) -> tuple[FloatArray, FloatArray]:
    """Return the `rank` leading eigenvalues of the Nystrom kernel ``K_XZ K_ZZ^-1 K_ZX / n`` and eigenfeatures (n, r).

    The features have ``psi psi^T = K_XZ K_ZZ^-1 K_ZX``; their signs are arbitrary.
    """
    n = len(K_XZ)
    values, vectors = np.linalg.eigh(K_XZ @ np.linalg.solve(K_ZZ, K_XZ.T) / n)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    return values, vectors * np.sqrt(n * values)
