"""``daskkern systems``, ``daskkern compare`` and ``daskkern sweep``: published systems, side by side."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from daskkern.cli.console import REMARKS, InterruptedJobError, listing, remark, say
from daskkern.cli.options.cluster_options import ClusterRequest, cluster_options
from daskkern.cli.options.json_option import json_option
from daskkern.cli.options.row_options import open_rows
from daskkern.data.transactions.overwrite_guard import FileKind, check_file
from daskkern.errors import SpecError
from daskkern.events import EpochFinished, Event, StopRequested
from daskkern.kernels import ScaledDistanceKernel, parse_kernel
from daskkern.systems import GROUPS, SYSTEMS, Comparison, Curve, Sweep, System, compare, sweep, system
from daskkern.systems.plot import plot_comparison
from daskkern.training.direct.roles import RowRoles

_ENDED = {"max_seconds": "time limit", "max_epochs": "all epochs"}
_SHOWN = 12


@click.command("systems")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def systems_command(as_json: bool) -> None:
    """List the published systems, which can be fitted by name."""
    if as_json:
        say(json.dumps([_record(row) for row in SYSTEMS.values()]))
        return
    listing(
        ("system", "solver", "columns", "tasks", "what it is", "reference"),
        [
            (row.name, row.solver.name, row.space, ", ".join(row.tasks), row.line, row.reference)
            for group in GROUPS
            for row in SYSTEMS.values()
            if row.group == group
        ],
    )


def _record(row: System) -> dict[str, object]:
    return {
        "name": row.name,
        "line": row.line,
        "reference": row.reference,
        "group": row.group,
        "solver": row.solver.name,
        "basis": row.space,
        "losses": {task: row.loss_for(task) for task in row.tasks},
        "alpha": row.alpha,
    }


@click.command("compare")
@click.argument("store")
@click.option("--systems", "names", metavar="A,B,C", help="Names, or 'all'; see 'daskkern systems'.  [default: all]")
@click.option("--test", metavar="STORE", help="Rows to measure errors on.  [default: the training rows]")
@click.option("--budget", type=float, metavar="SECONDS", help="Time limit of each system.")
@click.option(
    "--kernel", metavar="NAME[:VALUE]", help="Kernel of all systems that have one.  [default: gaussian:median]"
)
@click.option(
    "--alpha", type=float, metavar="NUMBER", help="Ridge penalty of all systems.  [default: each system's own]"
)
@click.option("--columns", type=int, metavar="N", help="Number of landmarks or features.  [default: each system's own]")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of all random draws.")
@click.option("--out", metavar="FOLDER", help="Write comparison.json and comparison.png there.")
@json_option
@cluster_options
def compare_command(
    store: str,
    names: str | None,
    test: str | None,
    budget: float | None,
    kernel: str | None,
    alpha: float | None,
    columns: int | None,
    seed: int,
    out: str | None,
    where: ClusterRequest,
) -> dict[str, object]:
    """Fit several systems to STORE, each within the same time limit, and show their errors."""
    chosen = list(SYSTEMS.values()) if names in (None, "all") else [system(name.strip()) for name in names.split(",")]
    if budget is not None and not budget > 0:
        raise SpecError(f"got --budget {budget:g}; give a positive number of seconds")
    folder = None if out is None else _folder(out)
    _check_stores(store, test)
    with where.client() as client:
        found = compare(
            store,
            chosen,
            test=test,
            budget_s=budget,
            kernel=None if kernel is None else parse_kernel(kernel),
            alpha=alpha,
            columns=columns,
            seed=seed,
            client=client,
            on_event=_print_progress,
        )
    if test is None:
        remark("note: without --test, errors are those of the training rows")
    _show(found)
    if folder is not None:
        found.save(folder / "comparison.json")
        say(f"the curves are in {folder / 'comparison.json'}")
        plot_comparison(found, folder / "comparison.png")
        say(f"and drawn in {folder / 'comparison.png'}")
    if any(curve.reason == "interrupted" for curve in found.curves):
        raise InterruptedJobError("interrupted; the results so far are above, and the other systems did not run")
    return asdict(found)


@click.command("sweep")
@click.argument("store")
@click.option("--system", "name", default="falkon", show_default=True, metavar="NAME", help="A least-squares system.")
@click.option(
    "--kernel",
    default="gaussian",
    show_default=True,
    metavar="NAME",
    help="A kernel of distances; its length scale is searched.",
)
@click.option(
    "--length-scales", metavar="A,B,C", help="Length scales to try.  [default: nine around the median distance of rows]"
)
@click.option("--alphas", metavar="A,B,C", help="Ridge penalties to try.  [default: 1e-9 to 1e-2]")
@click.option("--landmarks", type=int, default=1000, show_default=True, metavar="N", help="Number of landmarks.")
@click.option("--test", metavar="STORE", help="Rows to measure errors on.  [default: a tenth of the training rows]")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of all random draws.")
@json_option
@cluster_options
def sweep_command(
    store: str,
    name: str,
    kernel: str,
    length_scales: str | None,
    alphas: str | None,
    landmarks: int,
    test: str | None,
    seed: int,
    where: ClusterRequest,
) -> dict[str, object]:
    """Search length scale and penalty for STORE; rows are read, and distances computed, once for the whole grid."""
    scaled = parse_kernel(kernel)
    if not isinstance(scaled, ScaledDistanceKernel):
        raise SpecError(
            f"got --kernel {kernel}, which has no length scale to search; give a kernel of distances, such as gaussian"
        )
    _check_stores(store, test)
    with where.client() as client:
        found = sweep(
            store,
            name,
            kernel=scaled,
            length_scales=_numbers("--length-scales", length_scales),
            alphas=_numbers("--alphas", alphas),
            landmarks=landmarks,
            test=test,
            seed=seed,
            client=client,
        )
    share = found.task == "classification"
    rows: list[tuple[str, ...]] = [
        (
            f"{point.length_scale:.4g}",
            f"{point.alpha:.3g}",
            f"{100 * point.error:.2f}%" if share else f"{point.error:#.4g}".rstrip("."),
        )
        for point in found.points[:_SHOWN]
    ]
    say(f"{len(found.points)} models of {found.n_landmarks} landmarks in {found.seconds:.1f} s; the best are")
    listing(("length scale", "alpha", "error" if share else "RMSE"), rows)
    if found.system.basis.all_rows:
        say(f"system {name} has all rows as columns: its best penalty may differ from that of landmarks")
    command = _fit_of_best(found, store)
    say(command)
    return {
        "system": name,
        "measure": "error" if share else "rmse",
        "landmarks": found.n_landmarks,
        "seconds": found.seconds,
        "points": [asdict(point) for point in found.points],
        "command": command,
    }


def _fit_of_best(found: Sweep, store: str) -> str:
    """Return the command that fits the best model of a sweep."""
    kernel = f"{found.kernel.name}:{found.best.length_scale:.6g}"
    columns = f"--landmarks {found.landmarks} --solver direct --dtype float64"
    columns += f" --seed {found.seed}" if found.seed else ""
    penalty = f"--alpha {found.best.alpha:g} --scale {found.scale or 'none'}"
    return f"daskkern fit {store} --kernel {kernel} --loss squared {columns} {penalty} --out MODEL"


def _check_stores(*places: str | None) -> None:
    """Raise DataError for a place without a store, before workers are started."""
    for place in places:
        if place is not None:
            open_rows(place, RowRoles())


def _numbers(option: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise SpecError(f"got {option} {text!r}; write numbers with commas between them, such as 1,3,10") from None


def _folder(out: str) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"the folder --out {out} cannot be created: {error.strerror}; choose another one") from None
    check_file(folder / "comparison.json", FileKind.COMPARISON)
    check_file(folder / "comparison.png", FileKind.PICTURE)
    return folder


def _print_progress(name: str, event: Event | None) -> None:
    """Print the progress of a system on stderr."""
    if REMARKS.quiet:
        return
    if event is None:
        click.echo(f"{name} ...", err=True)
    elif isinstance(event, EpochFinished):
        click.echo(f"  {name}: epoch {event.epoch}, {event.seconds:.2g} s, loss {event.loss:.5g}", err=True)
    elif isinstance(event, StopRequested):
        click.echo(f"  {name}: {event.reason}", err=True)


def _show(found: Comparison) -> None:
    measure = "error" if found.measure == "error" else "RMSE"
    say(f"{found.n_rows:,} rows, {found.n_features} features; {measure} on {found.test}; kernel {found.kernel}")
    listing(
        ("system", "group", "solver", "columns", measure, "seconds", "epochs", "ended"),
        [_row(found, curve) for curve in found.curves],
    )


def _row(found: Comparison, curve: Curve) -> tuple[str, ...]:
    error = (
        "-"
        if curve.error is None
        else f"{100 * curve.error:.2f}%"
        if found.measure == "error"
        else f"{curve.error:.4g}"
    )
    ended = curve.problem or _ENDED.get(curve.reason, curve.reason)
    return (
        curve.system,
        curve.group,
        curve.solver,
        curve.basis,
        error,
        f"{curve.seconds:.2f}",
        str(curve.epochs),
        ended,
    )
