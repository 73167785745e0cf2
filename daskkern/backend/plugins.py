"""Registries by name: built-in classes, classes registered by a program, and entry points of installed packages.

A package offers a solver with lines such as these in its ``pyproject.toml``::

    [project.entry-points."daskkern.solvers"]
    landweber = "daskkern_landweber:Landweber"

Nothing is imported before its name is looked up.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, TypeVar

from daskkern.errors import SpecError

T = TypeVar("T")


@cache
def installed(group: str) -> EntryPoints:
    """Return the entry points of a group that the installed packages have, as they were when first listed."""
    return entry_points(group=group)


class Registry(MutableMapping[str, T]):
    """Names and what they stand for. Listing names imports nothing; names of the package come first.

    Parameters
    ----------
    own : mapping
        What the package has. No plug-in takes the place of one.
    group : str
        The group of entry points, ``"daskkern.solvers"`` for example.
    check : callable
        Returns the entry for what a plug-in offers under a name. Raises SpecError, with what it expected, for what is
        not one.
    """

    def __init__(self, own: Mapping[str, T], group: str, check: Callable[[str, object], T]) -> None:
        self._known, self._group, self._check = dict(own), group, check
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name in self._known:
            return self._known[name]
        if name not in self._loaded:
            offers = self._offers()
            if name not in offers:
                raise KeyError(name)
            self._loaded[name] = self._load(name, offers[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._offers()

    def __setitem__(self, name: str, value: T) -> None:
        self._known[name] = value

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._known
        yield from (name for name in self._offers() if name not in self._known)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def working(self) -> dict[str, T]:
        """Return all entries but those of plug-ins that cannot be loaded."""
        found = {}
        for name in self:
            try:
                found[name] = self[name]
            except SpecError:
                continue
        return found

    def forget(self) -> None:
        """Forget what was loaded: plug-ins of packages that were installed or removed since are looked up again."""
        self._loaded.clear()
        installed.cache_clear()

    def _offers(self) -> dict[str, list[EntryPoint]]:
        """Return the entry points of the group by name; more than one where several packages offer the name."""
        found: dict[str, list[EntryPoint]] = {}
        for point in installed(self._group):
            found.setdefault(point.name, []).append(point)
        return found

    def _load(self, name: str, offers: list[EntryPoint]) -> T:
        places = sorted({point.value for point in offers})
        if len(places) > 1:
            raise SpecError(
                f"got {name!r} of {self._group} from more than one package: {', '.join(sorted(map(_source, offers)))}; "
                "uninstall all but one"
            )
        try:
            return self._check(name, offers[0].load())
        except SpecError as error:
            raise SpecError(f"the plug-in {name!r} of {_source(offers[0])} is not usable: {error}") from error
        except Exception as error:
            raise SpecError(
                f"the plug-in {name!r} of {_source(offers[0])} cannot be loaded "
                f"({type(error).__name__}: {error}); repair the package, or uninstall it"
            ) from error


def _source(point: EntryPoint) -> str:
    package = "a package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
    return f"{package} ({point.value})"


def unknown(kind: str, given: object, name: str, known: Iterable[str], default: str | None = None) -> SpecError:
    """Return the error for `given`, whose `name` is none of the `known` ones: with the one that was probably meant.

    A `default` is listed too, a word that most callers understand; but not where it is what was given.
    """
    names = [*([] if default in (None, name) else [str(default)]), *known]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return SpecError(f"{kind} {given!r} is unknown{hint} Known {kind}{'e' * kind.endswith('s')}s: {', '.join(names)}")


def derived_from(base: type, where: str) -> Callable[[str, object], Any]:
    """Return the check of a registry of classes derived from `base`; see :func:`checked_class`."""
    return lambda name, found: checked_class(name, found, base, where)


def checked_class(name: str, found: object, base: type, where: str) -> Any:
    """Return `found`, a class derived from `base` whose name is `name`. SpecError for anything else.

    `where` is the name of `base` for users.
    """
    if not isinstance(found, type) or not issubclass(found, base):
        raise SpecError(f"got {found!r}; expected a class derived from {where}")
    own = getattr(found, "name", None)
    if own != name:
        raise SpecError(f"got a class whose name is {own!r} for the entry point {name!r}; give both the same name")
    return found
