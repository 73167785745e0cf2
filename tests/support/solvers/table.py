"""The table of solvers: what each minimises, and how near to the optimum it must come."""

from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, Landmarks, Linear, LocallyLinear, NystromFeatures, RandomFeatures
from daskkern.kernels import Laplacian
from daskkern.losses import EpsilonInsensitive, Hinge, Logistic, Loss, MultinomialLogistic, Squared, SquaredHinge
from daskkern.solvers import (
    MISO,
    NYTRO,
    PCG,
    S2GD,
    SAG,
    SARAH,
    SDCA,
    SGD,
    SVM,
    SVRG,
    AdaGrad,
    ASkotch,
    BlockCD,
    CoordinateDescent,
    Direct,
    EigenPro,
    Falkon,
    MixedGradient,
    Norma,
    NystromSGD,
    Pegasos,
    PreconditionedSVRG,
    Solver,
)
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, toy_source

ALPHA = 1e-2


@dataclass(frozen=True)
class Row:
    """A solver, what it minimises, and how near to the optimum it must come.

    `epochs` are enough for an objective above the least one by at most `gap` of its value for the model 0.
    `goes_on` is false where other tests run the solver in parts and on ranks. `stochastic` solvers take steps within
    an epoch: they do not know their training loss, and a repeated row is not one of twice the weight. One that
    `tells_before` knows the loss of the model that an epoch began with. The scores of a run in parts may differ by
    `rounding`, relatively, where kernel values are computed again, together with others.
    """

    solver: Solver[object]
    loss: Loss
    basis: BasisSpec = Landmarks(40)
    epochs: int = 40
    gap: float = 1e-10
    batch_size: int = 130
    regression: bool = False
    goes_on: bool = True
    stochastic: bool = False
    ranks: tuple[int, ...] = (2, 3)
    tells_before: bool = False
    rounding: float = 0.0


