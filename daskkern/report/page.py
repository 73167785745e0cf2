"""The HTML of a report: one self-contained page."""

from collections.abc import Sequence
from html import escape
from importlib import resources
from itertools import cycle

import numpy as np

from daskkern import __version__
from daskkern.data.transactions.overwrite_guard import REPORT_MARK
from daskkern.evaluation.plot_data import Observation
from daskkern.models import KernelModel
from daskkern.monitor.epoch_cells import HEADINGS, cell
from daskkern.monitor.formatting import format_bytes
from daskkern.monitor.history import History
from daskkern.monitor.palette import PART_COLORS, STAGE_COLORS
from daskkern.monitor.shares import PARTS
from daskkern.report import facts, score_facts
from daskkern.report.methods import method_of
from daskkern.report.pictures import Picture, as_svg

_ROWS = 200


def page_of(name: str, model: KernelModel, pictures: Sequence[Picture], observed: Observation | None, test: str) -> str:
    """Return the page on a model called `name`; `test` names the rows that it was scored on, or is ""."""
    history = model.history_
    score = None if observed is None else observed.score
    sections = [
        ("test", f"Test rows: {test}" if test else "Test rows", _test(model, pictures, observed)),
        ("features", "Features", _features(pictures, model)),
        ("learning", "Learning", _learning(pictures, history)),
        ("settings", "Settings, data and model", _settings(model, history)),
        ("time", "Time and memory", _time(pictures, history)),
        ("epochs", "Epochs", _epochs(history)),
        ("spectrum", "Spectrum of the preconditioner", _spectrum(pictures, history)),
        ("environment", "Environment", _environment(model)),
    ]
    shown = [(key, title, body) for key, title, body in sections if body]
    tiles = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for label, value in facts.tiles(model, history, score)
    )
    links = "".join(f'<a href="#{key}">{escape(title.partition(":")[0])}</a>' for key, title, _ in shown)
    bodies = "".join(f'<section id="{key}"><h2>{escape(title)}</h2>{body}</section>' for key, title, body in shown)
    style = resources.files("daskkern.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">{REPORT_MARK}'
        f"<title>{escape(name)} - daskkern report</title>"
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>\n{style}</style></head>\n'
        f"<body><main><header><h1>{escape(name)}</h1><p>{escape(facts.heading(model))}</p><nav>{links}</nav></header>\n"
        f'<div class="tiles">{tiles}</div>\n{bodies}\n<footer>Written by daskkern {__version__}</footer>'
        "</main></body></html>\n"
    )


def _figures(pictures: Sequence[Picture], section: str, more: str = "") -> str:
    """Return the pictures of a section side by side, and the card `more` after them."""
    found = [
        f'<figure><figcaption id="caption-{picture.name}">{escape(picture.caption)}</figcaption>'
        f"{as_svg(picture)}</figure>"
        for picture in pictures
        if picture.section == section
    ]
    return f'<div class="row">{"".join(found)}{more}</div>' if found or more else ""


def _note(text: str) -> str:
    return f'<div class="card"><span class="note">{text}</span></div>'


def _test(model: KernelModel, pictures: Sequence[Picture], observed: Observation | None) -> str:
    if observed is None and method_of(model) is not None:
        return ""
    if observed is None:
        return _note("Not scored. Give test rows: <code>daskkern report MODEL --test STORE</code>")
    score = observed.score
    parts = [f'<p class="note">{score.rows}', _unknown(score.unknown), "</p>"]
    parts.append(_figures(pictures, "test", _errors(observed)))
    rows = score_facts.class_rows(score)
    if rows:
        more = len(score.classes or ()) - len(rows)
        title = f"The first {len(rows):,} classes; {more:,} more are left out" if more > 0 else "Class by class"
        head = ("class", "rows", "recall", "precision", "most often taken for")
        parts.append(f'<div class="card below"><h3>{title}</h3>{_table(head, rows, words=(0, 4))}</div>')
    rows = score_facts.worst_rows(model, observed)
    if rows:
        measure = score_facts.worst_measure(model)
        table = _table(("row", "truth", "predicted", measure), rows, words=(1, 2) if model.classes else ())
        parts.append(f'<div class="card below"><h3>Where the model is most wrong</h3>{table}</div>')
    drawn, targets = sum(picture.name.startswith("residuals") for picture in pictures), observed.targets.shape[1]
    if score.rmse is not None and drawn < targets:
        parts.append(f'<p class="note">The first {drawn} of {targets} targets are drawn.</p>')
    return "".join(parts)


def _errors(observed: Observation) -> str:
    lines = score_facts.errors_of(observed)
    return f'<div class="card"><h3>Errors, in the units of the target</h3>{_facts(lines)}</div>' if lines else ""


def _unknown(rows: int | None) -> str:
    return f"; {rows:,} of them have labels that the model does not know, and count as errors" if rows else ""


def _features(pictures: Sequence[Picture], model: KernelModel) -> str:
    rows, drawn = facts.feature_rows(model), _figures(pictures, "features")
    if not rows:
        return drawn
    more = model.n_features - len(rows)
    title = f"The first {len(rows):,} features; {more:,} more are left out" if more > 0 else "All features"
    table = _table(("feature", "share of the kernel's metric"), rows)
    return f'{drawn}<div class="card{" below" if drawn else ""}"><h3>{title}</h3>{table}</div>'


