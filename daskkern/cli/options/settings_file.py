"""Options of a fit from a file and from ``--set``."""

import difflib
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from daskkern.errors import SpecError

_POWER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
"""Numbers such as 1e-3, which YAML reads as text for lack of a point or a sign."""


def from_file(path: str | None, options: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a YAML file, by name; "-" is stdin. SpecError for a file that is none, or other names."""
    if path is None:
        return {}
    try:
        content = yaml.safe_load(sys.stdin.read() if path == "-" else Path(path).read_text())
    except OSError as error:
        raise SpecError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(f"the settings file {path} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise SpecError(f"the settings file {path} must contain a mapping of 'name: value' lines")
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if key == "solver" and isinstance(value, dict):
            inner = dict(value)
            flat["solver"] = inner.pop("name", "auto")
            flat.update({f"solver.{name}": item for name, item in inner.items()})
        else:
            flat[str(key).replace("-", "_")] = value
    return _known(flat, f"the settings file {path}", options)


def from_assignments(assignments: tuple[str, ...], options: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of ``--set KEY=VALUE``, by name. SpecError for anything else."""
    values: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise SpecError(f"got --set {text!r}; write --set key=value")
        try:
            values[key.strip().replace("-", "_")] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SpecError(f"got --set {text!r}, but {value!r} cannot be read as a YAML value") from None
    return _known(values, "--set", options)


def _known(values: dict[str, Any], where: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Return the values, powers of ten as numbers. SpecError for names that are none of a fit."""
    for key in values:
        if key not in options and not key.startswith(("solver.", "learn_features.")):
            close = difflib.get_close_matches(key, options, n=1)
            hint = f"did you mean {close[0]!r}? Known" if close else "known"
            raise SpecError(
                f"{where} names {key!r}, which is not an option of a fit; {hint} are {', '.join(sorted(options))}"
            )
    return {key: _number(value) for key, value in values.items()}


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and _POWER.fullmatch(value.strip()) else value
