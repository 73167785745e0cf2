"""Rows of Pfahler and Morik, Nystrom-SGD, on IMDB, whose rows are sparse: tables 2, 3 and 5 and both figures."""

from collections.abc import Iterator
from dataclasses import replace

from daskkern.basis import AllRows, Landmarks
from daskkern.solvers import EigenPro, NystromSGD
from papers.form import PaperRow
from papers.nystrom_kernels import BLOCKS, EIGENFEATURES, NYSTROM_KERNELS, SECONDS, arc_cosine, inverse

_DATA = (
    "The same reviews, their 10,000 words, and parts for training and testing (`papers/reviews.py`); tokens may differ."
)
_OWN = "Steps are daskkern's own; the paper's are 1 / (l_1 l_k)^(1/2)."
_TWO = (
    "The loss after 10 epochs, on training rows: of one output, where theirs adds up two, so that half of theirs is to"
)
_FLAT = "Values of the RBF kernel are within 1e-5 of 1 on relative frequencies: no direction after the first is found."
_TABLE_2 = {  # IMDB: without and with conditioning, for the squared, hinge and squared hinge loss
    "RBF": ((2.02, 1.78), (2.00, 1.85), (2.02, 1.79)),
    "ARC": ((1.71, 0.72), (1.63, 0.47), (1.55, 0.50)),
    "INV": ((1.55, 0.63), (1.63, 0.46), (1.55, 0.49)),
}
_VANILLA = EigenPro(subsample=1600, n_directions=0, averaging=0.0)
_CONDITIONING = EigenPro(subsample=4000, n_directions=160, rho=0.5, averaging=0.0)
_ROWS = "4,000 of the 25,000 rows, 160 directions of 1,600 of them."
_LANDMARKS = "4,000 landmarks, theirs 10,000."
_DIRECTIONS = "160 directions of 4,000 rows, theirs of 10,000."

_NYSTROM = PaperRow(
    "nystrom-imdb", "nystrom-sgd-3", "Nystrom-SGD, arc-cosine, squared hinge, 3 epochs, 4,000 landmarks",
    "IMDB", "imdb_words", arc_cosine, "squared_hinge", Landmarks(4000), NystromSGD(averaging=0.0), 3,
    batch_size=64, paper_error=0.1192, differences=(_DATA, _LANDMARKS, _OWN), intercept=False,
)  # fmt: skip
_CONDITIONED = replace(
    _NYSTROM, key="conditioned-imdb", basis=AllRows(), paper_error=0.1148, kernel=inverse, n_epochs=16,
    what="conditioned SGD on all rows, inverse polynomial, squared hinge, 16 epochs, 160 directions",
    solver=_CONDITIONING, most_rows=25_000, differences=(_DATA, _DIRECTIONS, _OWN), takes="2 min",
)  # fmt: skip
_TWENTY = replace(
    _NYSTROM, key="conditioned-imdb-20", table="nystrom-sgd-5", what="with conditioning, 20 epochs, IMDB", n_epochs=20,
    basis=Landmarks(2000), paper_error=0.1433,
    differences=(_DATA, _OWN, "The table names neither kernel nor loss: arc-cosine, squared hinge; 2,000 landmarks."),
)  # fmt: skip
_UNCONDITIONED = NystromSGD(n_directions=0, averaging=0.0)


_SECONDS = replace(
    _NYSTROM, key="seconds-imdb", table="nystrom-sgd-4", paper_error=None, paper_setup_seconds=648.0,
    what="IMDB: Nystrom-SGD with conditioning, arc-cosine, squared hinge, 4,000 landmarks", paper_epoch_seconds=3.0,
    solver=NystromSGD(mode="stored", averaging=0.0), differences=(_DATA, _LANDMARKS, SECONDS),
)  # fmt: skip