def _learning(pictures: Sequence[Picture], history: History) -> str:
    if not len(history):
        return _note("This model was saved without a history: there are no curves to show.")
    if len(history) == 1:
        return _note(f"The fit had one epoch, with a training loss of {history[-1].loss:.4g}: there are no curves.")
    return _figures(pictures, "learning")


def _spectrum(pictures: Sequence[Picture], history: History) -> str:
    found = history.spectrum
    if found is None:
        return ""
    lines = [
        ("from a subsample of", f"{found.subsample:,} rows"),
        ("eigenvalues known", f"{len(found.eigenvalues):,}"),
        ("batch size", f"{found.batch_size:,} rows"),
        ("critical batch", f"{found.critical_batch:,.0f} rows: larger batches gain little"),
        ("step", f"{found.step:.4g}"),
    ]
    if found.eigenvalues and found.flattened and found.flattened[0] > 0:
        lines.append(("largest eigenvalue", f"{found.eigenvalues[0]:.4g}, {found.flattened[0]:.4g} afterwards"))
    return _figures(pictures, "spectrum", f'<div class="card">{_facts(lines)}</div>')


def _time(pictures: Sequence[Picture], history: History) -> str:
    parts = facts.time_parts(history)
    total = sum(seconds for _, seconds, _ in parts)
    if total <= 0:
        return ""
    of_parts = {words: PART_COLORS[part] for part, words in PARTS.items()}
    greys = cycle(STAGE_COLORS)
    colors = [of_parts.get(name) or next(greys) for name, _, _ in parts]
    bar = "".join(
        f'<i style="width:{100 * seconds / total:.3f}%;background:{color}" title="{escape(name)}"></i>'
        for (name, seconds, _), color in zip(parts, colors, strict=True)
    )
    rows = "".join(
        f'<tr><td><span class="dot" style="background:{color}"></span>{escape(name)}</td>'
        f'<td>{facts.duration(seconds)}</td><td>{seconds / total:.1%}</td><td class="words">{escape(detail)}</td></tr>'
        for (name, seconds, detail), color in zip(parts, colors, strict=True)
    )
    head = '<tr><th>part</th><th>time</th><th>share</th><th class="words"></th></tr>'
    total_time = (
        f'<div class="card"><h3>{facts.duration(total)} in all</h3><div class="bar">{bar}</div>'
        f'<table class="numbers parts">{head}{rows}</table></div>'
    )
    return f'{total_time}<div class="below">{_figures(pictures, "time", _memory(history))}</div>'


def _memory(history: History) -> str:
    if not history.ranks:
        return ""
    rows = [
        (
            f"{rank.rank}",
            rank.device,
            f"{rank.columns:,}" if rank.columns else "\N{EN DASH}",
            format_bytes(rank.memory_bytes),
            format_bytes(rank.planned_bytes) if rank.planned_bytes else "\N{EN DASH}",
            f"{rank.gpu_use:.0%}" if rank.gpu_use == rank.gpu_use else "\N{EN DASH}",
        )
        for rank in history.ranks
    ]
    table = _table(("rank", "device", "columns", "most memory used", "planned", "GPU use"), rows, words=(1,))
    words = (
        "The memory of the whole process, the libraries included, or of the GPU, compared with what the fit planned."
    )
    note = f'<p class="note">{words}</p>'
    return f'<div class="card"><h3>Memory of the ranks</h3>{table}{note}</div>'


def _settings(model: KernelModel, history: History) -> str:
    cards = {
        "Settings": facts.settings_of(model),
        "Data": facts.data_of(model),
        "Model": facts.model_of(model),
        "Run": facts.run_of(model, history),
    }
    return _cards(cards)


def _environment(model: KernelModel) -> str:
    found = facts.environment_of(model)
    if not found:
        return _note("This model was saved without its environment.")
    return _cards({"Machine": found[:4], "Versions": found[4:]})


def _cards(cards: dict[str, facts.Facts]) -> str:
    found = [f'<div class="card"><h3>{title}</h3>{_facts(lines)}</div>' for title, lines in cards.items() if lines]
    return f'<div class="cards">{"".join(found)}</div>'


def _facts(lines: facts.Facts) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in lines)
    return f'<table class="facts">{rows}</table>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = ()) -> str:
    marks = ['class="words"' if number in words else "" for number in range(len(head))]
    top = "".join(f"<th {mark}>{escape(cell)}</th>" for cell, mark in zip(head, marks, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {mark}>{escape(cell)}</td>" for cell, mark in zip(row, marks, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<table class="numbers"><tr>{top}</tr>{body}</table>'


def _epochs(history: History) -> str:
    if not len(history):
        return ""
    columns = [name for name in HEADINGS if not np.isnan(history[name]).all()]
    chosen = history.rows if len(history) <= _ROWS else (*history[: _ROWS // 2], *history[-_ROWS // 2 :])
    rows = [(f"{row.epoch:,}", *(cell(name, getattr(row, name)) for name in columns)) for row in chosen]
    title = f"All {len(history):,}" if len(chosen) == len(history) else f"The first and the last {_ROWS // 2}"
    table = _table(("epoch", *(HEADINGS[name] for name in columns)), rows)
    return f'<div class="card"><details><summary>{title} as a table</summary>{table}</details></div>'
