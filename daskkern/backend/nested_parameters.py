"""Access by name to parameters of kernels, function spaces, losses and solvers, for scikit-learn's searches."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Self

from daskkern.errors import SpecError


class NestedParameters:
    """Access to the fields of a frozen dataclass by name, with ``__`` between a field and one of its own.

    Objects are values: setting a parameter returns another object, and a clone is the object itself.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` adds those of parameters that have some: ``kernel__length_scale``."""
        found = {name: getattr(self, name) for name in self._parameter_names()}
        for name, value in list(found.items()) if deep else ():
            if isinstance(value, NestedParameters):
                found |= {f"{name}__{inner}": each for inner, each in value.get_params().items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Return the object with other parameters, by name as in :meth:`get_params`; this one is unchanged.

        Raises
        ------
        SpecError
            For an unknown name, and for a value that the parameter does not take.
        """
        changes, nested = split_names(params)
        names = self._parameter_names()
        for name in (*changes, *nested):
            if name not in names:
                known = f"its parameters are {', '.join(names)}" if names else "it has no parameters"
                raise SpecError(f"got parameter {name!r} for {type(self).__name__}; {known}")
        for name, inner in nested.items():
            value = changes.get(name, getattr(self, name))
            if not isinstance(value, NestedParameters):
                raise SpecError(
                    f"got parameter {name}__{next(iter(inner))}, but {name}={value!r:.60} has no parameters"
                )
            changes[name] = value.set_params(**inner)
        # The class is that of a dataclass wherever there are names.
        return replace(self, **changes) if changes else self  # type: ignore[type-var]

    def __sklearn_clone__(self) -> Self:
        return self

    def _parameter_names(self) -> tuple[str, ...]:
        return tuple(item.name for item in fields(self) if item.init) if is_dataclass(self) else ()


def split_names(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return plain parameters, and for each name before ``__`` those of its own."""
    plain: dict[str, Any] = {}
    nested: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in params.items():
        first, mark, rest = name.partition("__")
        if mark:
            nested[first][rest] = value
        else:
            plain[first] = value
    return plain, dict(nested)
