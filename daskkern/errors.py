"""Exceptions of daskkern. Every message says what was found, what was expected and what to do."""


class DaskkernError(Exception):
    """Base of every error that daskkern raises on purpose."""


class SpecError(DaskkernError, ValueError):
    """A setting that has no meaning: an unknown kernel, a negative length scale, a wrong combination."""


class DataError(DaskkernError, ValueError):
    """Data that cannot be used: NaN, wrong shapes, mismatched rows, text where numbers belong."""


class StoreError(DataError):
    """A store on disk that is missing, corrupt, half-written, or of another schema."""


class SupersededError(StoreError):
    """A later run of the same fit has taken over its files, so that this one may no longer write them."""


class ModelError(StoreError):
    """A saved model that is missing, corrupt, or of another schema."""


class MemoryBudgetError(DaskkernError, MemoryError):
    """A computation whose planned memory exceeds the budget, refused before it starts."""


class ClusterError(DaskkernError, RuntimeError):
    """A cluster that cannot run the fit, or stopped running it."""


class CommunicatorClosedError(ClusterError):
    """A collective that cannot complete: a peer is gone, the deadline passed, or the epoch was aborted."""


class FitCancelledError(DaskkernError, RuntimeError):
    """The fit was cancelled by its user."""


class DivergenceError(DaskkernError, ArithmeticError):
    """An iteration whose numbers left the range of its dtype."""
