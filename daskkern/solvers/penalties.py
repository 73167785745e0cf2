"""What the ridge penalty of a fit may be: a number, or one that is chosen from the data, or a part of that."""

import math
import re

import numpy as np

from daskkern.errors import SpecError

_CHOSEN = re.compile(r"auto(/0*[1-9]\d{0,5}(\.\d+)?)?")


def is_chosen_penalty(value: object) -> bool:
    """Return whether a penalty is to be chosen from the data: "auto", or a part of that, such as "auto/4"."""
    return isinstance(value, str) and _CHOSEN.fullmatch(value) is not None


def divisor_of(value: float | str) -> float:
    """Return what the chosen penalty is divided by: 4 for "auto/4", 1 for "auto"."""
    return float(str(value).partition("/")[2] or 1.0)


def check_penalty(value: object) -> None:
    """Raise SpecError unless `value` is a finite number of 0 or more, or is to be chosen."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_chosen_penalty(value) and not (is_number and 0 <= float(value) < math.inf):  # type: ignore[arg-type]
        raise SpecError(f"got alpha={value!r}; expected a number of 0 or more, or 'auto' ('auto/4': a quarter of it)")
