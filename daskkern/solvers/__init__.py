"""Solvers: one class, one file, one row in :data:`SOLVERS` each."""

from typing import Any

from daskkern.backend.plugins import Registry, derived_from, unknown
from daskkern.losses import Loss
from daskkern.solvers.base import Solver
from daskkern.solvers.compatibility import check_pair
from daskkern.solvers.coordinate_descent import CoordinateDescent
from daskkern.solvers.eigenpro.preconditioned_svrg import PreconditionedSVRG
from daskkern.solvers.eigenpro.solver import EigenPro
from daskkern.solvers.falkon import Falkon
from daskkern.solvers.first_order.adagrad import AdaGrad
from daskkern.solvers.first_order.amm import AMM
from daskkern.solvers.first_order.bsgd import BSGD
from daskkern.solvers.first_order.doubly_sgd import DoublySGD
from daskkern.solvers.first_order.miso import MISO
from daskkern.solvers.first_order.norma import Norma
from daskkern.solvers.first_order.pegasos import Pegasos
from daskkern.solvers.first_order.sag import SAG
from daskkern.solvers.first_order.sdca import SDCA
from daskkern.solvers.first_order.sgd import SGD
from daskkern.solvers.kernel_ridge.askotch import ASkotch
from daskkern.solvers.kernel_ridge.block_cd import BlockCD
from daskkern.solvers.kernel_ridge.direct import Direct
from daskkern.solvers.kernel_ridge.pcg import PCG
from daskkern.solvers.local_ridge import LocalRidge
from daskkern.solvers.nystrom_sgd import NystromSGD
from daskkern.solvers.nytro import NYTRO
from daskkern.solvers.preparation import SpectrumRequest
from daskkern.solvers.problem import AnyProblem, Batch, Certificate, Problem, WholeBatch
from daskkern.solvers.setup import RankInputs, RankSetup, TrainingRows
from daskkern.solvers.snapshot import Shard, Snapshot
from daskkern.solvers.support_vectors import SVM
from daskkern.solvers.variance_reduced.mixed_gradient import MixedGradient
from daskkern.solvers.variance_reduced.sarah import SARAH
from daskkern.solvers.variance_reduced.svrg import S2GD, SVRG

_TABLE: tuple[type[Solver[Any]], ...] = (
    EigenPro,
    NystromSGD,
    Falkon,
    NYTRO,
    Direct,
    PCG,
    SGD,
    AdaGrad,
    CoordinateDescent,
    SDCA,
    SVM,
    MISO,
    Pegasos,
    Norma,
    SAG,
    BSGD,
    SVRG,
    PreconditionedSVRG,
    S2GD,
    SARAH,
    MixedGradient,
    DoublySGD,
    BlockCD,
    ASkotch,
    AMM,
    LocalRidge,
)


SOLVERS: Registry[type[Solver[Any]]] = Registry(
    {solver.name: solver for solver in _TABLE}, "daskkern.solvers", derived_from(Solver, "daskkern.solvers.Solver")
)
"""Solvers by name: the table above, and the classes that installed packages offer as ``daskkern.solvers``."""


_USUAL: dict[str, type[Solver[Any]]] = {"local rows": LocalRidge, "doubly stochastic": DoublySGD}
"""What "auto" is for function spaces that EigenPro does not support."""


def parse_solver(solver: str | Solver[Any], space: str = "") -> Solver[Any]:
    """Return the solver of that name with its defaults, or `solver` itself.

    ``"auto"`` is EigenPro with steps of 1.5 times the default size, see :class:`EigenPro`; over the function space
    "local rows" it is :class:`LocalRidge`, and over "doubly stochastic" :class:`DoublySGD`.

    SpecError lists the known names.
    """
    if isinstance(solver, Solver):
        return solver
    if solver == "auto":
        return _USUAL[space]() if space in _USUAL else EigenPro(step_scale=1.5)
    if isinstance(solver, str) and solver in SOLVERS:
        return SOLVERS[solver]()
    raise unknown("solver", solver, str(solver), SOLVERS, default="auto")


def check_fit(solver: Solver[Any], loss: Loss, basis: str) -> None:
    """Raise SpecError when `solver` does not take `loss` or the function space `basis`; it names those that do."""
    check_pair(solver, loss, basis, SOLVERS.working)


__all__ = [
    "AMM",
    "BSGD",
    "MISO",
    "NYTRO",
    "PCG",
    "S2GD",
    "SAG",
    "SARAH",
    "SDCA",
    "SGD",
    "SOLVERS",
    "SVM",
    "SVRG",
    "ASkotch",
    "AdaGrad",
    "AnyProblem",
    "Batch",
    "BlockCD",
    "Certificate",
    "CoordinateDescent",
    "Direct",
    "DoublySGD",
    "EigenPro",
    "Falkon",
    "LocalRidge",
    "MixedGradient",
    "Norma",
    "NystromSGD",
    "Pegasos",
    "PreconditionedSVRG",
    "Problem",
    "RankInputs",
    "RankSetup",
    "Shard",
    "Snapshot",
    "Solver",
    "SpectrumRequest",
    "TrainingRows",
    "WholeBatch",
    "check_fit",
    "parse_solver",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])