def _table_2() -> Iterator[PaperRow]:
    """Yield the rows of table 2 for IMDB: a kernel, a loss, without conditioning and with it."""
    for name, losses in _TABLE_2.items():
        for loss, both in zip(("squared", "hinge", "squared_hinge"), losses, strict=True):
            for word, solver, theirs in zip(("vanilla", "conditioned"), (_VANILLA, _CONDITIONING), both, strict=True):
                yield replace(
                    _NYSTROM, key=f"imdb-{name.lower()}-{loss.replace('_', '-')}-{word}", table="nystrom-sgd-2",
                    what=f"IMDB: {word} SGD, {name}, {loss.replace('_', ' ')} loss, 10 epochs", n_epochs=10, loss=loss,
                    kernel=NYSTROM_KERNELS[name], basis=AllRows(), solver=replace(solver, subsample=1600),
                    paper_error=None, paper_loss=theirs, most_rows=4000,
                    differences=(_DATA, f"{_TWO} be compared; the squared loss is without its half.", _ROWS,
                                 *((_FLAT,) if name == "RBF" else ())),
                    takes="2 min",
                )  # fmt: skip


REVIEW_ROWS: tuple[PaperRow, ...] = (
    *_table_2(),
    replace(
        _NYSTROM, key="steps-imdb", table="nystrom-sgd-steps", what="steps with conditioning, batches of 64",
        basis=AllRows(), solver=replace(_CONDITIONING, subsample=1600), n_epochs=1, compares_steps=True, most_rows=3000,
        paper_error=None, differences=(_DATA, _FLAT), intercept=True, takes="1 min",
    ),
    _NYSTROM,
    _CONDITIONED,
    replace(
        _CONDITIONED, key="eigenpro-imdb", loss="squared", paper_error=0.1171, n_epochs=8,
        what="EigenPro on all rows, inverse polynomial, squared loss, 8 epochs, 160 directions",
        solver=replace(_CONDITIONING, rho=1.0),
    ),
    _TWENTY,
    replace(
        _TWENTY, key="vanilla-imdb-20", what="without conditioning, 20 epochs, IMDB", paper_error=0.1976,
        solver=_UNCONDITIONED,
    ),
    replace(
        _TWENTY, key="vanilla-imdb-200", what="without conditioning, 200 epochs, IMDB", paper_error=0.1374,
        n_epochs=200, solver=_UNCONDITIONED,
    ),
    _SECONDS,
    replace(
        _SECONDS, key="seconds-imdb-vanilla", paper_setup_seconds=445.0,
        what="IMDB: Nystrom-SGD without conditioning, arc-cosine, squared hinge, 4,000 landmarks",
        solver=replace(_UNCONDITIONED, mode="stored"), differences=(*_SECONDS.differences, EIGENFEATURES),
    ),
    replace(
        _SECONDS, key="seconds-imdb-conditioned", basis=AllRows(), n_epochs=2, paper_setup_seconds=255.0,
        what="IMDB: conditioned SGD on all rows, arc-cosine, squared hinge, 160 directions", paper_epoch_seconds=835.0,
        solver=_CONDITIONING, differences=(_DATA, _DIRECTIONS, SECONDS, BLOCKS),
    ),
    replace(
        _NYSTROM, key="figure-1-imdb", table="nystrom-sgd-figures", basis=AllRows(), paper_error=None, n_epochs=10,
        what="conditioned SGD, arc-cosine: three losses compared, IMDB", solver=replace(_CONDITIONING, subsample=1600),
        most_rows=4000, curves="losses", paper_words="squared hinge: 6 to 7 of 10 epochs",
        differences=(_DATA, _ROWS, _OWN),
    ),
    replace(
        _TWENTY, key="figure-2-imdb", table="nystrom-sgd-figures", paper_error=None, basis=Landmarks(1000),
        what="conditioning for 20 epochs, vanilla for 200, IMDB", curves="conditioning", takes="5 min",
        most_rows=10_000,
        paper_words="a curve: conditioned is best after 1 or 2 epochs, vanilla still learns at 200",
        differences=(_DATA, _OWN, "Arc-cosine, squared hinge, 10,000 of the 25,000 rows, 1,000 landmarks."),
    ),
)  # fmt: skip
"""In the order of the page."""
