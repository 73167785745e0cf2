"""The display of objects in notebooks: small escaped HTML tables for light and dark themes."""

import re
from collections.abc import Iterable, Sequence
from html import escape

_MOST = 100
_MOST_COUNTS = 8
_DIGITS = re.compile(r"(?<![\w./])\d+\.\d{4,}(?:e[-+]?\d+)?(?![\w/]|\.\w)")
"""A decimal number of many digits that is not part of a path or a version."""
_NUMBER = re.compile(r"[-+]?[\d.]|[-\N{EN DASH}]?$|nan|inf")
_CELL = "text-align:{};padding:2px 10px;border-bottom:1px solid rgba(128,128,128,.35);background:none;color:inherit"
_TABLE = "border-collapse:collapse;color:inherit;font-size:90%"


def short(value: object, most: int = 80) -> str:
    """Return a text of at most `most` characters."""
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def rounded(text: str) -> str:
    """Return a text whose numbers have six digits at most."""
    return _DIGITS.sub(lambda found: f"{float(found[0]):.6g}", text)


def html_facts(title: str, facts: Iterable[tuple[str, object]]) -> str:
    """Return HTML with a title and a row for each fact; empty ones are left out. All texts are escaped."""
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL.format("left")}">{escape(name)}</th>'
        f'<td style="{_CELL.format("left")}">{escape(short(rounded(str(value)), 300))}</td></tr>'
        for name, value in facts
        if value not in (None, "", ())
    )
    return _framed(title, f"<tbody>{rows}</tbody>")


def html_table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> str:
    """Return HTML with a title and a table, numbers to the right; at most 100 rows. All texts are escaped."""
    texts = [[str(cell) for cell in row] for row in rows[:_MOST]]
    styles = [
        _CELL.format("right" if all(_NUMBER.match(row[k]) for row in texts) else "left") for k in range(len(head))
    ]
    top = "".join(
        f'<th scope="col" style="{style}">{escape(name)}</th>' for name, style in zip(head, styles, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{style}">{escape(cell)}</td>' for cell, style in zip(row, styles, strict=True))
        + "</tr>"
        for row in texts
    )
    left = f"{len(rows) - _MOST} more rows are not shown. " if len(rows) > _MOST else ""
    return _framed(title, f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>", left + note)


def _framed(title: str, rows: str, note: str = "") -> str:
    below = f'<div style="font-size:85%;opacity:.75">{escape(note)}</div>' if note else ""
    table = f'<table style="{_TABLE}">{rows}</table>'
    return f'<div class="daskkern"><div style="font-weight:600">{escape(title)}</div>{table}{below}</div>'


def counts_in_words(counts: Sequence[int]) -> str:
    """Return two counts or more as "10 and 20"; of many their range."""
    shown = [f"{count:,}" for count in counts]
    if len(shown) > _MOST_COUNTS:
        return f"from {min(counts):,} to {max(counts):,}"
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
