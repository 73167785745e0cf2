"""The reproduced rows. Every figure is printed in the paper or lecture."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from contest.data import Data, median_distance
from sklearn.metrics.pairwise import chi2_kernel
from sklearn.svm import SVC

from daskkern.basis import AllRows, DoublyStochastic, Landmarks, NystromFeatures
from daskkern.basis import Linear as LinearBasis
from daskkern.kernels import ArcCosine, Cauchy, ChiSquared, Gaussian, InversePolynomial, Kernel, Laplacian, LinearKernel
from daskkern.solvers import SDCA, SGD, SVM, DoublySGD, EigenPro, Falkon, Norma, NystromSGD, Pegasos
from papers.form import PaperRow, with_median

TABLES = {
    "nystrom-sgd-2": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: table 2, loss after 10 epochs",
    "nystrom-sgd-steps": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: steps of table 3, section 6.1",
    "nystrom-sgd-3": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: table 3, accuracy as error",
    "nystrom-sgd-5": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: table 5, 20 epochs with and without conditioning",
    "nystrom-sgd-4": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: table 4, seconds",
    "eigenpro-epochs": "Ma and Belkin, Diving into the shallows, NeurIPS 2017: epochs to the exact solution's error",
    "doubly": "Dai et al., Doubly stochastic gradients, NeurIPS 2014: Adult, one pass",
    "asset": "Lee and Wright, 2013, as shown in the lecture on large scale learning: its table 3",
    "pegasos-kernel": "Shalev-Shwartz et al., Pegasos, 2011, as shown in the lecture on large scale learning: kernels",
    "pegasos-orders": "Shalev-Shwartz et al., Pegasos, 2011, as shown in the lecture: figure 8, orders of the rows",
    "exact-svm": "Exact support vectors, and chi-squared kernels, which the lecture names, compared with scikit-learn",
    "pegasos-linear": "Shalev-Shwartz et al., Pegasos, 2011, as shown in the lecture on large scale learning: linear",
}
"""Sections of the page, in their order."""

_FASHION = "Fashion-MNIST in place of MNIST: as many rows and pixels, but harder; errors near 10 % are usual."
_MAGIC = "MAGIC gamma telescope in place of FACT: 15,216 rows with 10 features instead of 1.1 million with 16."
_STEP = "The step is daskkern's own, from batch, loss and spectrum; the paper's is 1 / (l_1 l_k)^(1/2)."
_MEDIAN = "Length scale and penalty are not in the text: the median distance, and alpha"
_ADULT = "Adult as 104 columns, 30,162 rows for training and 15,060 for testing, without rows that lack values."
_FOREST = (
    "Half the length scale removes a part of the difference, five times the epochs hardly more.",
    "A converging solver ends close by: the rest is due to columns and data, not steps. Theirs end at 17.7 and 18.2 %.",
)
_COVER = "The second cover type against the others; 464,809 rows for training and 116,203 for testing, standardised."


def _arc_cosine(data: Any) -> Kernel:
    return ArcCosine(1)


def _inverse(data: Any) -> Kernel:
    return InversePolynomial()


def _linear(data: Any) -> Kernel:
    return LinearKernel()


def _rbf(data: Any) -> Kernel:
    return Gaussian(data.X.shape[1] ** 0.5)  # exp(-gamma r^2 / 2), gamma = 1 / d


NYSTROM_KERNELS: dict[str, Callable[[Data], Kernel]] = {"RBF": _rbf, "ARC": _arc_cosine, "INV": _inverse}
"""The kernels of Pfahler and Morik."""
_TABLE_2 = {  # MNIST: without and with conditioning, for the squared, hinge and squared hinge loss
    "RBF": ((2.97, 1.46), (2.06, 0.64), (2.97, 0.79)),
    "ARC": ((0.72, 0.25), (0.40, 0.06), (0.44, 0.05)),
    "INV": ((0.67, 0.11), (0.39, 0.01), (0.41, 0.01)),
}
_WITHOUT = (
    "4,000 rows of MAGIC: two classes instead of ten, whose losses add up.",
    "160 directions of 1,600 rows; steps are daskkern's own.",
)
_CONDITIONING = EigenPro(subsample=1600, n_directions=160, rho=0.5, averaging=0.0)
_VANILLA = EigenPro(subsample=1600, n_directions=0, averaging=0.0)


def _table_2() -> Iterator[PaperRow]:
    """Yield the rows of table 2 for MNIST: a kernel, a loss, without conditioning and with it."""
    for name, losses in _TABLE_2.items():
        for loss, both in zip(("squared", "hinge", "squared_hinge"), losses, strict=True):
            for word, solver, theirs in zip(("vanilla", "conditioned"), (_VANILLA, _CONDITIONING), both, strict=True):
                what = f"{word} SGD, {name}, {loss.replace('_', ' ')} loss, 10 epochs"
                yield PaperRow(
                    f"loss-{name.lower()}-{loss.replace('_', '-')}-{word}", "nystrom-sgd-2", what, "MNIST", "magic",
                    NYSTROM_KERNELS[name], loss, AllRows(), solver, 10, batch_size=64, paper_loss=theirs,
                    differences=_WITHOUT, most_rows=4000, takes="1 min",
                )  # fmt: skip


def _steps(data: str) -> PaperRow:
    return PaperRow(
        f"steps-{data.replace('_', '-')}", "nystrom-sgd-steps", "steps with conditioning, batches of 64",
        "MNIST, FACT, SUSY, CIFAR-10, IMDB", data, _rbf, "squared", AllRows(),
        _CONDITIONING, 1, batch_size=64, compares_steps=True, most_rows=3000, takes="1 min",
    )  # fmt: skip


_NYSTROM = PaperRow(
    "nystrom-mnist", "nystrom-sgd-3", "Nystrom-SGD, inverse polynomial, squared hinge, 7 epochs, 10,000 landmarks",
    "MNIST", "fashion_mnist", _inverse, "squared_hinge", Landmarks(10_000), NystromSGD(averaging=0.0), 7,
    batch_size=64, paper_error=0.0123, differences=(_FASHION, _STEP), takes="8 min",
)  # fmt: skip
_CONDITIONED = replace(
    _NYSTROM, key="conditioned-mnist", basis=AllRows(), paper_error=0.0132, takes="8 min",
    what="conditioned SGD on all rows, inverse polynomial, squared hinge, 7 epochs, 160 directions",
    solver=EigenPro(subsample=10_000, n_directions=160, rho=0.5, averaging=0.0),
)  # fmt: skip
_FACT = PaperRow(
    "nystrom-fact", "nystrom-sgd-3", "Nystrom-SGD, arc-cosine, hinge, 10 epochs, 10,000 landmarks",
    "FACT", "magic", _arc_cosine, "hinge", Landmarks(10_000), NystromSGD(averaging=0.0), 10,
    batch_size=64, paper_error=0.1323, differences=(_MAGIC, _STEP), takes="6 min",
)  # fmt: skip
_TWENTY = replace(
    _FACT, key="conditioned-fact-20", table="nystrom-sgd-5", what="with conditioning, 20 epochs", n_epochs=20,
    loss="squared_hinge", basis=Landmarks(4000), paper_error=0.1316,
    differences=(_MAGIC, _STEP, "The table names neither kernel nor loss: arc-cosine, squared hinge; 4,000 landmarks."),
    takes="2 min",
)  # fmt: skip
_SECONDS = replace(
    _NYSTROM, key="seconds-mnist", table="nystrom-sgd-4", n_epochs=3, paper_error=None, paper_setup_seconds=442.0,
    what="Nystrom-SGD with conditioning, arc-cosine, squared hinge, 10,000 landmarks", kernel=_arc_cosine,
    solver=NystromSGD(mode="stored", averaging=0.0), paper_epoch_seconds=12.0,
    differences=("Theirs: two Xeon E5-2697v2, 24 cores, about 300 GB.",
                 "Ours: Fashion-MNIST, of the same size; the set-up includes the features, as theirs does."),
    takes="7 min",
)  # fmt: skip


def _epochs(name: str, kernel: Callable[[float], Kernel], eigenpro: int, pegasos: int) -> tuple[PaperRow, PaperRow]:
    """Return a kernel's rows of the table of epochs: EigenPro, and the same without directions."""
    row = PaperRow(
        f"epochs-{name.lower()}", "eigenpro-epochs", f"EigenPro, {name}, squared loss, 160 directions of 4,800 rows",
        "MNIST", "fashion_mnist", with_median(kernel), "squared", AllRows(),
        EigenPro(subsample=4800, n_directions=160, rho=1.0, averaging=0.0), 40, batch_size=256,
        paper_epochs=eigenpro, most_rows=10_000, takes="2 min",
        differences=("10,000 rows of Fashion-MNIST, not 60,000 of MNIST, so that the exact solution can be computed.",
                     "Length scales are not in the text: the median distance."),
    )  # fmt: skip
    plain = replace(
        row, key=f"{row.key}-sgd", what=f"Pegasos, here SGD without directions, {name}, squared loss", n_epochs=200,
        solver=EigenPro(subsample=4800, n_directions=0, averaging=0.0), paper_epochs=pegasos, takes="5 min",
    )  # fmt: skip
    return row, plain


