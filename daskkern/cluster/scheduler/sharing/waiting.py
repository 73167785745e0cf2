"""The sentence that says what a queued fit waits for."""

from collections.abc import Callable, Collection, Mapping

_NONE: Mapping[str, str] = {}


def waiting_in_words(
    quota: str,
    missing: int,
    ahead: Collection[str],
    preempts: Collection[str] = (),
    obstacles: Mapping[str, str] = _NONE,
    name_of: Callable[[str], str] = str,
) -> str:
    """Return what a fit waits for in a sentence without a full stop; "" for nothing.

    Parameters
    ----------
    quota : str
        The quota of its user that is used up, in a sentence; "" for none.
    missing : int
        Number of workers that the cluster lacks.
    ahead : collection of str
        The fits that hold what it requests, or come first.
    preempts : collection of str
        Those of them that were asked to hand workers over.
    obstacles : mapping
        Why others of them cannot be.
    name_of : callable
        Returns how a fit is called; its identifier by default.
    """
    if quota:
        return quota
    if missing:
        return f"waiting for {missing} more worker{'s' * (missing > 1)} to join the cluster"
    if preempts:
        names = ", ".join(map(name_of, preempts))
        return f"waiting for fits of a lower priority to commit and to hand workers over: {names}"
    if not ahead:
        return ""
    uses = "fit that uses the workers or comes" if len(ahead) == 1 else "fits that use the workers or come"
    waits = f"waiting for {len(ahead)} {uses} first: {', '.join(map(name_of, ahead))}"
    return "; ".join([waits, *(f"{name_of(fit)} cannot be preempted: {why}" for fit, why in obstacles.items())])
