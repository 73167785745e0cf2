"""What a fit is, in the words of people who look at many of them."""

from daskkern.basis import BasisSpec, uses_kernel
from daskkern.kernels import short_name
from daskkern.training.run.settings import FitSettings

_LONGEST = 300


def method_in_words(settings: FitSettings, n_rows: int) -> str:
    """Return kernel, loss, columns and penalty, as ``gaussian:median, squared_hinge, 1,000 landmarks, penalty auto``.

    Parameters
    ----------
    settings : FitSettings
    n_rows : int
        Of the store, which has at most that many landmarks.
    """
    alpha = settings.alpha if isinstance(settings.alpha, str) else f"{settings.alpha:g}"
    kernel = [short_name(settings.kernel)] if uses_kernel(settings.basis) else []
    return ", ".join([*kernel, settings.loss.name, _columns(settings.basis, n_rows), f"penalty {alpha}"])[:_LONGEST]


def _columns(basis: BasisSpec, n_rows: int) -> str:
    if basis.all_rows and basis.leaf_size is None:
        return f"all {n_rows:,} rows"
    if basis.n_landmarks is not None:
        return f"{min(basis.n_landmarks, n_rows):,} {basis.name}"
    n = getattr(basis, "n", None)  # the number of features
    return f"{n:,} {basis.name}" if isinstance(n, int) else basis.name