TABLE = {
    "eigenpro, all rows": Row(EigenPro(averaging=0.0), Squared(), AllRows(), 200, 1e-5, goes_on=False),
    "eigenpro, landmarks": Row(EigenPro(averaging=0.0), Logistic(), epochs=100, gap=1e-4, goes_on=False),
    "eigenpro, features": Row(EigenPro(averaging=0.0), SquaredHinge(), RandomFeatures(60), 300, 1e-5, stochastic=True),
    "eigenpro, linear": Row(EigenPro(), Logistic(), Linear(), 40, 1e-4, batch_size=30, stochastic=True),
    "eigenpro, nystrom features": Row(
        EigenPro(averaging=0.0), Squared(), NystromFeatures(40), 60, 1e-6, stochastic=True
    ),
    "nystrom_sgd": Row(NystromSGD(mode="streamed"), SquaredHinge(), epochs=300, gap=1e-4, goes_on=False),
    "falkon, squared": Row(Falkon(), Squared(), epochs=40, gap=1e-13, regression=True, batch_size=50),
    "falkon, logistic": Row(Falkon(), Logistic(), epochs=8),
    "nytro, squared": Row(NYTRO(), Squared(), epochs=600, gap=1e-6, regression=True, tells_before=True, batch_size=50),
    "nytro, logistic": Row(NYTRO(1.9), Logistic(), epochs=200, gap=1e-6, tells_before=True),
    "falkon, softmax": Row(Falkon(), MultinomialLogistic(), epochs=8),
    "direct, all rows": Row(Direct(), Squared(), AllRows(), 1, 1e-13, regression=True, batch_size=50, ranks=(1,)),
    "direct, landmarks": Row(Direct(), Squared(), epochs=1, gap=1e-13, ranks=(1,)),
    "direct, random features": Row(Direct(), Squared(), RandomFeatures(40), 1, 1e-13, ranks=(1,)),
    "direct, linear": Row(Direct(), Squared(), Linear(), 1, 1e-13, regression=True, ranks=(1,)),
    "pcg": Row(PCG(), Squared(), AllRows(), 30, 1e-12, regression=True, batch_size=50),
    "pcg, random features": Row(PCG("random_features"), Squared(), AllRows(), 60, 1e-12),
    "pcg, none": Row(PCG("none"), Squared(), AllRows(), 90, 1e-10, regression=True, batch_size=50),
    "falkon, squared hinge": Row(Falkon(newton_passes=10), SquaredHinge(), epochs=12, gap=1e-7),
    "sgd, all rows": Row(SGD(averaging=0.0), Logistic(), AllRows(), 200, 1e-4, stochastic=True),
    "sgd, random features": Row(SGD(), SquaredHinge(), RandomFeatures(60), 60, 1e-3, batch_size=10, stochastic=True),
    "sgd, nystrom features": Row(SGD(averaging=0.0), Squared(), NystromFeatures(40), 200, 1e-5, stochastic=True),
    "sgd, linear": Row(SGD("bottou"), MultinomialLogistic(), Linear(), 60, 1e-4, batch_size=30, stochastic=True),
    "sgd, averaged gradients": Row(
        SGD("dual_averaging", averaging=0.5), Logistic(), Linear(), 90, 1.5e-2, batch_size=30, stochastic=True
    ),
    "sdca, all rows": Row(SDCA(tol=0), Squared(), AllRows(), 60, 1e-9, regression=True, stochastic=True),
    "sdca, random features": Row(SDCA(tol=0), SquaredHinge(), RandomFeatures(60), 60, 1e-6, 30, stochastic=True),
    "sdca, locally linear": Row(SDCA(tol=0), Logistic(), LocallyLinear(6, 3), 40, 1e-7, 30, stochastic=True),
    "sdca, nystrom features": Row(SDCA(tol=0), Logistic(), NystromFeatures(40), 40, 1e-7, 30, stochastic=True),
    "sdca, linear": Row(SDCA(tol=0), MultinomialLogistic(), Linear(), 20, 2e-4, batch_size=65, stochastic=True),
    "svm, hinge": Row(SVM(tol=1e-6), Hinge(), AllRows(), 1, 3e-3, batch_size=50, ranks=(1,), rounding=1e-12),
    "svm, regression": Row(
        SVM(tol=1e-6), EpsilonInsensitive(0.1), AllRows(), 1, 3e-3, 50, regression=True, ranks=(1,), rounding=1e-12
    ),
    "miso, all rows": Row(MISO(tol=0), Squared(), AllRows(), 60, 1e-9, regression=True, stochastic=True),
    "miso, random features": Row(MISO(tol=0), SquaredHinge(), RandomFeatures(60), 60, 1e-6, 30, stochastic=True),
    "miso, linear": Row(MISO(tol=0), MultinomialLogistic(), Linear(), 30, 1e-3, batch_size=65, stochastic=True),
    "sgd, growing": Row(SGD(averaging=0.0, growth=2.0), Logistic(), Linear(), 60, 1e-5, 30, stochastic=True),
    "adagrad, random features": Row(AdaGrad(2.0), Logistic(), RandomFeatures(60), 60, 1e-3, 30, stochastic=True),
    "adagrad, nystrom features": Row(
        AdaGrad(3.0, averaging=0.3), SquaredHinge(), NystromFeatures(40), 60, 1e-3, 30, stochastic=True
    ),
    "adagrad, linear": Row(AdaGrad(), Squared(), Linear(), 60, 1e-3, 30, regression=True, stochastic=True),
    "coordinate descent, linear": Row(CoordinateDescent(tol=0), Squared(), Linear(), 2, 1e-13, 50, regression=True),
    "coordinate descent, random features": Row(CoordinateDescent(tol=0), Logistic(), RandomFeatures(60), 12, 1e-10, 50),
    "coordinate descent, working sets": Row(
        CoordinateDescent(tol=0, working_set=50), SquaredHinge(), RandomFeatures(60), 30, 1e-6, 50
    ),
    "coordinate descent, softmax": Row(CoordinateDescent(tol=0), MultinomialLogistic(), Linear(), 30, 1e-3, 50),
    "pegasos, all rows": Row(Pegasos(), SquaredHinge(), AllRows(), 60, 1e-2, 30, stochastic=True),
    "pegasos, random features": Row(Pegasos(3), Logistic(), RandomFeatures(60), 90, 1e-2, 30, stochastic=True),
    "block_cd": Row(BlockCD(), Squared(), AllRows(), 40, 1e-8, 40, regression=True, stochastic=True),
    "askotch": Row(ASkotch(20), Squared(), AllRows(), 60, 1e-8, 40, regression=True, stochastic=True),
    "norma": Row(Norma(averaging=0.5), Logistic(), AllRows(), 60, 1e-2, 30, stochastic=True),
    "pegasos, linear": Row(
        Pegasos(project=True, average_weights="linear"), MultinomialLogistic(), Linear(), 60, 1e-2, 30, stochastic=True
    ),
    "saga, all rows": Row(SAG(tol=0), Squared(), AllRows(), 30, 1e-7, 65, regression=True, stochastic=True),
    "saga, linear": Row(
        SAG(order="lipschitz", tol=0), SquaredHinge(), Linear(), 40, 1e-10, batch_size=30, stochastic=True
    ),
    "sag, random features": Row(SAG("sag", tol=0), Logistic(), RandomFeatures(60), 25, 1e-5, 65, stochastic=True),
    "sag, independent": Row(
        SAG("sag", order="independent", tol=0), Logistic(), NystromFeatures(40), 40, 1e-3, 30, stochastic=True
    ),
    "sag, line search": Row(
        SAG("sag", "line_search", "lipschitz", 0), Logistic(), NystromFeatures(40), 25, 1e-6, 65, stochastic=True
    ),
    "svrg, all rows": Row(SVRG(theta=1.0, tol=0), Squared(), AllRows(), 30, 1e-5, 30, regression=True, stochastic=True),
    "svrg, random features": Row(
        SVRG(theta=1.0, tol=0), Logistic(), RandomFeatures(60), 25, 1e-10, 30, stochastic=True
    ),
    "svrg, linear": Row(SVRG(theta=1.0, tol=0), SquaredHinge(), Linear(), 25, 1e-9, batch_size=30, stochastic=True),
    "preconditioned svrg, random features": Row(
        PreconditionedSVRG(theta=1.0, tol=0), Logistic(), RandomFeatures(60), 25, 1e-10, 30, stochastic=True
    ),
    "preconditioned svrg, linear": Row(
        PreconditionedSVRG(theta=1.0, tol=0, n_directions=2), SquaredHinge(), Linear(), 25, 1e-9, 30, stochastic=True
    ),
    "s2gd, random features": Row(S2GD(theta=1.0, tol=0), Logistic(), RandomFeatures(60), 30, 1e-8, 30, stochastic=True),
    "mixed gradient, random features": Row(
        MixedGradient(theta=1.0, tol=0), Logistic(), RandomFeatures(60), 30, 1e-6, 30, stochastic=True
    ),
    "sarah, all rows": Row(
        SARAH(theta=1.0, tol=0), Squared(), AllRows(), 30, 1e-5, 30, regression=True, stochastic=True
    ),
    "sarah, nystrom features": Row(
        SARAH(theta=1.0, tol=0), MultinomialLogistic(), NystromFeatures(40), 25, 1e-9, 30, stochastic=True
    ),
}


def row_fit(row: Row, dtype: str = "float64", **changes: object) -> Fit:
    settings = FitSettings(
        Laplacian(3.0), row.loss, row.basis, row.solver, ALPHA, max_epochs=row.epochs, batch_size=row.batch_size,
        dtype=dtype, device="cpu", fit_intercept=False,
    )  # fmt: skip
    return Fit.of(toy_source(weighted=True, regression=row.regression), replace(settings, **changes))


def coefficients(fit: Fit, ranks: int) -> HostArray:
    results = fit.results(ranks)
    coef = np.empty((fit.prepared.basis.n_columns, results[0].coef.shape[1]))
    for result in results:
        coef[result.ids] = result.coef
    return coef
