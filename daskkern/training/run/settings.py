"""Everything that decides a fit, as one frozen record."""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from daskkern.basis import BasisSpec, is_basis
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import SpecError
from daskkern.kernels import Kernel, Precision, agreed_dtype, check_precision, spec_or_name
from daskkern.losses import Loss, Probabilistic
from daskkern.solvers import Solver

BATCH_ELEMENTS = 1 << 26
"""Most kernel values of one automatic batch over all ranks (256 MiB in float32). A constant, so that the batch -
and with it the model - does not depend on the machine or the number of workers."""
MAX_BATCH = 16_384
KEEP_WAYS = ("auto", "memory", "disk", "never")
SCALES = ("auto", "always", "standard", "robust", "minmax", "maxabs", "unit_variance")
SAMPLING_WAYS = ("uniform", "weighted", "balanced")
MONITORS = ("auto", "loss", "score")


@dataclass(frozen=True)
class EarlyStopping:
    """When to stop before the last epoch.

    Attributes
    ----------
    fraction : float
        Share of the rows held out for validation when no validation rows are given.
    patience : int
        Epochs without an improvement by `tol` after which to stop.
    tol : float
        In units of what is watched: the mean loss, accuracy or R2.
    monitor : "auto", "loss" or "score"
        What is watched on the validation rows: the mean loss, or accuracy (R2 of a regression). "auto" is the loss
        where scores have a reading as probabilities, which accuracy says little of, and else the score.
    """

    fraction: float = 0.1
    patience: int = 3
    tol: float = 1e-4
    monitor: str = "auto"

    def watches_loss(self, loss: Loss) -> bool:
        """Return True where a fit with `loss` watches the mean loss."""
        return self.monitor == "loss" or (self.monitor == "auto" and isinstance(loss, Probabilistic))

    def __post_init__(self) -> None:
        if self.monitor not in MONITORS:
            raise SpecError(f"early stopping got monitor={self.monitor!r}; expected one of {', '.join(MONITORS)}")
        if not 0 < self.fraction < 1 or self.patience < 1 or not self.tol >= 0:
            raise SpecError(
                f"early stopping with fraction {self.fraction}, patience {self.patience} and tol {self.tol} was asked; "
                "the fraction lies between 0 and 1, the patience is at least 1, the tol at least 0"
            )


