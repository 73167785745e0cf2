"""Rows on Adult: the lecture's table of AMM, and the systems with fixed features in figure 1(1) of Dai et al."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from daskkern.basis import AllRows, BasisSpec, Linear, NystromFeatures, RandomFeatures
from daskkern.kernels import Gaussian, Kernel, LinearKernel, Polynomial
from daskkern.solvers import AMM, SDCA, SVM, Pegasos
from papers.form import PaperRow, with_median
from papers.lecture_rows import ADULT, MEDIAN

_A9A = "Theirs is a9a, the same people as 123 columns of 0 and 1, numbers in bins, 32,561 for training."
_PENALTY = "The penalty is not in the text: alpha 1e-4."


def _linear(data: Any) -> Kernel:
    return LinearKernel()


def _square(data: Any) -> Kernel:
    return Polynomial(2, gamma=1 / data.X.shape[1])


_AMM = PaperRow(
    "amm-adult", "amm", "AMM, several hyperplanes a class, 20 epochs", "a9a", "adult", _linear, "multiclass_hinge",
    Linear(), AMM(averaging=0.5), 20, alpha=1e-4, paper_error=0.1503, paper_seconds=2.0,
    differences=(ADULT, _A9A, _PENALTY),
)  # fmt: skip
_FIXED = PaperRow(
    "r-pegasos-adult", "doubly", "Pegasos on 256 random features, hinge, one pass", "Adult", "adult",
    with_median(Gaussian), "hinge", RandomFeatures(256), Pegasos(averaging=0.5), 1, alpha=1e-5,
    paper_words="a point of a plot", differences=(ADULT, f"{MEDIAN} 1e-5."),
)  # fmt: skip


def _fixed_features() -> Iterator[PaperRow]:
    bases: tuple[tuple[str, str, BasisSpec], ...] = (
        ("r", "random", RandomFeatures(256)), ("n", "Nystrom", NystromFeatures(256)),
    )  # fmt: skip
    for letter, word, basis in bases:
        for name, solver in (("Pegasos", Pegasos(averaging=0.5)), ("SDCA", SDCA())):
            what = f"{name} on 256 {word} features, hinge, one pass"
            yield replace(_FIXED, key=f"{letter}-{name.lower()}-adult", what=what, basis=basis, solver=solver)


ADULT_ROWS: tuple[PaperRow, ...] = (
    _AMM,
    replace(
        _AMM, key="amm-adult-online", what="AMM online, one epoch", n_epochs=1, solver=AMM(averaging=0.0),
        paper_error=0.1644, paper_seconds=0.2,
    ),
    replace(
        _AMM, key="linear-adult", what="linear Pegasos, 20 epochs", loss="hinge", solver=Pegasos(averaging=0.5),
        paper_error=0.1504, paper_seconds=1.0,
    ),
    replace(
        _AMM, key="square-svm-adult", what="exact support vectors, polynomial kernel of degree 2, C = 1", loss="hinge",
        kernel=_square, basis=AllRows(), solver=SVM(), n_epochs=1, cost=1.0, paper_error=0.1494, paper_seconds=2.0,
        differences=(ADULT, _A9A, "C and the kernel's factor are not in the text: 1, and (x z / 104 + 1)^2."),
    ),
    *_fixed_features(),
)  # fmt: skip
"""In the order of the page."""
