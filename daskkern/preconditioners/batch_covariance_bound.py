"""An upper bound of the preconditioned covariance of a batch that holds with high probability."""

from math import log, sqrt

from daskkern.errors import SpecError


def batch_norm_bound(eigenvalue: float, kappa: float, batch_size: int, dimension: int, delta: float) -> float:
    """Return an upper bound of ``|| P^(1/2) H_m P^(1/2) ||``, H_m the covariance of `batch_size` random rows.

        l_{k+1} + 2 (l_{k+1} + kappa) / (3 m) ln(2 d / delta) + (2 l_{k+1} kappa / m ln(2 d / delta))^(1/2)

    Steps of at most its inverse, divided by the smoothness of the loss, do not increase the error in one batch with
    probability ``1 - delta``. The solvers do not use it: their steps are those of
    :mod:`daskkern.preconditioners.stable_steps`, for EigenPro ``m / (beta + (m - 1) l_P)``, which are stable in the
    mean and longer.

    Parameters
    ----------
    eigenvalue : float
        l_{k+1}, the norm of the preconditioned covariance: P damps k exact eigendirections with tau = 1 and rho = 1.
    kappa : float
        Largest ``x^T P x``.
    batch_size : int
        m.
    dimension : int
        d, the number of features; for a kernel its intrinsic dimension on the data, at most the number of rows.
    delta : float
        Probability with which the bound may fail, between 0 and 1.

    Raises
    ------
    SpecError
        For numbers outside of their ranges.

    References
    ----------
    Ma and Belkin, "Diving into the shallows", NeurIPS 2017, theorem 3, which prints the bound for ``|| P H_m ||``; it
    holds for the symmetric form, by the matrix Bernstein inequality (Tropp, "An introduction to matrix concentration
    inequalities", 2015).
    """
    if not (eigenvalue >= 0 and kappa > 0 and batch_size >= 1 and dimension >= 1 and 0 < delta < 1):
        raise SpecError(
            f"got eigenvalue={eigenvalue}, kappa={kappa}, batch_size={batch_size}, "
            f"dimension={dimension}, delta={delta}; give positive numbers, and delta below 1"
        )
    chances = log(2 * dimension / delta)
    width = 2 * (eigenvalue + kappa) / (3 * batch_size) * chances
    return eigenvalue + width + sqrt(2 * eigenvalue * kappa / batch_size * chances)
