"""Rows of the lecture on large scale learning: Pegasos, dual coordinate ascent, ASSET and exact support vectors."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from contest.data import Data, median_distance
from sklearn.metrics.pairwise import chi2_kernel
from sklearn.svm import SVC

from daskkern.basis import AllRows, Landmarks, NystromFeatures
from daskkern.basis import Linear as LinearBasis
from daskkern.kernels import ChiSquared, Gaussian, Kernel, LinearKernel
from daskkern.losses import MulticlassHinge
from daskkern.solvers import SAG, SDCA, SGD, SVM, Falkon, Pegasos
from daskkern.systems import SYSTEMS
from papers.form import PaperRow, with_median

MEDIAN = "Length scale and penalty are not in the text: the median distance, and alpha"
ADULT = "Adult as 104 columns, 30,162 rows for training and 15,060 for testing, without rows that lack values."
_FOREST = (
    "Half the length scale removes a part of the difference, five times the epochs hardly more.",
    "A converging solver ends close by: the rest is due to columns and data, not steps. Theirs end at 17.7 and 18.2 %.",
)
_SHORTER = SGD("inverse_root", averaging=0.5)
_SYSTEM = 'The system `asset` itself: `SGD("inverse_root", theta=16.0, averaging=0.5)`, and no constant.'
_NO_SYSTEM = (
    'Not the system `asset`, whose theta is 16: `SGD("inverse_root", theta=1.0, averaging=0.5)`, and a constant.'
)
COVER = "The second cover type against the others; 464,809 rows for training and 116,203 for testing, standardised."

_LAST_HALF = "Pegasos returns the mean of the iterates of the last half of its run, theirs the last one."


def _linear(data: Any) -> Kernel:
    return LinearKernel()


def half(median: float) -> Kernel:
    """Return the Gaussian kernel of half the median distance."""
    return Gaussian(median / 2)


def _asset(size: int, data: str, error: float, seconds: float) -> PaperRow:
    """Return a row with so many columns: of the system `asset` on Adult, of shorter steps on cover types."""
    adult, system = data == "adult", SYSTEMS["asset"]
    return PaperRow(
        f"asset-{data}-{size}", "asset", f"ASSET_M, Gaussian, hinge, {size:,} columns",
        data.upper(), data, with_median(Gaussian), system.loss_for("classification"), NystromFeatures(size),
        system.solver if adult else _SHORTER, system.max_epochs if adult else 3, alpha=float(system.alpha),
        batch_size=system.batch_size, paper_error=error, paper_seconds=seconds, positive=None if adult else 1,
        intercept=not adult, takes="2 min" if adult else "4 min",
        differences=(ADULT if adult else COVER, f"{MEDIAN} 1e-6; {20 if adult else 3} epochs of batches of 8.")
        + ((_SYSTEM,) if adult else (_NO_SYSTEM, *_FOREST)),
    )  # fmt: skip


def _narrow(row: PaperRow, n_epochs: int = 3) -> PaperRow:
    """Return the row with half the length scale."""
    return replace(
        row, key=f"{row.key}-half-{n_epochs}", what=f"{row.what}, half the median distance, {n_epochs} epochs",
        kernel=with_median(half), n_epochs=n_epochs, takes="4 min",
        differences=tuple(said.replace("; 3 epochs", f"; {n_epochs} epochs") for said in row.differences),
    )  # fmt: skip


_PEGASOS = PaperRow(
    "pegasos-adult", "pegasos-kernel", "kernel Pegasos, Gaussian, hinge", "Adult", "adult", with_median(Gaussian),
    "hinge", AllRows(), Pegasos(averaging=0.5), 5, alpha=1e-5, paper_error=0.155, paper_seconds=30.0,
    differences=(ADULT, f"{MEDIAN} 1e-5; 5 epochs.", _LAST_HALF),
    takes="3 min",
)  # fmt: skip
_LINEAR = PaperRow(
    "pegasos-cov1", "pegasos-linear", "Pegasos, hinge", "cov1", "covtype", _linear, "hinge", LinearBasis(),
    Pegasos(project=True, averaging=0.5), 1, alpha=1e-4, paper_error=0.232, paper_seconds=0.32, positive=1,
    unit_range=True,
    differences=(COVER.replace("standardised", "features from 0 to 1"),
                 "Penalty and epochs are not in the text: alpha 1e-4; one epoch of Pegasos, five of SDCA.", _LAST_HALF),
    takes="2 min",
)  # fmt: skip
_ORDERS = PaperRow(
    "orders-adult", "pegasos-orders", "Pegasos, hinge, one row a step: the objective by the order of the rows",
    "astro-ph", "adult", _linear, "hinge", LinearBasis(), Pegasos(averaging=0.0), 16, alpha=1e-3, compares_orders=True,
    most_rows=10_000,
    differences=("10,000 rows of Adult in place of astro-ph, alpha 1e-3, the median of three seeds.",), takes="3 min",
)  # fmt: skip

_SAG = PaperRow(
    "sag-adult", "finite-sums", "logistic regression: the objective less the least one", "two sets", "adult", _linear,
    "logistic", LinearBasis(), SAG("sag"), 16, alpha=5e-4, most_rows=2000, curves="finite sums", intercept=False,
    paper_words="curves without numbers",
    differences=("2,000 rows of Adult, alpha 1 / 2,000. SGD takes one row a step; steps are daskkern's own.",),
)  # fmt: skip


def _svc(data: Data) -> SVC:
    return SVC(C=1.0, gamma=0.5 / median_distance(data.X) ** 2, cache_size=1000)


def _by_columns(data: Data) -> Kernel:
    return Gaussian.from_gamma(1 / data.X.shape[1])


def _svc_by_columns(data: Data) -> SVC:
    return SVC(C=1.0, gamma=1 / data.X.shape[1], cache_size=1000)


def _chi2_svc(data: Data) -> SVC:
    return SVC(C=1.0, kernel=partial(chi2_kernel, gamma=_CHI2_GAMMA))


def _chi2(data: Data) -> Kernel:
    return ChiSquared(_CHI2_GAMMA)


_CHI2_GAMMA = 0.1
_EXACT = PaperRow(
    "svm-magic", "exact-svm", "exact support vectors, Gaussian, C = 1", "", "magic", with_median(Gaussian), "hinge",
    AllRows(), SVM(), 1, cost=1.0, peer=_svc, peer_name="SVC",
    differences=("The median distance as length scale. Seconds of processor time.",),
)  # fmt: skip
_ADULT_SVM = replace(
    _EXACT, key="svm-adult", what="exact support vectors, Gaussian, C = 1, 20,000 rows", data="adult",
    kernel=_by_columns, most_rows=20_000, peer=_svc_by_columns,
    paper_words="15.1% in 59 s, SVM-Light; 15.6% in 1.5 s, LASVM",
    differences=("20,000 rows of Adult, gamma 1 / 104, one over the columns. Seconds of processor time.",),
)  # fmt: skip
_WHOLE_ADULT = replace(
    _ADULT_SVM, key="svm-adult-all", what="exact support vectors, Gaussian, C = 1, 30,162 rows", most_rows=30_162,
    paper_words="",
    differences=("All 30,162 rows of Adult, gamma 1 / 104, one over the columns. Seconds of processor time.",),
)  # fmt: skip
_FOREST_SVM = replace(
    _EXACT, key="svm-covtype", what="exact support vectors, Gaussian, C = 1, 50,000 rows", data="covtype", positive=1,
    most_rows=50_000, takes="4 min",
    differences=("50,000 rows of cover types, the second type against the others. The median distance as length scale.",
                 "Seconds of processor time."),
)  # fmt: skip
_SHIRTS = replace(
    _FOREST_SVM, key="svm-fashion-mnist", data="fashion_mnist", positive=6,
    differences=("50,000 rows of Fashion-MNIST, shirts against the other classes. The median distance as length scale.",
                 "Seconds of processor time."),
)  # fmt: skip
_HISTOGRAMS = replace(
    _EXACT, key="chi2-adult", what="exact support vectors, chi-squared kernel, C = 1", data="adult", kernel=_chi2,
    most_rows=3000, unit_range=True, peer=_chi2_svc,
    differences=("3,000 rows of Adult with features from 0 to 1, gamma 0.1. Seconds of processor time.",),
)  # fmt: skip

_SHIRT = 6
_COSTS = 1 - np.eye(10)
_COSTS[:, _SHIRT] *= 5
_COSTLY = PaperRow(
    "costs-fashion-mnist", "structured-loss", "SDCA, Gaussian: a wrong shirt costs 5, any other error 1", "",
    "fashion_mnist", with_median(Gaussian), MulticlassHinge(_COSTS).spec(), AllRows(), SDCA(), 30, alpha=1e-4,
    most_rows=5000, paper_words="no figure", takes="1 min",
    differences=("5,000 rows of Fashion-MNIST, the median distance, alpha 1e-4, 30 epochs.",),
)  # fmt: skip

LECTURE_ROWS: tuple[PaperRow, ...] = (
    _asset(512, "adult", 0.151, 23.0),
    _asset(1024, "adult", 0.151, 78.0),
    _asset(512, "covtype", 0.182, 697.0),
    _asset(1024, "covtype", 0.165, 2259.0),
    _narrow(_asset(512, "covtype", 0.182, 697.0)),
    _narrow(_asset(1024, "covtype", 0.165, 2259.0)),
    _narrow(_asset(512, "covtype", 0.182, 697.0), n_epochs=15),
    replace(
        _narrow(_asset(512, "covtype", 0.182, 697.0)), key="asset-covtype-512-falkon", basis=Landmarks(512),
        what="Falkon until it converges, Gaussian, squared hinge, 512 columns, half the median distance", n_epochs=20,
        loss="squared_hinge", solver=Falkon(), alpha=1e-8, batch_size="auto", paper_seconds=None, takes="1 min",
        differences=(COVER, f"{MEDIAN.replace('the median', 'half the median')} 1e-8.", *_FOREST),
    ),
    _PEGASOS,
    replace(
        _PEGASOS, key="sdca-adult", what="kernel SDCA, Gaussian, hinge", solver=SDCA(), paper_seconds=4.8,
        differences=_PEGASOS.differences[:-1],
    ),
    _ORDERS,
    _SAG,
    replace(_SAG, key="sag-covtype", data="covtype", positive=1,
            differences=tuple(said.replace("Adult", "cover types, the second against the others")
                              for said in _SAG.differences)),
    _EXACT,
    _ADULT_SVM,
    _WHOLE_ADULT,
    _FOREST_SVM,
    _SHIRTS,
    _HISTOGRAMS,
    _COSTLY,
    _LINEAR,
    replace(_LINEAR, key="sdca-cov1", what="SDCA, hinge", solver=SDCA(), n_epochs=5, paper_error=0.229,
            paper_seconds=0.20, differences=_LINEAR.differences[:-1]),
)  # fmt: skip
"""In the order of the page."""