def _half(median: float) -> Kernel:
    return Gaussian(median / 2)


def _asset(size: int, data: str, error: float, seconds: float) -> PaperRow:
    adult = data == "adult"
    return PaperRow(
        f"asset-{data}-{size}", "asset", f"ASSET_M, Gaussian, hinge, {size:,} columns",
        data.upper(), data, with_median(Gaussian), "hinge", NystromFeatures(size),
        SGD("inverse_root", averaging=0.5), 20 if adult else 3, alpha=1e-6, batch_size=8, paper_error=error,
        paper_seconds=seconds, positive=None if adult else 1, takes="1 min" if adult else "4 min",
        differences=(_ADULT if adult else _COVER, f"{_MEDIAN} 1e-6; {20 if adult else 3} epochs of batches of 8.")
        + (() if adult else _FOREST),
    )  # fmt: skip


def _narrow(row: PaperRow, n_epochs: int = 3) -> PaperRow:
    """Return the row with half the length scale."""
    return replace(
        row, key=f"{row.key}-half-{n_epochs}", what=f"{row.what}, half the median distance, {n_epochs} epochs",
        kernel=with_median(_half), n_epochs=n_epochs, takes="4 min",
    )  # fmt: skip


_PEGASOS = PaperRow(
    "pegasos-adult", "pegasos-kernel", "kernel Pegasos, Gaussian, hinge", "Adult", "adult", with_median(Gaussian),
    "hinge", AllRows(), Pegasos(averaging=0.5), 5, alpha=1e-5, paper_error=0.155, paper_seconds=30.0,
    differences=(_ADULT, f"{_MEDIAN} 1e-5; 5 epochs."), takes="3 min",
)  # fmt: skip
_LINEAR = PaperRow(
    "pegasos-cov1", "pegasos-linear", "Pegasos, hinge", "cov1", "covtype", _linear, "hinge", LinearBasis(),
    Pegasos(project=True, averaging=0.5), 1, alpha=1e-4, paper_error=0.232, paper_seconds=0.32, positive=1,
    unit_range=True,
    differences=(_COVER.replace("standardised", "features from 0 to 1"),
                 "Penalty and epochs are not in the text: alpha 1e-4; one epoch of Pegasos, five of SDCA."),
    takes="2 min",
)  # fmt: skip
_ORDERS = PaperRow(
    "orders-adult", "pegasos-orders", "Pegasos, hinge, one row a step: the objective by the order of the rows",
    "astro-ph", "adult", _linear, "hinge", LinearBasis(), Pegasos(averaging=0.0), 16, alpha=1e-3, compares_orders=True,
    most_rows=10_000,
    differences=("10,000 rows of Adult in place of astro-ph, alpha 1e-3, the median of three seeds.",), takes="3 min",
)  # fmt: skip


