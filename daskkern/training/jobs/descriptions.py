"""One-line descriptions of fits, for the list on the dashboard."""

from dataclasses import asdict

from daskkern.basis import BasisSpec, uses_kernel
from daskkern.kernels import short_name
from daskkern.monitor.formatting import setting_in_words
from daskkern.training.run.settings import FitSettings

_LONGEST = 300
_LONGEST_SETTING = 200
_IN_OTHER_WORDS = {"kernel", "alpha", "basis", "landmarks", "early_stopping"}
"""Settings whose record is not what people read."""


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


def settings_in_words(settings: FitSettings, n_rows: int) -> dict[str, str]:
    """Return the settings by their names, as a viewer compares fits by them; those of the solver each have an entry.

    Parameters
    ----------
    settings : FitSettings
    n_rows : int
        Of the store, which has at most that many landmarks.
    """
    summary = settings.summary()
    solver = {str(name): value for name, value in summary.pop("solver").items()}
    kernel = {"kernel": short_name(settings.kernel)} if uses_kernel(settings.basis) else {}
    selector = getattr(settings.basis, "selector", None)
    stopping = settings.early_stopping
    found = {
        "solver": str(solver.pop("name")),
        **kernel,
        "columns": _columns(settings.basis, n_rows),
        **({} if selector is None else {"landmarks by": getattr(selector, "name", str(selector))}),
        "penalty": setting_in_words(settings.alpha),
        **{
            name.replace("_", " "): setting_in_words(value)
            for name, value in summary.items()
            if name not in _IN_OTHER_WORDS
        },
        "early stopping": "no" if stopping is None else setting_in_words(asdict(stopping)),
        **{f"{name.replace('_', ' ')} of the solver": setting_in_words(value) for name, value in solver.items()},
    }
    return {name: text[:_LONGEST_SETTING] for name, text in found.items()}


def _columns(basis: BasisSpec, n_rows: int) -> str:
    if basis.all_rows and basis.leaf_size is None:
        return f"all {n_rows:,} rows"
    if basis.n_landmarks is not None:
        return f"{min(basis.n_landmarks, n_rows):,} {basis.name}"
    n = getattr(basis, "n", None)  # the number of features
    return f"{n:,} {basis.name}" if isinstance(n, int) else basis.name
