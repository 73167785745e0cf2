"""The base class of solvers: hyper-parameters, and the steps that advance a state, against a communicator.

A solver uses arrays and a communicator only, neither Dask nor Zarr nor files: the trainer passes batches to it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.nested_parameters import NestedParameters
from daskkern.events import SpectrumFound
from daskkern.losses import Loss
from daskkern.preconditioners import StableSteps
from daskkern.solvers.costs.columns import ColumnCosts
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.preparation import SpectrumRequest
from daskkern.solvers.problem import Batch, Certificate, Problem
from daskkern.solvers.sampling import check_way
from daskkern.solvers.setup import ColumnSetup, RankInputs, RankSetup
from daskkern.solvers.snapshot import Snapshot

State = TypeVar("State")


@dataclass(frozen=True)
class Solver(NestedParameters, ABC, Generic[State]):
    """Frozen hyper-parameters of one method. State is a value: :meth:`step` returns a new one."""

    name: ClassVar[str]
    parallelism: ClassVar[str] = "columns"
    """How a fit is distributed: "columns" splits the columns of the model over the ranks, and every rank visits every
    row; "rows" splits the rows of each batch, and every rank has all columns; "nothing" runs on one rank."""
    bases: ClassVar[tuple[str, ...]] = ("all rows", "landmarks")
    """The function spaces that the solver supports."""
    ability: ClassVar[tuple[type[Any], str] | None] = None
    """The protocol that a loss must implement, and its description; None accepts every loss."""

    auto_batch: ClassVar[int | None] = None
    """Rows of an automatic batch; None derives them from the data: half the size beyond which steps no longer grow."""
    needs_rows: ClassVar[bool] = False
    """Whether steps need the rows of a batch in addition to its kernel block."""
    row_products: ClassVar[bool] = False
    """Whether steps need the inner products of a batch's rows."""
    each_row_once: ClassVar[bool] = False
    """Whether a pass must visit every row once, so that rows cannot be sampled with other probabilities."""
    suits_smooth_kernels: ClassVar[bool] = False
    """Whether ten epochs or so fit a smooth kernel as well as ridge regression with a tenth more on the diagonal does,
    so that the kernel "auto" may become one; else it is the Laplacian."""
    solves_exactly: ClassVar[bool] = False
    """Whether a fit gets to the minimum in all directions, also in those of the smallest eigenvalues."""
    learns_centres: ClassVar[bool] = False
    """Whether the solver learns the points of its columns: see :meth:`points`. Such a solver runs on one rank."""
    divides_batches: ClassVar[bool] = False
    """Whether the rows of a batch may be divided between groups of ranks that each have all columns: steps then take
    nothing from rows but scores and sums over rows, which are added over the groups; see
    :mod:`daskkern.solvers.groups`."""
    preparation: ClassVar[str] = "statistics"
    """What is found once for all ranks before the first step, of :data:`daskkern.solvers.preparation.PREPARATIONS`."""
    drops_zeros: ClassVar[bool] = False
    """Whether columns whose coefficients are all 0 are left out of the model."""
    long_steps: ClassVar[bool] = False
    """Whether a step may take seconds, so that ranks ask for control signals before each one."""
    descends: ClassVar[bool] = True
    """Whether the training loss falls from the first epoch on; False where first iterates are far too large."""
    own_limit: ClassVar[str] = ""
    """The setting that may end a solver of one epoch before its certificate is within the tolerance."""

    @property
    def takes_alpha(self) -> bool:
        """Whether `alpha` is the penalty of what is minimised; False where another setting is, and "auto" is 0."""
        return True

    @property
    def state_per_row(self) -> int:
        """How many numbers for each output are stored for every training row, split over the ranks."""
        return 0

    @property
    def own_sampling(self) -> str:
        """The default sampling of batches, one of :data:`daskkern.solvers.sampling.SAMPLING_WAYS`."""
        return "uniform"

    @property
    def scores_each(self) -> int:
        """How many scores each output has, of which the largest is used."""
        return 1

    @property
    def l1_penalty(self) -> float:
        """The factor of a penalty on the absolute values of the coefficients, in addition to the ridge penalty."""
        return 0.0

    @property
    def is_serial(self) -> bool:
        """Whether a fit runs on one rank, whatever the size of the cluster."""
        return self.parallelism == "nothing" or self.learns_centres

    @property
    def storage(self) -> str:
        """Whether eigenfeatures are computed once and stored: "never", "always", or "auto", where that pays."""
        return "never"

    @property
    def storage_folder(self) -> str | None:
        """The folder for them; None is the system's folder for temporary files."""
        return None

    @property
    def projection_factor(self) -> str:
        """Whether projections on the centres use a factor of K_ZZ: "never", "always", or "auto", where it fits."""
        return "never"

    def check_sampling(self, sampling: str) -> None:
        """Raise SpecError where the rows of batches cannot be drawn in this way."""
        ordered = self.parallelism == "columns" and self.preparation != "nothing"
        check_way(sampling, self.name, each_once=self.each_row_once, ordered=ordered)

    def check_explicit(self, space: str) -> None:
        """Raise SpecError for settings that make no sense over explicit features, named by `space`."""
        del space

    def spectrum(self, p: int, n: int, explicit: bool) -> SpectrumRequest:
        """Return the spectrum that is wanted for `p` columns and `n` training rows."""
        del p, n, explicit
        return SpectrumRequest()

    def spectrum_found(
        self, state: StableSteps, n: int, explicit: bool, batch: int, loss: Loss, alpha: float
    ) -> SpectrumFound | None:
        """Return the spectrum in `state` before and after preconditioning, as an event; None where there is none.

        `n` are the training rows, `batch` those of a batch. The step is that of the first batch, before any decay.
        """
        del state, n, explicit, batch, loss, alpha
        return None

    def projection_window(self, p: int, d: int, batch_size: int, *, factor_fits: bool = True) -> int:
        """Return the batches between two projections on `p` centres of `d` features.

        `factor_fits` says whether memory has room for a factor of K_ZZ.
        """
        del p, d, batch_size, factor_fits
        return 1

    def projection_span(self, p: int, d: int, batch_size: int, *, factor_fits: bool = True) -> int:
        """Return the most rows between two projections with batches of at most that size; 0 without projections."""
        del p, d, batch_size, factor_fits
        return 0

    @property
    def chooses_window(self) -> bool:
        """Whether the batches between two projections are chosen for the user."""
        return False

    def projections_in_words(self, window: int, factor_fits: bool) -> str:
        """Return how often projections are made, and how, in a few words; "" where there are none."""
        del window, factor_fits
        return ""

    def as_saved(self, saved: Snapshot) -> Self:
        """Return the solver that keeps its state as `saved` does, for a run that continues from it."""
        del saved
        return self

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        """Return the bytes and seconds that are the method's own, as arithmetic, for `n_rows` training rows."""
        del n_rows, loss
        return ColumnCosts(self.state_per_row, self.row_products)

    def sweeps(self, epoch: int, loss: Loss) -> int:
        """Return how often epoch number `epoch`, from 1, passes over all rows."""
        del epoch, loss
        return 1

    def most_epochs(self, requested: int) -> int:
        """Return how many of the requested epochs the method uses."""
        return requested

    def rank_setup(self, inputs: RankInputs) -> RankSetup:
        """Return what this rank needs in addition to its columns. Every rank calls it: it may communicate.

        By default that is what first-order methods need.
        """
        return ColumnSetup.of(inputs)

    @abstractmethod
    def init(self, problem: Problem[Any], comm: Communicator) -> State:
        """Return the state before the first step: the zero model."""

    @abstractmethod
    def step(
        self, problem: Problem[Any], state: State, batch: Batch, comm: Communicator
    ) -> tuple[State, float | Array]:
        """Return the state after `batch` and the sum of the (weighted) losses of its rows before the step.

        On a GPU the sum may be an array () of it, which the caller reads when it wants to wait.
        """

    def after_rows(
        self, problem: Problem[Any], state: State, comm: Communicator, *, stop: bool
    ) -> tuple[State, float] | None:
        """Return the state after one more piece of the work that follows the last batch of an epoch, without rows.

        With it comes the sum of the losses of all rows as it is last known. None ends the epoch, as by default. Between
        two pieces a run can be stopped and committed, so that a piece should take seconds at most. With `stop` the run
        ends here: the state is then one that a model can be made of, without a further step.
        """
        del problem, state, comm, stop
        return None

    @abstractmethod
    def finish(self, problem: Problem[Any], state: State, comm: Communicator) -> Array:
        """Return this rank's coefficients (p_r, c) of the model that `state` represents, at the end of an epoch."""

    def offset(self, problem: Problem[Any], state: State) -> FloatArray | None:
        """Return constants (c,) to be added to the scores of the model; a solver that has them makes one epoch."""
        del problem, state
        return None

    def certificate(self, problem: Problem[Any], state: State) -> Certificate | None:
        """Return how far the model is from the optimum, at the end of an epoch; None where that is not known.

        The same on every rank, without communication.
        """
        del problem, state
        return None

    def done(self, problem: Problem[Any], state: State) -> bool:
        """Return whether the run may end with this epoch, because the model is within the tolerance of the optimum."""
        certificate = self.certificate(problem, state)
        return certificate is not None and certificate.reached

    def points(self, problem: Problem[Any], state: State) -> HostArray | None:
        """Return the points (p, d), dense or CSR, of the model that `state` represents; None for the problem's."""
        del problem, state
        return None

    def moving_bytes(self, p: int, d: int, itemsize: int) -> int:
        """Return the bytes of p learned points of d features, and of the work on them."""
        del p, d, itemsize
        return 0

    @abstractmethod
    def snapshot(self, problem: Problem[Any], state: State) -> Snapshot | None:
        """Return this rank's part of what :meth:`restore` needs, without copies; None within a window."""

    @abstractmethod
    def restore(self, problem: Problem[Any], saved: Snapshot) -> State:
        """Return this rank's part of a whole snapshot, which may come from any number of ranks.

        The steps that follow give the same bits as those after the snapshot. Raises DataError when it does not fit.
        """


def is_whole(value: object, least: int) -> bool:
    """Return whether `value` is a whole number of at least `least`."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def ratio(a: Array, b: Array) -> Array:
    """Return ``a / b``, 0 where b is not positive: in conjugate gradients, an output that is solved stays as it is."""
    xp = namespace_of(b)
    return xp.where(b > 0, a / xp.where(b > 0, b, 1), 0)


def smoothness_of(loss: Loss) -> float:
    """Return the smoothness L, or 1 for a loss that is not smooth, for which steps decay instead."""
    return float(getattr(loss, "smoothness", 1.0))  # isinstance with a Protocol takes 6 us, more than a small product


def decay(loss: Loss, step: int, batches_per_epoch: int) -> float:
    """Return 1 for a smooth loss and ``(1 + step / batches_per_epoch)^(-1/2)`` for one with kinks."""
    return 1.0 if hasattr(loss, "smoothness") else float((1.0 + step / batches_per_epoch) ** -0.5)