def _svc(data: Data) -> SVC:
    return SVC(C=1.0, gamma=0.5 / median_distance(data.X) ** 2, cache_size=1000)


def _chi2_svc(data: Data) -> SVC:
    return SVC(C=1.0, kernel=partial(chi2_kernel, gamma=_CHI2_GAMMA))


def _chi2(data: Data) -> Kernel:
    return ChiSquared(_CHI2_GAMMA)


_CHI2_GAMMA = 0.1
_EXACT = PaperRow(
    "svm-magic", "exact-svm", "exact support vectors, Gaussian, C = 1", "", "magic", with_median(Gaussian), "hinge",
    AllRows(), SVM(), 1, alpha=1 / 15_216, peer=_svc, peer_name="SVC",
    differences=("The median distance as length scale. Seconds of processor time.",),
)  # fmt: skip
_HISTOGRAMS = replace(
    _EXACT, key="chi2-adult", what="exact support vectors, chi-squared kernel, C = 1", data="adult", kernel=_chi2,
    most_rows=3000, alpha=1 / 3000, unit_range=True, peer=_chi2_svc,
    differences=("3,000 rows of Adult with features from 0 to 1, gamma 0.1. Seconds of processor time.",),
)  # fmt: skip
_DOUBLY = PaperRow(
    "doubly-adult", "doubly", "doubly stochastic gradients, Gaussian, hinge, one pass", "Adult", "adult",
    with_median(Gaussian), "hinge", DoublyStochastic(64), DoublySGD(), 1, alpha=1e-5, batch_size=64, paper_error=0.153,
    differences=(_ADULT, f"{_MEDIAN} 1e-5; batches of 64 rows, and as many features: the text does not say how many.",
                 "One pass is 472 steps. The error falls with their number, as rows with 943 and 1,416 show."),
    takes="2 min",
)  # fmt: skip

