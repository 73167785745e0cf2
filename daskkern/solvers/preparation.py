"""The kinds of set-up that a solver may request, each computed once for all ranks before the first step."""

from dataclasses import dataclass

PREPARATIONS = {
    "statistics": "the sizes of sampled rows, from which the steps of first-order methods follow",
    "spectrum": "the damped spectrum of a subsample of the centres, or of the covariance of explicit features",
    "eigenbasis": "the eigenfeatures of the landmarks' kernel, and a preconditioner from a pass over all rows",
    "nothing": "nothing but the columns: each rank makes what it needs",
}
"""What :attr:`daskkern.solvers.Solver.preparation` may be."""
SPECTRAL = ("spectrum", "eigenbasis")
"""Preparations that find a preconditioner, and steps and a batch size with it."""


@dataclass(frozen=True)
class SpectrumRequest:
    """How large a spectrum is, and how it is damped.

    Attributes
    ----------
    rows : int
        Rows s of the subsample.
    most : int
        Most directions q that may come out.
    directions : int or None
        The requested number of directions; None for the automatic one.
    rho, tau : float, and float or "tail_mean"
        Damping exponent and factor; see :class:`daskkern.preconditioners.SpectrumSettings`.
    eigen_method : str
        How the eigenpairs are found; see :func:`daskkern.linalg.top_eigenpairs`.
    """

    rows: int = 0
    most: int = 0
    directions: int | None = None
    rho: float = 0.95
    tau: float | str = 1.0
    eigen_method: str = "auto"
