"""``daskkern explain``: what the predictions of a model depend on."""

from typing import Any

import click

from daskkern.cli.console import listing, remark, say, say_json
from daskkern.cli.options.standard_input import read_from_stdin
from daskkern.errors import SpecError
from daskkern.evaluation.raw_tables import rows_of
from daskkern.inspection import (
    GradientImportance,
    Interactions,
    gradient_importance,
    interactions,
    permutation_importance,
)
from daskkern.models import load_model

_PAIRS, _PAIR_ROWS = 5, 200


@click.command("explain")
@click.argument("model")
@click.argument("store")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with all columns.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Columns to show.")
@click.option(
    "--rows", type=click.IntRange(1), default=2000, show_default=True, metavar="N", help="Random rows to look at."
)
@click.option(
    "--repeats", type=click.IntRange(0), default=3, show_default=True, metavar="N",
    help="Permutations of each column; 0 leaves them out.",
)  # fmt: skip
@click.option("--scoring", metavar="NAME", help="Score that permutations lower.  [default: accuracy, or r2]")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the random rows.")
def command(
    model: str, store: str, as_json: bool, top: int, rows: int, repeats: int, scoring: str | None, seed: int
) -> None:
    """Show what the predictions of MODEL depend on, at random rows of STORE.

    STORE may also be a table with the columns of the training table, such as a .csv file, or - for CSV from stdin. Of
    each column: the share of the squared gradient of the scores, and by how much the score falls when its values are
    those of other rows.
    """
    if scoring is not None and not repeats:
        raise SpecError("got --scoring without permutations; leave it out, or give --repeats of 1 or more")
    fitted = load_model(model)
    permuted: Any = None
    joint: Interactions | None = None
    with read_from_stdin(store) as place, rows_of(fitted, place, targets=repeats > 0) as read:
        why, found = "", None
        try:
            found = gradient_importance(fitted, read, max_rows=rows, random_state=seed)
            joint = interactions(fitted, read, max_rows=min(rows, _PAIR_ROWS), random_state=seed)
        except SpecError as error:  # a model without gradients
            if not repeats:
                raise
            why = str(error)
        if repeats:
            permuted = permutation_importance(
                fitted, read, n_repeats=repeats, max_rows=rows, random_state=seed, scoring=scoring
            )
        n_rows = min(rows, read.info.n_rows)
    if as_json:
        say_json(_record(found, permuted, joint, n_rows))
        return
    say(f"{n_rows:,} rows of {store}" + (f"; score {permuted.score:.4f} as they are" if repeats else ""))
    if why:
        remark(f"note: no gradients: {why}")
    _show(found, permuted, top)
    if joint is not None and len(joint.names) > 1:
        say()
        say(f"interactions, {joint.n_rows:,} rows: root mean square of the mixed derivative of the scores")
        listing(("column", "column", "interaction"), [(a, b, f"{value:.4g}") for a, b, value in joint.top(_PAIRS)])


def _record(
    found: GradientImportance | None, permuted: Any, joint: Interactions | None, n_rows: int
) -> dict[str, object]:
    columns: dict[str, dict[str, float]] = {}
    if found is not None:
        for name, share, slope in zip(found.names, found.importances, found.slopes, strict=True):
            columns.setdefault(name, {}).update(share=float(share), slope=float(slope))
    if permuted is not None:
        for name, mean, std in zip(permuted.columns, permuted.importances_mean, permuted.importances_std, strict=True):
            columns.setdefault(name, {}).update(fall=float(mean), fall_std=float(std))
    record: dict[str, object] = {"rows": n_rows, "columns": [{"name": name, **each} for name, each in columns.items()]}
    if permuted is not None:
        record["score"] = permuted.score
    if found is not None and found.products is not None:
        pairs = found.top_pairs(50)
        record["pairs"] = [{"columns": [one, other], "alignment": value} for one, other, value in pairs]
    if joint is not None:
        record["interactions"] = [{"columns": [one, other], "strength": value} for one, other, value in joint.top(50)]
    return record


def _show(found: GradientImportance | None, permuted: Any, top: int) -> None:
    """Print the columns in the order of what the score falls by, or of their shares."""
    if permuted is not None:
        names, values = permuted.columns, permuted.importances_mean
    else:
        assert found is not None
        names, values = found.names, found.importances
    order = (-values).argsort(kind="stable")
    head = ["column"]
    if found is not None:
        head.append("share of gradient")
    if permuted is not None:
        head += ["score falls by", "+-"]
    lines = []
    for k in order[:top]:
        line = [names[k]]
        if found is not None:
            line.append(f"{found.importances[k]:.2%}")
        if permuted is not None:
            line += [f"{permuted.importances_mean[k]:.4f}", f"{permuted.importances_std[k]:.4f}"]
        lines.append(tuple(line))
    listing(tuple(head), lines)
    if len(order) > top:
        say(f"and {len(order) - top:,} more; see --top")
