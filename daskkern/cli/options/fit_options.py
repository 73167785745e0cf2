"""The options of a fit, declared once for every command that takes them."""

import functools
from collections.abc import Callable
from typing import Any

import click

from daskkern.cli.options.basis_options import BASES, DEFAULT_COLUMNS
from daskkern.cli.options.fit_request import OPTIONS, FitRequest
from daskkern.cli.options.settings_file import from_assignments, from_file
from daskkern.feature_learning import METRICS
from daskkern.features import KINDS
from daskkern.kernels import KERNELS
from daskkern.landmarks import SELECTORS
from daskkern.losses import LOSSES
from daskkern.solvers import SOLVERS
from daskkern.solvers.sampling import SAMPLING_WAYS
from daskkern.training.run.settings import SCALES
from daskkern.training.setup.defaults import MOST_CENTRES

_KERNEL_DEFAULT = "[default: auto]"
_BASIS_DEFAULT = f"[default: all up to {MOST_CENTRES} rows, else landmarks]"
_LOSS_DEFAULT = (
    "[default: auto, which is squared_hinge, and squared for regression and solvers of ridge regression; svm: hinge, "
    "for regression epsilon_insensitive]"
)


_OPTIONS = (
    click.option(
        "--system",
        metavar="NAME",
        help="A published system by name, see 'daskkern systems'; other options override its own.",
    ),
    click.option(
        "--kernel",
        metavar="NAME[:VALUE]",
        help=f"auto, {', '.join(KERNELS)}; with a parameter: gaussian:5.  {_KERNEL_DEFAULT}",
    ),
    click.option(
        "--loss",
        metavar="NAME[:VALUE]",
        help=f"One of {', '.join(LOSSES)}; with a parameter: huber:0.5.  {_LOSS_DEFAULT}",
    ),
    click.option("--basis", metavar="|".join(BASES), help=f"The basis functions of the model.  {_BASIS_DEFAULT}"),
    click.option(
        "--landmarks",
        metavar="N|all",
        help=f"Number of landmarks, or 'all' rows; of anchors with locally_linear.  [default: {DEFAULT_COLUMNS}]",
    ),
    click.option(
        "--features",
        type=int,
        metavar="N",
        help=f"Number of random features.  [default: {DEFAULT_COLUMNS}; doubly_stochastic: 128 per step]",
    ),
    click.option("--feature-kind", metavar="|".join(KINDS), help="Kind of random features.  [default: auto]"),
    click.option(
        "--selector", metavar="NAME", help=f"How landmarks are chosen: {', '.join(SELECTORS)}.  [default: uniform]"
    ),
    click.option(
        "--nearest", type=int, metavar="K", help="Nearest anchors that a row uses, with locally_linear.  [default: 8]"
    ),
    click.option("--leaf-rows", type=int, metavar="N", help="Rows per leaf of local_rows.  [default: 2000]"),
    click.option(
        "--trees", type=int, metavar="N", help="Trees of local_rows, whose predictions are averaged.  [default: 1]"
    ),
    click.option(
        "--multilabel",
        is_flag=True,
        default=None,
        help="Several targets of 0 or 1 are labels, of which a row may have any number.",
    ),
    click.option("--solver", metavar="NAME", help=f"auto, {', '.join(SOLVERS)}.  [default: auto]"),
    click.option("--epochs", type=int, metavar="N", help="Passes over the rows.  [default: 10]"),
    click.option(
        "--alpha",
        metavar="NUMBER|auto",
        help="Ridge penalty, or auto: the best by leave-one-out error on sampled rows.  [default: auto]",
    ),
    click.option("--batch-size", metavar="N|auto", help="Rows per mini-batch.  [default: auto]"),
    click.option("--seed", type=int, metavar="N", help="Seed of all random draws.  [default: 0]"),
    click.option(
        "--dtype",
        metavar="auto|float32|float64",
        help="Precision of features and coefficients; auto is float64 for exact fits of up to 5,000 rows, else "
        "float32.  [default: auto]",
    ),
    click.option(
        "--precision",
        metavar="float32|float64|tf32|float16",
        help="Precision to which features are rounded in training.  [default: the dtype]",
    ),
    click.option(
        "--device",
        metavar="auto|cpu|gpu",
        help="Where to compute; auto takes a GPU where there is one.  [default: auto]",
    ),
    click.option(
        "--scale", metavar="NAME", help=f"Scaling of the features: {', '.join(SCALES)} or none.  [default: auto]"
    ),
    click.option(
        "--learn-features",
        is_flag=False,
        flag_value="auto",
        metavar="|".join([*METRICS, "none"]),
        help="Learn the metric of the kernel on sampled rows: auto without a value.  [default: auto for "
        "regressions of up to 100 features, and for classes of up to 3,000 or more than 10,000 rows, with no solver or "
        "limit named, else none]",
    ),
    click.option(
        "--calibrate",
        metavar="auto|none|SHARE",
        help="Calibrate the scores, for probabilities and intervals: auto, none, or the share of the rows to set "
        "aside for it.  [default: auto]",
    ),
    click.option(
        "--class-weight",
        metavar="balanced",
        help="Weight classes by their inverse frequency.  [default: equal weights]",
    ),
    click.option(
        "--sampling",
        metavar="|".join(SAMPLING_WAYS),
        help="How batches are drawn: every row once per epoch (uniform, fresh batches, or a fixed order), or "
        "independently, in proportion to weights, or balanced by class.  [default: uniform]",
    ),
    click.option(
        "--early-stopping",
        is_flag=True,
        default=None,
        help="Stop when the validation loss or score no longer improves.",
    ),
    click.option("--monitor", metavar="auto|loss|score", help="What early stopping monitors.  [default: auto]"),
    click.option(
        "--virtual-shards",
        type=int,
        metavar="N",
        help="Make the model bitwise identical on any number of workers up to N.",
    ),
    click.option(
        "--reading",
        metavar="auto|each|once",
        help="Who reads the rows: 'each' worker reads all of them, or one reads them 'once' for all.  "
        "[default: auto, as measured]",
    ),
    click.option(
        "--groups", metavar="N|auto", help="Most groups of workers, each of which holds a whole model.  [default: auto]"
    ),
    click.option("--max-seconds", type=float, metavar="SECONDS", help="Stop after this time, with the model so far."),
    click.option(
        "--memory",
        metavar="SIZE",
        help="Memory budget of one rank, such as 4GB; a fit that needs more is refused before it starts.",
    ),
    click.option(
        "--config",
        type=click.Path(),
        metavar="FILE",
        help="YAML file with any of these options, by name; - reads it from stdin.",
    ),
    click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any option above, a setting of the solver (solver.window=4) or of feature learning "
        "(learn_features.rank=8), keep_blocks, disk or scratch.",
    ),
)


def fit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the fit options to a command, which receives them as one `request` of type FitRequest."""

    @functools.wraps(command)
    def wrapped(*args: Any, config: str | None, assignments: tuple[str, ...], **others: Any) -> Any:
        given = {name: others.pop(name) for name in OPTIONS if name in others}
        merged = {**from_file(config, OPTIONS), **from_assignments(assignments, OPTIONS)}
        merged.update({name: value for name, value in given.items() if value is not None})
        return command(*args, request=FitRequest(merged), **others)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
