"""Features that are codes of categories: scalings leave them alone."""

from collections.abc import Sequence
from dataclasses import replace

from daskkern.data.schema.column_scaling import Scaling


def with_codes_unscaled(scaling: Scaling, columns: Sequence[int]) -> Scaling:
    """Return `scaling` without its effect on `columns`, whose numbers are not quantities."""
    own = set(columns)
    if not own or scaling.kind == "none":
        return scaling

    def kept(values: tuple[float, ...], neutral: float) -> tuple[float, ...]:
        return tuple(neutral if number in own else value for number, value in enumerate(values))

    bend = kept(scaling.bend, 0.0)
    return replace(
        scaling,
        shift=kept(scaling.shift, 0.0),
        scale=kept(scaling.scale, 1.0),
        bend=bend if any(bend) else (),
        ranks=tuple(table for table in scaling.ranks if table.column not in own),
    )
