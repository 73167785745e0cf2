"""Pictures of importances show the columns that matter most, under their names."""

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from daskkern import KernelModel, gradient_importance, interactions, permutation_importance, plot
from daskkern.errors import SpecError
from daskkern.kernels import LinearKernel

matplotlib.use("Agg")
X = np.random.default_rng(0).standard_normal((50, 4))
MODEL = KernelModel(
    LinearKernel(), np.eye(4), np.array([[1.0], [3], [0], [2]]), "squared", "regression", None,
    feature_names=("a", "b $x$", "c", "d" * 40),
)  # fmt: skip


@pytest.fixture
def axes() -> object:
    return Figure().subplots()


def test_bars_are_the_largest_shares(axes) -> None:
    found = gradient_importance(MODEL, X)
    assert plot.importances(found, n_columns=3, axes=axes) is axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([1 / 14, 4 / 14, 9 / 14])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "d" * 25 + "...", r"b \$x\$"]
    assert axes.get_title(loc="left") == "1 more are left out"
    axes.figure.canvas.draw()


def test_bars_of_a_permutation_have_their_spread(axes) -> None:
    found = permutation_importance(MODEL, X, MODEL.predict(X), n_repeats=3)
    plot.importances(found, axes=axes)
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(sorted(found.importances_mean))
    assert len(axes.containers) == 2
    assert axes.get_xlabel() == "fall of the score"


def test_pairs_are_a_map_of_the_columns_that_matter(axes) -> None:
    plot.alignments(gradient_importance(MODEL, X), n_columns=3, axes=axes)
    (image,) = axes.images
    np.testing.assert_allclose(image.get_array(), 1)
    assert [label.get_text() for label in axes.get_xticklabels()] == [r"b \$x\$", "d" * 17 + "...", "a"]


def test_what_cannot_be_drawn_is_said(axes) -> None:
    with pytest.raises(SpecError, match="got a int to draw; expected the result of gradient_importance"):
        plot.importances(3, axes=axes)
    with pytest.raises(SpecError, match="products of gradients were not computed"):
        plot.alignments(gradient_importance(MODEL, X, pairs=False), axes=axes)
    for draw in (plot.importances, plot.alignments):
        with pytest.raises(SpecError, match="got n_columns=0"):
            draw(gradient_importance(MODEL, X), n_columns=0, axes=axes)


def test_interactions_are_a_map(axes) -> None:
    found = interactions(MODEL, X, n_columns=2)
    plot.interactions(found, axes=axes)
    (image,) = axes.images
    assert image.get_array().shape == (2, 2)
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"b \$x\$", "d" * 17 + "..."]