@dataclass(frozen=True)
class FitSettings:
    """What is fitted and how. Data, cluster and listeners are not part of it.

    Attributes
    ----------
    kernel, loss, basis, solver
        See their packages.
    alpha : float or "auto"
        Ridge penalty in ``(1/n) sum w loss + (alpha/2) |f|^2``. "auto" takes the one that leave-one-out errors of
        ridge regression on sampled rows find best: :mod:`daskkern.training.setup.penalty`.
    max_epochs : int
    batch_size : int or "auto"
        "auto" is half the critical batch of the preconditioner, at most 2^26 / p rows. Half, because a step is then
        4/3 as long per row as at the critical batch, for twice the number of cheap steps.
    seed : int
    dtype : "float32" or "float64"
        Of rows, kernel values and coefficients.
    device : "cpu", "gpu" or "auto"
    class_weight : "balanced", mapping from label to weight, or None
    early_stopping : EarlyStopping or None
    scale : "auto", "always", "standard", "robust", "minmax", "maxabs", "unit_variance" or None
        The scaling of the features that the fit learns and the model records, where ingestion recorded none; None
        takes them as they are. See :func:`daskkern.training.setup.scaling.scales_features` for what "auto" leaves
        alone.
    fit_intercept : bool
        Regression: train on targets minus their mean, and add it again.
    class_intercept : bool
        Classification: add the constant scores of least loss to those of the columns, and train these on the rest. Not
        for losses with kinks.
    memory_budget : int or None
        Bytes that one rank may plan with; None asks the worker or the machine.
    keep_blocks : "auto", "memory", "disk" or "never"
        Where kernel blocks are kept from the first epoch on. "auto" keeps them in memory when they fit, else on the
        local disk when it has room and a measurement says that reading back costs less than computing again. The
        numbers do not depend on it, but for rounding with all rows as centres, and with blocks of more than 32 GB over
        all ranks: "auto" and "never" then deal rows to batches anew in every epoch, and keep none.
    disk_budget : int or None
        Most bytes of a rank's scratch file; None is half of what is free in the folder, shared by its ranks.
    scratch : str or None
        Folder on a local disk for it; None is the worker's own folder, or the system's for temporary files.
    precision : "float32", "float64", "tf32", "float16" or None
        What features are rounded to before kernel values are made of them in training; None rounds nothing. On a GPU
        "tf32" and "float16" use tensor cores; on a processor they only show the error. "float64" sets the dtype too.
        A trained model always predicts in its dtype.
    sampling : "uniform", "weighted" or "balanced"
        How rows are drawn for batches: each once an epoch; in proportion to their weights (class weights included); or
        every class equally often. What is drawn more often counts less, so that the objective does not depend on it.
        Kernel blocks and rows are not kept with the last two. Needs landmarks.
    virtual_shards : int or None
        Into how many virtual ranks columns and rows are dealt, whatever the number of workers: the same bits come from
        any number of workers up to it. Each virtual rank reads all rows, and its terms of every sum travel, so that a
        step sends ``virtual_shards / n_ranks`` times as much. None deals to the ranks that there are: other numbers of
        ranks then round otherwise. With all rows as centres, kernel blocks are not kept.
    behind : int
        Epochs of `max_epochs` that are behind, on other rows.
    max_seconds : float or None
        When to end with the model so far, counted from the start of the set-up; between two batches, so a little later.
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
    scale: str | None = None
    class_intercept: bool = False

    def __post_init__(self) -> None:
        if not is_basis(self.basis):
            raise SpecError(
                f"basis={self.basis!r} was asked; give AllRows(), Landmarks(n), RandomFeatures(n), NystromFeatures(n), "
                "DoublyStochastic() or Linear() of daskkern.basis"
            )
        if self.alpha != "auto" and not _is_penalty(self.alpha):
            raise SpecError(f"got alpha={self.alpha!r}; expected a number of 0 or more, or 'auto'")
        if not _is_whole(self.max_epochs) or self.max_epochs < 1:
            raise SpecError(f"max_epochs={self.max_epochs!r} was asked; give a whole number of at least 1")
        object.__setattr__(self, "max_epochs", self.solver.most_epochs(int(self.max_epochs)))
        if self.batch_size != "auto" and (not _is_whole(self.batch_size) or int(self.batch_size) < 1):
            raise SpecError(f"batch_size={self.batch_size!r} was asked; give a whole number of at least 1 or 'auto'")
        if not _is_whole(self.seed) or self.seed < 0:
            raise SpecError(f"seed {self.seed!r} was asked; give a whole number of 0 or more")
        if self.dtype not in ("float32", "float64"):
            raise SpecError(f"dtype {self.dtype!r} was asked; choose 'float32' or 'float64'")
        if self.precision == "float64":
            object.__setattr__(self, "dtype", "float64")
        elif self.precision is not None:
            agreed_dtype(check_precision(self.precision), self.dtype)
        if isinstance(self.class_weight, str) and self.class_weight != "balanced":
            raise SpecError(f"class_weight={self.class_weight!r} was asked; give 'balanced' or a weight for each class")
        if self.memory_budget is not None and self.memory_budget < 1:
            raise SpecError(f"a memory budget of {self.memory_budget} bytes was asked; give a positive number")
        if self.max_seconds is not None and not (_is_number(self.max_seconds) and self.max_seconds > 0):
            raise SpecError(f"max_seconds={self.max_seconds!r} was asked; give a positive number of seconds, or None")
        if self.keep_blocks not in KEEP_WAYS:
            raise SpecError(f"keep_blocks={self.keep_blocks!r} was asked; choose one of {', '.join(KEEP_WAYS)}")
        # The blocks of a linear model are the rows; features that are drawn again are not kept.
        if not self.basis.has_blocks:
            object.__setattr__(self, "keep_blocks", "never")
        if (
            self.solver.learns_centres and self.keep_blocks == "auto"
        ):  # kernel values go with the points that they are of
            object.__setattr__(self, "keep_blocks", "never")
        if self.scale is not None and self.scale not in SCALES:
            raise SpecError(f"scale={self.scale!r} was asked; choose one of {', '.join(SCALES)}, or None")
        if self.sampling not in SAMPLING_WAYS:
            raise SpecError(f"sampling={self.sampling!r} was asked; choose one of {', '.join(SAMPLING_WAYS)}")
        if self.sampling != "uniform" and self.basis.all_rows:
            raise SpecError(
                f"sampling={self.sampling!r} was asked with all rows as centres, whose coefficients are updated row by "
                "row; give Landmarks(n), or leave it out"
            )
        if self.disk_budget is not None and self.disk_budget < 1:
            raise SpecError(f"a disk budget of {self.disk_budget} bytes was asked; give a positive number")
        if self.virtual_shards is not None:
            self._check_shards(self.virtual_shards)

    def _check_shards(self, shards: int) -> None:
        if not _is_whole(shards) or shards < 1:
            raise SpecError(f"virtual_shards={shards!r} was asked; give a whole number of at least 1, or None")
        if self.solver.is_serial:
            raise SpecError(
                f"virtual_shards={shards} was asked with solver {self.solver.name}, which runs on one rank and "
                "gives the same bits anyway; leave it out"
            )
        if self.basis.all_rows:
            if self.keep_blocks not in ("auto", "never"):
                raise SpecError(
                    f"virtual_shards={shards} was asked with all rows as centres and keep_blocks={self.keep_blocks!r}, "
                    "whose rounding depends on the memory of the workers; choose 'never'"
                )
            object.__setattr__(self, "keep_blocks", "never")

    def shards(self, n_ranks: int) -> int:
        """Return into how many shares the work is dealt, when there are `n_ranks` ranks."""
        return n_ranks if self.virtual_shards is None else int(self.virtual_shards)

    def shards_each(self, n_ranks: int) -> int:
        """Return how many of them one of `n_ranks` ranks has at most."""
        return -(-self.shards(n_ranks) // n_ranks)

    @property
    def chooses_alpha(self) -> bool:
        """Whether the penalty is chosen from the data."""
        return isinstance(self.alpha, str)

    @property
    def ridge(self) -> float:
        """The penalty as a number. SpecError where it is still to be chosen."""
        if isinstance(self.alpha, str):
            raise SpecError(f"got alpha={self.alpha!r} where the penalty is used; expected the number chosen for it")
        return float(self.alpha)

    @property
    def rounding(self) -> Precision | None:
        """The precision that kernel values are made in, or None."""
        return None if self.precision is None else check_precision(self.precision)

    @property
    def passes(self) -> int:
        """Passes over all rows in all epochs."""
        return sum(self.solver.sweeps(epoch, self.loss) for epoch in range(self.behind + 1, self.max_epochs + 1))

    def batch_limit(self, n_columns: int) -> int:
        """Return the most rows of an automatic batch whose kernel block has `n_columns` columns in all."""
        return batch_limit(n_columns)

    def summary(self) -> dict[str, Any]:
        """Return the settings as JSON values, for the saved model."""
        solver = {item.name: _plain(getattr(self.solver, item.name)) for item in fields(self.solver)}
        early = None if self.early_stopping is None else asdict(self.early_stopping)
        weights = self.class_weight if self.class_weight is None else str(self.class_weight)
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
            "class_weight": weights,
            "early_stopping": early,
            "fit_intercept": bool(self.fit_intercept),
            "class_intercept": bool(self.class_intercept),
            "scale": self.scale,
            "sampling": self.sampling,
            "max_seconds": None if self.max_seconds is None else float(self.max_seconds),
            **({} if self.virtual_shards is None else {"virtual_shards": int(self.virtual_shards)}),
        }


def batch_limit(n_columns: int) -> int:
    """Return the most rows of an automatic batch whose kernel block has `n_columns` columns in all."""
    return max(16, min(MAX_BATCH, BATCH_ELEMENTS // max(1, n_columns)))


def _plain(value: Any) -> Any:
    """Return a setting as a JSON value."""
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_penalty(value: object) -> bool:
    return _is_number(value) and 0 <= float(value) < math.inf  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
