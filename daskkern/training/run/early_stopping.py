"""Early stopping: its settings, and the rule that ends a fit after epochs without an improvement."""

from dataclasses import dataclass

from daskkern.backend.python_numbers import set_python_numbers
from daskkern.errors import SpecError
from daskkern.losses import Loss, Probabilistic
from daskkern.training.run.best_epoch import BestEpoch, Model

MONITORS = ("auto", "loss", "score")


@dataclass(frozen=True)
class EarlyStopping:
    """When to stop before the last epoch.

    Attributes
    ----------
    fraction : float
        Share of the rows held out for validation when no validation rows are given.
    patience : int
        Number of epochs without an improvement by `tol` after which to stop.
    tol : float
        Least improvement, in units of the monitored quantity: mean loss, accuracy or R2.
    monitor : "auto", "loss" or "score"
        What is monitored on the validation rows: the mean loss, or accuracy (R2 for regression). "auto" is the loss
        where scores can be read as probabilities, of which accuracy says little, or errors have costs, and the score
        otherwise.
    """

    fraction: float = 0.1
    patience: int = 3
    tol: float = 1e-4
    monitor: str = "auto"

    def watches_loss(self, loss: Loss) -> bool:
        """Return whether a fit with `loss` monitors the mean loss."""
        return self.monitor == "loss" or (
            self.monitor == "auto" and (isinstance(loss, Probabilistic) or loss.costs is not None)
        )

    def __post_init__(self) -> None:
        set_python_numbers(self)
        for name in ("fraction", "patience", "tol"):
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, int | float):
                raise SpecError(f"early stopping got {name}={value!r:.60}; expected a number")
        if self.monitor not in MONITORS:
            raise SpecError(f"early stopping got monitor={self.monitor!r}; expected one of {', '.join(MONITORS)}")
        if not 0 < self.fraction < 1 or self.patience < 1 or not self.tol >= 0:
            raise SpecError(
                f"early stopping got fraction {self.fraction}, patience {self.patience} and tol {self.tol}; expected a "
                "fraction between 0 and 1, a patience of at least 1 and a tol of at least 0"
            )


class Patience(BestEpoch):
    """The early stopping rule: keeps the epoch with the best validation score, and decides when to stop.

    With `on_loss` the best epoch is that of least mean loss, whose score is minus the loss; else that of highest score.
    """

    def __init__(self, patience: int, tol: float, on_loss: bool) -> None:
        super().__init__()
        self._patience, self._tol, self._on_loss = patience, tol, on_loss

    def exhausted(self, loss: float, score: float, epoch: int, model: Model) -> bool:
        """Record an epoch, and return whether there were `patience` epochs without an improvement."""
        undefined = score != score  # R2 of equal targets
        self.meet(-loss if self._on_loss or undefined else score, epoch, model, self._tol)
        return epoch - self.best_epoch >= self._patience
