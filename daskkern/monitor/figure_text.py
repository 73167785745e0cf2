"""User-provided text in matplotlib figures, shown literally and in every script."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def literal(text: str) -> str:
    r"""Return `text` for matplotlib, which would otherwise parse text between two dollars as a formula."""
    from matplotlib import rcParams

    return text.replace("$", r"\$") if rcParams["text.parse_math"] else text


@contextmanager
def quiet_glyphs() -> Iterator[None]:
    """Within the context, matplotlib does not warn of glyphs that its font lacks; the figure shows boxes for them."""
    with warnings.catch_warnings():
        for words in (r"Glyph .* missing from", "Matplotlib currently does not support"):
            warnings.filterwarnings("ignore", message=words)
        yield


def save_png(figure: Any, path: Any, dpi: int) -> None:
    """Write a figure to a PNG file whose metadata names daskkern as its software."""
    with quiet_glyphs():
        figure.savefig(path, dpi=dpi, format="png", metadata={"Software": "daskkern"}, facecolor="white")