ROWS: tuple[PaperRow, ...] = (
    *_table_2(),
    *map(_steps, ("adult", "magic", "covtype", "fashion_mnist")),
    _NYSTROM,
    _CONDITIONED,
    replace(
        _CONDITIONED, key="eigenpro-mnist", loss="squared", paper_error=0.0149,
        what="EigenPro on all rows, inverse polynomial, squared loss, 7 epochs, 160 directions",
        solver=EigenPro(subsample=10_000, n_directions=160, rho=1.0, averaging=0.0),
    ),
    _FACT,
    _TWENTY,
    replace(
        _TWENTY, key="vanilla-fact-20", what="without conditioning, 20 epochs", paper_error=0.157,
        solver=NystromSGD(n_directions=0, averaging=0.0),
    ),
    _SECONDS,
    *_epochs("Gaussian", Gaussian, 7, 77),
    *_epochs("Laplacian", Laplacian, 4, 143),
    *_epochs("Cauchy", Cauchy, 7, 78),
    _DOUBLY,
    replace(
        _DOUBLY, key="doubly-adult-preconditioned", batch_size=256, basis=DoublyStochastic(2048),
        what=f"{_DOUBLY.what}, preconditioned", solver=DoublySGD(preconditioner="covariance"),
        differences=(_ADULT, f"{_MEDIAN} 1e-5; batches of 256 rows, 2,048 features for each.",
                     "With 1,024 features it has 15.8%: what remains is the noise of features."),
    ),
    replace(_DOUBLY, key="doubly-adult-32", what=f"{_DOUBLY.what}, in batches of 32", batch_size=32),
    replace(_DOUBLY, key="doubly-adult-3", what=_DOUBLY.what.replace("one pass", "three passes"), n_epochs=3),
    replace(
        _DOUBLY, key="norma-adult", what="NORMA, Gaussian, hinge, one pass", basis=AllRows(), paper_error=0.15,
        solver=Norma("constant", averaging=0.5), alpha=1e-6, batch_size="auto",
        differences=(_ADULT, f"{_MEDIAN} 1e-6."),
    ),
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
    ),
    _PEGASOS,
    replace(
        _PEGASOS, key="sdca-adult", what="kernel SDCA, Gaussian, hinge", solver=SDCA(), paper_seconds=4.8,
    ),
    _ORDERS,
    _EXACT,
    _HISTOGRAMS,
    _LINEAR,
    replace(_LINEAR, key="sdca-cov1", what="SDCA, hinge", solver=SDCA(), n_epochs=5, paper_error=0.229,
            paper_seconds=0.20),
)  # fmt: skip
"""In the order of the page."""
