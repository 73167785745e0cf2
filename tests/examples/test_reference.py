"""The API reference says what the signatures say: names, defaults, and that no parameter is left out.

The site prints one default for parameters that a docstring lists together, so these must have the same one.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import daskkern

HOOKS = Path(__file__).resolve().parents[2] / "docs" / "hooks.py"
_SECTION = r"{}\n-+\n(.*?)(?=\n\n[A-Z][A-Za-z ]+\n-+\n|\Z)"
_STATED = re.compile(r"(?:[Dd]efaults? to|[Dd]efault:|default is|default=) ?`*([-\w.+\"']+?)`*(?=[\s,;)]|\.\s|\.?$)")


def _modules() -> tuple[str, ...]:
    """Return the modules whose public names the reference lists; ``docs/hooks.py`` itself needs MkDocs."""
    nodes = (node for node in ast.parse(HOOKS.read_text()).body if isinstance(node, ast.Assign))
    pages = next(ast.literal_eval(node.value) for node in nodes if ast.unparse(node.targets[0]) == "REFERENCE")
    return tuple(module for modules in pages.values() for module in modules)


def _public(module_name: str) -> Iterator[tuple[str, Any]]:
    """Yield the public classes and functions of a module, and the public methods of the classes."""
    module = importlib.import_module(module_name)
    for name in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)) or not value.__module__.startswith("daskkern"):
            continue
        yield f"{value.__module__}.{value.__qualname__}", value
        if inspect.isclass(value):
            for key, item in vars(value).items():
                if inspect.isfunction(item) and not key.startswith("_"):
                    yield f"{value.__module__}.{value.__qualname__}.{key}", item


def _listed(value: Any, *sections: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the names that a line of the docstring lists together, and what it says of them."""
    for section in sections:
        found = re.search(_SECTION.format(section), inspect.getdoc(value) or "", re.DOTALL)
        for entry in re.split(r"\n(?=\S)", found[1]) if found else ():
            head, _, text = entry.partition("\n")
            names, _, kind = head.partition(" :")
            yield tuple(name.strip().lstrip("*") for name in names.split(",")), f"{kind} {text}"


def _mistakes(name: str, value: Any) -> list[str]:
    try:
        known = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return []
    found = []
    for names, text in _listed(value, "Parameters"):
        found += [f"{name}: {each} is no parameter" for each in names if each not in known]
        defaults = {repr(known[each].default) for each in names if each in known}
        if len(defaults) > 1:
            found.append(f"{name}: {', '.join(names)} are listed together, but have the defaults {defaults}")
        for stated in _STATED.findall(text):
            if defaults and not any(stated.strip("\"'") == default.strip("\"'") for default in defaults):
                found.append(f"{name}: {', '.join(names)} says the default {stated}; the signature has {defaults}")
    return found


@pytest.mark.parametrize("module", _modules())
def test_documented_parameters_are_those_of_the_signatures(module: str) -> None:
    assert [line for name, value in _public(module) for line in _mistakes(name, value)] == []


@pytest.mark.parametrize("name", daskkern.__all__)
def test_every_parameter_of_a_public_name_is_documented(name: str) -> None:
    value = getattr(daskkern, name)
    if inspect.ismodule(value):
        return
    known = {each for names, _ in _listed(value, "Parameters", "Attributes") for each in names}
    assert set(inspect.signature(value).parameters) - known == set()


@pytest.mark.parametrize("name", sorted({name for module in _modules() for name, _ in _public(module)}))
def test_every_parameter_has_words(name: str) -> None:
    value = next(value for module in _modules() for found, value in _public(module) if found == name)
    section = re.search(_SECTION.format("Parameters"), inspect.getdoc(value) or "", re.DOTALL)
    entries = re.split(r"\n(?=\S)", section[1]) if section else []
    assert [entry for entry in entries if "\n" not in entry] == []


def test_false_defaults_are_found() -> None:
    def wrong(a: int = 1, b: int = 2) -> None:
        """Do nothing.

        Parameters
        ----------
        a, b : int
            Of something.
        c : int
            Of nothing.
        """

    def stated(a: int = 1) -> None:
        """Do nothing.

        Parameters
        ----------
        a : int, default: 3
            Of something.
        """

    assert len(_mistakes("wrong", wrong)) == 2
    assert "says the default 3" in _mistakes("stated", stated)[0]
