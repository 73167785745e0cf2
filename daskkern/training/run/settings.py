"""The settings of a fit, as one frozen dataclass."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from daskkern.backend.python_numbers import python_number, set_python_numbers
from daskkern.basis import BasisSpec, is_basis
from daskkern.data.schema.schema import ClassLabel, Scaling
from daskkern.errors import SpecError
from daskkern.feature_learning import FeatureLearning
from daskkern.kernels import Kernel, Precision, agreed_dtype, check_precision, spec_or_name
from daskkern.losses import Loss
from daskkern.solvers import Solver
from daskkern.solvers.penalties import check_penalty, divisor_of
from daskkern.solvers.stored_settings import recorded_settings
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.held_out_sizes import check_calibrate
from daskkern.training.run.rank_settings import check_groups, check_sampling, check_shards

BATCH_ELEMENTS = 1 << 26
"""Most kernel values of an automatic batch over all ranks (256 MiB in float32). On CPUs it is constant, so that the
batch, and thus the model, does not depend on the machine or the number of workers; on GPUs it follows from their kind,
:func:`daskkern.training.planning.device_choices.batch_elements`."""
MAX_BATCH = 16_384
KEEP_WAYS, READING_WAYS = ("auto", "memory", "disk", "never"), ("auto", "once", "each")
_FIXED_SCALES = ("standard", "common", "robust", "minmax", "maxabs", "unit_variance")
SCALES = ("auto", "always", "affine", "arcsinh", "ranks", *_FIXED_SCALES)


@dataclass(frozen=True)
class FitSettings:
    """The model and the method of a fit, without data, cluster and listeners.

    Attributes
    ----------
    kernel, loss, basis, solver
        See their packages.
    alpha : float, "auto" or "auto/4"
        Ridge penalty in ``(1/n) sum w loss + (alpha/2) |f|^2``. "auto" takes the one with the least error of ridge
        regression on sampled rows: :mod:`daskkern.training.setup.penalty`; "auto/4" a quarter of it.
    max_epochs : int
    batch_size : int or "auto"
        "auto" is half the critical batch of the preconditioner, at most 2^26 / p rows, on GPUs `batch_elements` / p.
        Half, because a step is then 4/3 as long per row as at the critical batch, for twice the number of cheap steps.
    seed : int
    dtype : "float32" or "float64"
        Data type of rows, kernel values and coefficients.
    device : "cpu", "gpu" or "auto"
    class_weight : "balanced", mapping from label to weight, or None
    early_stopping : EarlyStopping or None
    multilabel : bool
        The targets are several labels of 0 or 1, each learned by a classification loss of its own output.
    calibrate : bool or float
        Record in the model what its scores mean, see :mod:`daskkern.training.calibration`. A share of the rows is set
        aside for it, at most 2,000; with True, none where there are validation rows, or up to 10,000 rows.
    scale : None, one of :data:`SCALES`, or Scaling
        The scaling of the features that the fit learns and the model records, where ingestion recorded none; None
        leaves them unscaled, and a Scaling is used as it is in place of any other. See
        :func:`daskkern.training.setup.scaling.scales_features` for what "auto" leaves unscaled.
    fit_intercept : bool
        Regression: train on targets minus their mean, and add it to predictions.
    class_intercept : bool
        Classification: add the constant scores of least loss to those of the columns, and train these on the rest. Not
        for losses with kinks.
    learn_features : FeatureLearning or None
        How the metric of the kernel is learned from sampled rows before the fit; None leaves the kernel as it is.
    memory_budget : int or None
        Bytes that one rank may plan with; None takes what the worker or the machine has.
    keep_blocks : "auto", "memory", "disk" or "never"
        Where kernel blocks are cached from the first epoch on. "auto" caches them in memory when they fit, else on the
        local disk when it has room and a measurement shows that reading costs less than computing again. The results
        do not depend on it, except for rounding with all rows as centres, and with blocks of more than 32 GB over all
        ranks: "auto" and "never" then reshuffle rows into new batches in every epoch, and cache none.
    disk_budget : int or None
        Most bytes of a rank's scratch file; None is half of the free space of the folder, shared by its ranks.
    scratch : str or None
        Folder on a local disk for scratch files; None is that of the worker, or the system's for temporary files.
    precision : "float32", "float64", "tf32", "float16" or None
        What features are rounded to before kernel values are computed in training; None rounds nothing. On a GPU
        "tf32" and "float16" use tensor cores; on a CPU they only simulate the rounding. "float64" also sets the dtype.
        A trained model always predicts in its dtype.
    sampling : "uniform", "fresh", "fixed", "independent", "weighted" or "balanced"
        How rows come to batches, :mod:`daskkern.solvers.sampling`. Rows that are drawn more often count less, so that
        the objective does not change. Drawn rows are not cached, and need landmarks or features as the basis.
    virtual_shards : int or None
        Number of virtual ranks that columns and rows are distributed to, whatever the number of workers: any number of
        workers up to it gives the same bits. Each virtual rank reads all rows, and a rank sends up to
        ``2 log2 virtual_shards`` partial sums for every sum instead of one. None distributes to the real ranks: other
        numbers of ranks then round differently. With all rows as centres, kernel blocks are not cached.
    reading : "auto", "once" or "each"
        Whether each rank reads all rows, or every window of rows is read by one rank, which sends its batches to the
        others. "auto" measures both at the beginning of the first epoch that reads several windows. The results do not
        depend on it. Nothing changes with one rank, where ranks have rows of their own, and with stored eigenfeatures,
        of which each rank reads its own columns; virtual ranks each read for themselves.
    groups : int or "auto"
        How many groups of ranks hold the whole model each, divided over the ranks of the group, and compute with a part
        of the rows of every batch; sums over the columns are then those of fewer ranks and rows. The largest number up
        to it that divides the number of ranks is used, which may change when workers do. "auto" is what the plan
        expects to be fastest, 1 for solvers that cannot divide batches. The results differ by rounding.
    behind : int
        Number of the `max_epochs` epochs that were run before, on other rows.
    rows_follow : bool
        Whether the fit continues with other rows: those at hand may then all be of one class.
    max_seconds : float or None
        Time from the start of the set-up after which the fit ends with the model so far, at the end of a batch. After
        a long set-up the steps have a quarter of it all the same.
    batch_elements : int or None
        Most kernel values of an automatic batch over all ranks. None is 2^26, and on GPUs what a 16th of their memory
        holds, a power of two. A fit that is resumed has those that it began with.
    """

    kernel: Kernel
    loss: Loss
    basis: BasisSpec
    solver: Solver[Any]
    alpha: float | str = 0.0
    max_epochs: int = 10
    batch_size: int | str = "auto"
    seed: int = 0
    dtype: str = "float32"
    device: str = "auto"
    class_weight: str | Mapping[ClassLabel, float] | None = None
    early_stopping: EarlyStopping | None = None
    fit_intercept: bool = True
    memory_budget: int | None = None
    keep_blocks: str = "auto"
    disk_budget: int | None = None
    scratch: str | None = None
    precision: str | None = None
    sampling: str = "uniform"
    max_seconds: float | None = None
    virtual_shards: int | None = None
    behind: int = 0
    rows_follow: bool = False
    scale: str | Scaling | None = None
    class_intercept: bool = False
    learn_features: FeatureLearning | None = None
    calibrate: bool | float = False
    multilabel: bool = False
    reading: str = "auto"
    groups: int | str = "auto"
    batch_elements: int | None = None

    def __post_init__(self) -> None:
        set_python_numbers(self)
        if isinstance(self.class_weight, Mapping):
            plain = {label: python_number(weight) for label, weight in self.class_weight.items()}
            object.__setattr__(self, "class_weight", plain)
        self._check_model()
        self._check_limits()
        self._adapt()
        check_sampling(self.sampling, self.basis, self.keep_blocks)
        check_shards(self.virtual_shards, self.solver, self.basis, self.reading, self.keep_blocks)
        check_groups(self.groups, self.solver, self.virtual_shards)
        if self.virtual_shards is not None and self.basis.all_rows:
            object.__setattr__(self, "keep_blocks", "never")

    def _check_model(self) -> None:
        """Raise SpecError for settings of the model that have no meaning."""
        if not is_basis(self.basis):
            raise SpecError(
                f"got basis={self.basis!r}; expected AllRows(), Landmarks(n), RandomFeatures(n), NystromFeatures(n), "
                "DoublyStochastic(), LocalRows(leaf_rows), LocallyLinear(n) or Linear() of daskkern.basis"
            )
        check_penalty(self.alpha)
        if isinstance(self.class_weight, str) and self.class_weight != "balanced":
            raise SpecError(f"got class_weight={self.class_weight!r}; expected 'balanced' or a weight for each class")
        if self.scale is not None and not isinstance(self.scale, Scaling) and self.scale not in SCALES:
            raise SpecError(f"got scale={self.scale!r}; expected one of {', '.join(SCALES)}, a Scaling, or None")
        if self.dtype not in ("float32", "float64"):
            raise SpecError(f"got dtype={self.dtype!r}; expected 'float32' or 'float64'")
        if self.precision not in (None, "float64"):
            agreed_dtype(check_precision(self.precision), self.dtype)
        check_calibrate(self.calibrate)

    def _check_limits(self) -> None:
        """Raise SpecError for numbers and ways of the run that have no meaning."""
        if not _is_whole(self.max_epochs) or self.max_epochs < 1:
            raise SpecError(f"got max_epochs={self.max_epochs!r}; expected a whole number of at least 1")
        if self.batch_size != "auto" and (not _is_whole(self.batch_size) or int(self.batch_size) < 1):
            raise SpecError(f"got batch_size={self.batch_size!r}; expected a whole number of at least 1, or 'auto'")
        if not _is_whole(self.seed) or self.seed < 0:
            raise SpecError(f"got seed={self.seed!r}; expected a whole number of 0 or more")
        for name, unit in (("memory_budget", "bytes"), ("disk_budget", "bytes"), ("max_seconds", "seconds")):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value > 0):
                raise SpecError(f"got {name}={value!r}; expected a positive number of {unit}, or None")
        for name, way, ways in (("keep_blocks", self.keep_blocks, KEEP_WAYS), ("reading", self.reading, READING_WAYS)):
            if way not in ways:
                raise SpecError(f"got {name}={way!r}; expected one of {', '.join(ways)}")
        if self.batch_elements is not None and self.batch_elements < 1:
            raise SpecError(f"got batch_elements={self.batch_elements!r}; expected a whole number of at least 1")

    def _adapt(self) -> None:
        """Change what the solver and the basis determine."""
        if self.chooses_alpha and (not self.solver.takes_alpha or self.solver.l1_penalty > 0):
            object.__setattr__(self, "alpha", 0.0)
        object.__setattr__(self, "max_epochs", self.solver.most_epochs(int(self.max_epochs)))
        if self.precision == "float64":
            object.__setattr__(self, "dtype", "float64")
        # The blocks of a linear model are the rows; features that are drawn again are not cached. Kernel values change
        # with centres that the solver learns.
        if not self.basis.has_blocks or (self.solver.learns_centres and self.keep_blocks == "auto"):
            object.__setattr__(self, "keep_blocks", "never")
        if self.sampling == "uniform":
            object.__setattr__(self, "sampling", self.solver.own_sampling)

    def shards(self, n_ranks: int) -> int:
        """Return the number of shards that the work is distributed to with `n_ranks` ranks."""
        return n_ranks if self.virtual_shards is None else int(self.virtual_shards)

    def shards_each(self, n_ranks: int) -> int:
        """Return the most shards that one of `n_ranks` ranks has."""
        return -(-self.shards(n_ranks) // n_ranks)

    @property
    def chooses_alpha(self) -> bool:
        """Whether the penalty is chosen from the data."""
        return isinstance(self.alpha, str)

    @property
    def alpha_divisor(self) -> float:
        """What the chosen penalty is divided by: 4 for "auto/4"."""
        return divisor_of(self.alpha)

    @property
    def ridge(self) -> float:
        """The penalty as a number. SpecError where it is still to be chosen."""
        if isinstance(self.alpha, str):
            raise SpecError(f"got alpha={self.alpha!r} where the penalty is used; expected the number chosen for it")
        return float(self.alpha)

    @property
    def rounding(self) -> Precision | None:
        """The precision of the features in kernel values, or None."""
        return None if self.precision is None else check_precision(self.precision)

    @property
    def passes(self) -> int:
        """Number of passes over all rows in all epochs."""
        return sum(self.solver.sweeps(epoch, self.loss) for epoch in range(self.behind + 1, self.max_epochs + 1))

    def batch_limit(self, n_columns: int) -> int:
        """Return the most rows of an automatic batch whose kernel block has `n_columns` columns in all."""
        return batch_limit(n_columns, self.batch_elements or BATCH_ELEMENTS)

    def summary(self) -> dict[str, Any]:
        """Return the settings as JSON values, for the saved model."""
        solver = {name: _plain(value) for name, value in recorded_settings(self.solver).items()}
        early = None if self.early_stopping is None else asdict(self.early_stopping)
        return {
            "kernel": spec_or_name(self.kernel),
            "loss": self.loss.spec(),
            "basis": self.basis.name,
            "landmarks": int(n) if (n := getattr(self.basis, "n", None)) else "all",
            "solver": {"name": self.solver.name, **solver},
            "alpha": self.alpha if isinstance(self.alpha, str) else float(self.alpha),
            "max_epochs": int(self.max_epochs),
            "batch_size": self.batch_size if isinstance(self.batch_size, str) else int(self.batch_size),
            "seed": int(self.seed),
            "dtype": self.dtype,
            "precision": self.precision or self.dtype,
            "class_weight": None if self.class_weight is None else str(self.class_weight),
            "early_stopping": early,
            **({"multilabel": True} if self.multilabel else {}),
            **({"calibrate": self.calibrate} if self.calibrate else {}),
            "fit_intercept": bool(self.fit_intercept),
            "class_intercept": bool(self.class_intercept),
            "scale": self.scale.kind if isinstance(self.scale, Scaling) else self.scale,
            **({} if self.learn_features is None else {"learn_features": asdict(self.learn_features)}),
            "sampling": self.sampling,
            "max_seconds": None if self.max_seconds is None else float(self.max_seconds),
            **({} if self.virtual_shards is None else {"virtual_shards": int(self.virtual_shards)}),
            **({} if isinstance(self.groups, str) else {"groups": int(self.groups)}),
            **({"batch_elements": elements} if (elements := self.batch_elements or 0) > BATCH_ELEMENTS else {}),
        }


def batch_limit(n_columns: int, elements: int = BATCH_ELEMENTS) -> int:
    """Return the most rows of an automatic batch whose kernel block has `n_columns` columns and `elements` numbers."""
    return max(16, min(MAX_BATCH, elements // max(1, n_columns)))


def _plain(value: Any) -> Any:
    """Return a setting as a JSON value."""
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
