"""The table of kernels, and how they are written in one word: ``gaussian:5``, ``laplacian:median``."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields

from daskkern.errors import SpecError
from daskkern.kernels.arc_cosine import ArcCosine
from daskkern.kernels.base import Kernel
from daskkern.kernels.cauchy import Cauchy
from daskkern.kernels.gaussian import Gaussian
from daskkern.kernels.inverse_polynomial import InversePolynomial
from daskkern.kernels.laplacian import Laplacian
from daskkern.kernels.linear import Linear
from daskkern.kernels.polynomial import Polynomial


@dataclass(frozen=True)
class Entry:
    """A kernel and the one parameter that may follow its name after a colon."""

    kernel: type[Kernel]
    parameter: str | None


KERNELS: dict[str, Entry] = {
    "gaussian": Entry(Gaussian, "length_scale"),
    "laplacian": Entry(Laplacian, "length_scale"),
    "cauchy": Entry(Cauchy, "length_scale"),
    "inverse_polynomial": Entry(InversePolynomial, None),
    "arc_cosine": Entry(ArcCosine, "degree"),
    "polynomial": Entry(Polynomial, "degree"),
    "linear": Entry(Linear, None),
}


def parse_kernel(text: str) -> Kernel:
    """Return the kernel that a word such as ``"gaussian:5"``, ``"laplacian:median"`` or ``"linear"`` means.

    Raises
    ------
    SpecError
        For an unknown name, a parameter that is no number, or a parameter where none is taken.
    """
    name, colon, value = text.strip().partition(":")
    entry = _entry(name.strip().lower())
    if not colon:
        return entry.kernel()
    if entry.parameter is None:
        raise SpecError(f"kernel {text!r} was asked, but {name} takes no parameter; write {name!r}")
    return from_spec({"name": name.strip().lower(), entry.parameter: _number(text, value.strip())})


def from_spec(spec: Mapping[str, object]) -> Kernel:
    """Rebuild a kernel from :meth:`Kernel.spec`; SpecError names an unknown kernel or parameter."""
    if not isinstance(spec, Mapping):
        raise SpecError(f"a kernel is written as a mapping with its name and parameters; found {spec!r:.60}")
    entry = _entry(str(spec.get("name", "")))
    allowed = {field.name for field in fields(entry.kernel)}
    parameters = {key: value for key, value in spec.items() if key != "name"}
    for key, value in parameters.items():
        if key not in allowed or isinstance(value, bool) or not isinstance(value, int | float | str):
            raise SpecError(
                f"{key}={value!r} was asked of the {spec['name']} kernel, which takes {sorted(allowed) or 'nothing'}"
            )
    try:
        return entry.kernel(**parameters)
    except (TypeError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"the {spec['name']} kernel cannot be made from {parameters}: {error}") from None


def _entry(name: str) -> Entry:
    if name in KERNELS:
        return KERNELS[name]
    close = difflib.get_close_matches(name, KERNELS, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise SpecError(f"kernel {name!r} is unknown{hint} Known kernels: {', '.join(KERNELS)}")


def _number(text: str, value: str) -> float | str:
    if value == "median":
        return value
    try:
        return float(value)
    except ValueError:
        raise SpecError(
            f"kernel {text!r} was asked, but {value!r} is no number; write for example gaussian:5"
        ) from None
