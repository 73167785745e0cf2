"""Named systems: a solver, a function space and a loss that belong together, ready to be fitted."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import daskkern  # its estimators need scikit-learn, which takes longer to import than all else: they wait for their use
from daskkern.basis import BasisSpec, Landmarks
from daskkern.errors import SpecError
from daskkern.feature_learning import FeatureLearning
from daskkern.solvers import Direct, Solver

if TYPE_CHECKING:
    from daskkern.estimators import KernelClassifier, KernelRegressor

GROUPS = ("linear", "random features", "online and budgeted", "Nystrom and full kernel")


@dataclass(frozen=True)
class System:
    """A published system and its parts.

    Attributes
    ----------
    name : str
        The name on the command line.
    line : str
        A description in one line.
    reference : str
        The paper.
    group : str
        The systems that it is compared with; one of :data:`GROUPS`.
    solver : Solver
    basis : BasisSpec
    classification, regression : str or None
        The loss for each task; None where the system does not support it.
    alpha : float or "auto"
        Ridge penalty, unless the user gives one.
    batch_size : int or "auto"
    max_epochs : int
    kernel : str
    learn_features : FeatureLearning or None
        How the metric of the kernel is learned.
    """

    name: str
    line: str
    reference: str
    group: str
    solver: Solver[Any]
    basis: BasisSpec
    classification: str | None = "squared"
    regression: str | None = "squared"
    alpha: float | str = 0.0
    batch_size: int | str = "auto"
    max_epochs: int = 10
    kernel: str = "gaussian:median"
    learn_features: FeatureLearning | None = None

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise SpecError(f"system {self.name} has the group {self.group!r}; choose one of {', '.join(GROUPS)}")

    @property
    def tasks(self) -> tuple[str, ...]:
        """The supported tasks."""
        return tuple(task for task in ("classification", "regression") if getattr(self, task) is not None)

    @property
    def estimator(self) -> "KernelClassifier | KernelRegressor":
        """The configured estimator for the first of its tasks; see :meth:`for_task`."""
        return self.for_task(self.tasks[0])

    def for_task(self, task: str, n: int | None = None) -> "KernelClassifier | KernelRegressor":
        """Return a new estimator for "classification" or "regression"; change what you like with ``set_params``.

        Parameters
        ----------
        n : int, optional
            Columns of the model, where the system lets them be chosen.

        Raises
        ------
        SpecError
            When the system is not for the task.
        """
        if task not in ("classification", "regression"):
            raise SpecError(f"got task {task!r} for system {self.name}; give 'classification' or 'regression'")
        make: Any = daskkern.KernelClassifier if task == "classification" else daskkern.KernelRegressor
        own = {"fit_intercept": False} if task == "classification" else {}  # the papers have none
        estimator: KernelClassifier | KernelRegressor = make(
            kernel=self.kernel,
            loss=self.loss_for(task),
            basis=self.basis if n is None else self.with_columns(n),
            solver=self.solver,
            alpha=self.alpha,
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            learn_features=self.learn_features,
            **own,
        )
        return estimator

    def least_squares(self, task: str, landmarks: int, seed: int) -> "KernelClassifier | KernelRegressor":
        """Return a new estimator of the system's loss that finds the exact minimiser over landmarks, in float64."""
        made = self.for_task(task)
        made.set_params(basis=Landmarks(landmarks), solver=Direct(), max_epochs=1, dtype="float64", random_state=seed)
        return made

    def loss_for(self, task: str) -> str:
        """Return the loss for a task. Raises SpecError where the system is not for it."""
        loss: str | None = getattr(self, task)
        if loss is None:
            raise SpecError(f"got task {task} for system {self.name}; it is for {' and '.join(self.tasks)}")
        return loss

    def with_columns(self, n: int) -> BasisSpec:
        """Return the function space with `n` landmarks or features; as it is where their number follows from data."""
        return self.basis if self.basis.drawn_per_step else self.basis.resized(n)

    @property
    def space(self) -> str:
        """The function space in a word or two."""
        return self.basis.name
