"""The gallery of the site: each script of `docs/gallery` is executed, and its figure stands above its text."""

import ast
import io
import runpy
import warnings
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "gallery"
ORDER = (
    "two_moons",
    "digits_confusion",
    "roc",
    "intervals",
    "learned_features",
    "learning_curves",
    "spectrum",
    "kernel_pca",
    "clusters",
    "novelty",
)


@dataclass(frozen=True)
class Entry:
    """A script: its name, the two parts of its docstring, and the code below it."""

    name: str
    title: str
    words: str
    code: str


def entry(name: str) -> Entry:
    """Read a script of the gallery."""
    text = (FOLDER / f"{name}.py").read_text()
    title, _, words = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")
    return Entry(name, title, words, text.split('"""', 2)[2].strip())


def picture(name: str) -> bytes:
    """Execute a script, in which warnings are errors, and return the figure that it draws last as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(FOLDER / f"{name}.py"))
    drawn = io.BytesIO()
    pyplot.gcf().savefig(drawn, format="png", dpi=110, bbox_inches="tight")
    pyplot.close("all")
    return drawn.getvalue()


def page() -> str:
    """Return the page in Markdown."""
    parts = ["# Gallery\n\nEvery picture is drawn by the lines below it when this site is built.\n"]
    for name in ORDER:
        found = entry(name)
        shown = f"![{found.title}](gallery/{name}.png)"
        parts.append(f"## {found.title}\n\n{found.words}\n\n{shown}\n\n```python\n{found.code}\n```\n")
    return "\n".join(parts)
