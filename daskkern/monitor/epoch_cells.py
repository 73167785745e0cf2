"""The table of epochs as text: headings with units, and formatted values."""

from daskkern.monitor.shares import PARTS

HEADINGS = {
    "loss": "loss",
    "validation_loss": "validation loss",
    "validation_score": "validation score",
    "seconds": "seconds",
    "elapsed": "elapsed s",
    "rows_per_second": "rows/s",
    "computing": "computing",
    "reading": "reading",
    "checkpointing": "checkpoints",
    "waiting": "waiting",
    "exchanging": "exchange",
    "optimality": "to optimum",
}
"""Columns of a history and how they are called, in the order of a table."""


def cell(name: str, value: float) -> str:
    """Return a value of an epoch as text; a dash where it was not measured."""
    if value != value:
        return "\N{EN DASH}"
    if name in PARTS:
        return f"{value:.1%}"
    return f"{value:,.0f}" if name == "rows_per_second" else f"{value:.5g}"
