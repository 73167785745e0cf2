"""The reproduced rows. Every figure is printed in the paper or lecture."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from daskkern.basis import AllRows, DoublyStochastic, Landmarks
from daskkern.kernels import Cauchy, Gaussian, Kernel, Laplacian
from daskkern.solvers import NYTRO, SDCA, DoublySGD, EigenPro, Norma, NystromSGD
from papers.adult_rows import ADULT_ROWS
from papers.form import PaperRow, with_median
from papers.lecture_rows import ADULT, COVER, LECTURE_ROWS, MEDIAN, half
from papers.nystrom_kernels import BLOCKS, NYSTROM_KERNELS, SECONDS, arc_cosine, inverse, rbf
from papers.review_rows import REVIEW_ROWS

TABLES = {
    "nystrom-sgd-2": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: table 2, loss after 10 epochs",
    "nystrom-sgd-steps": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: steps of table 3, section 6.1",
    "nystrom-sgd-figures": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: figures 1 and 2, errors over epochs",
    "nystrom-sgd-3": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: table 3, accuracy as error",
    "nystrom-sgd-5": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: table 5, 20 epochs with and without conditioning",
    "nystrom-sgd-4": "Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018: table 4, seconds",
    "finite-sums": "Schmidt, CPSC 540, lecture of 2016: two logistic regressions, SAG against other methods",
    "eigenpro-descent": "Ma and Belkin, Diving into the shallows, NeurIPS 2017: table of gradient descent",
    "eigenpro-overhead": "Ma and Belkin, Diving into the shallows, NeurIPS 2017: the time of an epoch",
    "eigenpro-epochs": "Ma and Belkin, Diving into the shallows, NeurIPS 2017: epochs to the exact solution's error",
    "doubly": "Dai et al., Doubly stochastic gradients, NeurIPS 2014: Adult and Forest, one pass",
    "asset": "Lee and Wright, 2013, as shown in the lecture on large scale learning: its table 3",
    "pegasos-kernel": "Shalev-Shwartz et al., Pegasos, 2011, as shown in the lecture on large scale learning: kernels",
    "pegasos-orders": "Shalev-Shwartz et al., Pegasos, 2011, as shown in the lecture: figure 8, orders of the rows",
    "exact-svm": "Exact support vectors, and chi-squared kernels, which the lecture names, compared with scikit-learn",
    "structured-loss": "Structured loss, which the lecture names: errors that cost more than others",
    "amm": "Wang et al., adaptive multi-hyperplane machine, 2011, as shown in the lecture on large scale learning",
    "pegasos-linear": "Shalev-Shwartz et al., Pegasos, 2011, as shown in the lecture on large scale learning: linear",
}
"""Sections of the page, in their order."""

_FASHION = "Fashion-MNIST in place of MNIST: as many rows and pixels, but harder; errors near 10 % are usual."
_MAGIC = "MAGIC gamma telescope in place of FACT: 15,216 rows with 10 features instead of 1.1 million with 16."
_STEP = "The step is daskkern's own, from batch, loss and spectrum; the paper's is 1 / (l_1 l_k)^(1/2)."


_TABLE_2 = {  # MNIST: without and with conditioning, for the squared, hinge and squared hinge loss
    "RBF": ((2.97, 1.46), (2.06, 0.64), (2.97, 0.79)),
    "ARC": ((0.72, 0.25), (0.40, 0.06), (0.44, 0.05)),
    "INV": ((0.67, 0.11), (0.39, 0.01), (0.41, 0.01)),
}
_WITHOUT = (
    "4,000 rows of MAGIC: two classes, one output, where the losses of MNIST's ten outputs add up.",
    "The loss is that of the model after 10 epochs on its training rows; the squared one without its half.",
    "160 directions of 1,600 rows; steps are daskkern's own.",
)
_CONDITIONING = EigenPro(subsample=1600, n_directions=160, rho=0.5, averaging=0.0)
_VANILLA = EigenPro(subsample=1600, n_directions=0, averaging=0.0)


def _table_2() -> Iterator[PaperRow]:
    """Yield the rows of table 2 for MNIST: a kernel, a loss, without conditioning and with it, and with equation 9."""
    for name, losses in _TABLE_2.items():
        for loss, both in zip(("squared", "hinge", "squared_hinge"), losses, strict=True):
            for word, solver, theirs in zip(("vanilla", "conditioned"), (_VANILLA, _CONDITIONING), both, strict=True):
                what = f"{word} SGD, {name}, {loss.replace('_', ' ')} loss, 10 epochs"
                yield (row := PaperRow(
                    f"loss-{name.lower()}-{loss.replace('_', '-')}-{word}", "nystrom-sgd-2", what, "MNIST", "magic",
                    NYSTROM_KERNELS[name], loss, AllRows(), solver, 10, batch_size=64, paper_loss=theirs,
                    differences=_WITHOUT, most_rows=4000, takes="1 min",
                ))  # fmt: skip
        yield replace(
            row, key=f"loss-{name.lower()}-squared-hinge-tail-mean", solver=replace(_CONDITIONING, tau="tail_mean"),
            what=f"{row.what}, the conditioner of equations 9 and 10",
            paper_words=f"none; {row.paper_loss} with equation 11",
        )  # fmt: skip


def _steps(data: str) -> PaperRow:
    return PaperRow(
        f"steps-{data.replace('_', '-')}", "nystrom-sgd-steps", "steps with conditioning, batches of 64",
        "MNIST, FACT, SUSY, CIFAR-10, IMDB", data, rbf, "squared", AllRows(),
        _CONDITIONING, 1, batch_size=64, compares_steps=True, most_rows=3000, takes="1 min",
    )  # fmt: skip


_NYSTROM = PaperRow(
    "nystrom-mnist", "nystrom-sgd-3", "Nystrom-SGD, inverse polynomial, squared hinge, 7 epochs, 10,000 landmarks",
    "MNIST", "fashion_mnist", inverse, "squared_hinge", Landmarks(10_000), NystromSGD(averaging=0.0), 7,
    batch_size=64, paper_error=0.0123, differences=(_FASHION, _STEP), takes="8 min",
)  # fmt: skip
_DIGITS = replace(
    _NYSTROM, key="nystrom-digits", data="mnist",
    what="Nystrom-SGD, inverse polynomial, squared hinge, 7 epochs, 10,000 landmarks, on MNIST itself",
    differences=("MNIST itself. They chose the number of epochs by these test rows, we did not.",),
)  # fmt: skip
_CONDITIONED = replace(
    _NYSTROM, key="conditioned-mnist", basis=AllRows(), paper_error=0.0132, takes="8 min",
    what="conditioned SGD on all rows, inverse polynomial, squared hinge, 7 epochs, 160 directions",
    solver=EigenPro(subsample=10_000, n_directions=160, rho=0.5, averaging=0.0),
)  # fmt: skip
_FACT = PaperRow(
    "nystrom-fact", "nystrom-sgd-3", "Nystrom-SGD, arc-cosine, hinge, 10 epochs, 10,000 landmarks",
    "FACT", "magic", arc_cosine, "hinge", Landmarks(10_000), NystromSGD(averaging=0.0), 10,
    batch_size=64, paper_error=0.1323, differences=(_MAGIC, _STEP), takes="6 min",
)  # fmt: skip
_TWENTY = replace(
    _FACT, key="conditioned-fact-20", table="nystrom-sgd-5", what="with conditioning, 20 epochs", n_epochs=20,
    loss="squared_hinge", basis=Landmarks(4000), paper_error=0.1316,
    differences=(_MAGIC, _STEP, "The table names neither kernel nor loss: arc-cosine, squared hinge; 4,000 landmarks."),
    takes="2 min",
)  # fmt: skip
_FIGURE_1 = replace(
    _FACT, key="figure-1-magic", table="nystrom-sgd-figures", what="conditioned SGD, arc-cosine: three losses compared",
    paper_data="MNIST, CIFAR-10, IMDB", basis=AllRows(), solver=_CONDITIONING, paper_error=None, most_rows=4000,
    curves="losses", paper_words="squared hinge: 6 to 7 of 10 epochs", takes="1 min",
    differences=("4,000 rows of MAGIC; 160 directions of 1,600 rows; steps are daskkern's own.",),
)  # fmt: skip
_FIGURE_2 = replace(
    _TWENTY, key="figure-2-magic", table="nystrom-sgd-figures", paper_data="IMDB", paper_error=None,
    what="conditioning for 20 epochs, vanilla for 200", curves="conditioning",
    paper_words="a curve: conditioned is best after 1 or 2 epochs, vanilla still learns at 200", takes="3 min",
    basis=Landmarks(1000),
    differences=(_STEP, "MAGIC, arc-cosine, squared hinge, 1,000 landmarks; theirs is a curve without numbers."),
)  # fmt: skip
_DESCENT = PaperRow(
    "descent-fashion-mnist", "eigenpro-descent", "gradient descent on all rows, Gaussian, squared loss", "MNIST-10k",
    "fashion_mnist", with_median(Gaussian), "squared", Landmarks(1000), NYTRO(), 10_240, most_rows=1000, takes="10 min",
    curves="descent",
    paper_words="training loss 0.407, 0.0961, 0.026, 0.00236, 2.17e-5; test loss 0.407, 0.0974, 0.0459, 0.0364, "
    "0.0355; test error 38.50%, 7.60%, 3.26%, 2.39%, 2.49%; after 1, 80, 1,280, 10,240, 81,920 iterations",
    differences=("1,000 rows of Fashion-MNIST, targets 1 and -1; 10,240 iterations at most: more were not run.",
                 "An epoch is an iteration. Length scale: the median distance; the step is daskkern's own."),
)  # fmt: skip
_SECONDS = replace(
    _NYSTROM, key="seconds-mnist", table="nystrom-sgd-4", n_epochs=3, paper_error=None, paper_setup_seconds=442.0,
    what="Nystrom-SGD with conditioning, arc-cosine, squared hinge, 10,000 landmarks", kernel=arc_cosine,
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


_OVERHEAD = replace(
    _epochs("Gaussian", Gaussian, 7, 77)[0], key="overhead-fashion-mnist", curves="overhead", n_epochs=4,
    table="eigenpro-overhead", paper_epochs=None, paper_words="an epoch takes about 20% longer with the preconditioner",
    what="EigenPro, Gaussian, squared loss, 160 directions of 4,800 rows, and without directions",
    differences=("10,000 rows of Fashion-MNIST; kernel blocks are computed in every epoch. Of each epoch alone.",),
)  # fmt: skip
_DOUBLY = PaperRow(
    "doubly-adult", "doubly", "doubly stochastic gradients, Gaussian, hinge, one pass", "Adult", "adult",
    with_median(Gaussian), "hinge", DoublyStochastic(64), DoublySGD(), 1, alpha=1e-5, batch_size=64, paper_error=0.153,
    differences=(ADULT, f"{MEDIAN} 1e-5; batches of 64 rows, and as many features: the text does not say how many.",
                 "One pass is 472 steps. The error falls with their number, as rows with 943 and 1,416 show."),
    takes="2 min",
)  # fmt: skip

ROWS: tuple[PaperRow, ...] = (
    *_table_2(),
    *map(_steps, ("adult", "magic", "covtype", "fashion_mnist")),
    _NYSTROM,
    _DIGITS,
    replace(_DIGITS, key="nystrom-digits-printed", what=f"{_DIGITS.what}, the step as printed",
            solver=NystromSGD(step_rule="paper", averaging=0.0)),
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
    replace(
        _TWENTY, key="vanilla-fact-200", what="without conditioning, 200 epochs", paper_error=0.149, n_epochs=200,
        solver=NystromSGD(n_directions=0, averaging=0.0),
    ),
    _FIGURE_1,
    _FIGURE_2,
    _SECONDS,
    replace(
        _SECONDS, key="seconds-mnist-conditioned", basis=AllRows(), n_epochs=2, paper_setup_seconds=130.0,
        what="conditioned SGD on all rows, arc-cosine, squared hinge, 160 directions", paper_epoch_seconds=448.0,
        solver=_CONDITIONED.solver, differences=("Fashion-MNIST, of the same size.", SECONDS, BLOCKS),
    ),
    *REVIEW_ROWS,
    _DESCENT,
    _OVERHEAD,
    *_epochs("Gaussian", Gaussian, 7, 77),
    *_epochs("Laplacian", Laplacian, 4, 143),
    *_epochs("Cauchy", Cauchy, 7, 78),
    _DOUBLY,
    replace(
        _DOUBLY, key="doubly-adult-preconditioned", batch_size=256, basis=DoublyStochastic(2048),
        what=f"{_DOUBLY.what}, preconditioned", solver=DoublySGD(preconditioner="covariance"),
        differences=(ADULT, f"{MEDIAN} 1e-5; batches of 256 rows, 2,048 or 1,024 features for each.",
                     "What remains is the noise of features."),
    ),
    replace(
        _DOUBLY, key="doubly-adult-preconditioned-1024", batch_size=256, basis=DoublyStochastic(1024),
        what=f"{_DOUBLY.what}, preconditioned, 1,024 features", solver=DoublySGD(preconditioner="covariance"),
        differences=(ADULT, f"{MEDIAN} 1e-5; batches of 256 rows."),
    ),
    replace(
        _DOUBLY, key="doubly-forest", paper_data="Forest", data="covtype", positive=1, batch_size=4096,
        kernel=with_median(half), basis=DoublyStochastic(2048), alpha=1e-6, paper_error=0.15, takes="10 min",
        what=f"{_DOUBLY.what}, preconditioned", solver=DoublySGD(preconditioner="covariance"),
        differences=(COVER, "Length scale, penalty and sizes are not printed: half the median distance, alpha 1e-6.",
                     "Batches of 4,096 rows, 2,048 features for each, and the preconditioner of section 4."),
    ),
    replace(_DOUBLY, key="doubly-adult-32", what=f"{_DOUBLY.what}, in batches of 32", batch_size=32),
    replace(_DOUBLY, key="doubly-adult-3", what=_DOUBLY.what.replace("one pass", "three passes"), n_epochs=3),
    replace(
        _DOUBLY, key="norma-adult", what="NORMA, Gaussian, hinge, one pass", basis=AllRows(), paper_error=0.15,
        solver=Norma("constant", averaging=0.5), alpha=1e-6, batch_size="auto",
        differences=(ADULT, f"{MEDIAN} 1e-6."),
    ),
    replace(
        _DOUBLY, key="sdca-adult-pass", what="k-SDCA, Gaussian, hinge, one pass", basis=AllRows(), paper_error=0.15,
        solver=SDCA(), batch_size="auto", differences=(ADULT, f"{MEDIAN} 1e-5."),
    ),
    *ADULT_ROWS,
    *LECTURE_ROWS,
)  # fmt: skip
"""In the order of the page."""
