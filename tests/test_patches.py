"""Tests replace what a module offers, never its private names, which are free to change, nor the process's clock."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
BENCHMARKS = TESTS / "benchmarks"
"""Tests of programs that are no part of the package."""
PATCHING = {"setattr", "delattr", "object", "multiple", "patch", "dict"}
CLOCKS = {"monotonic", "perf_counter"}
"""Event loops go by these: a message of a cluster that is sent meanwhile leaves all later ones waiting."""


def _is_private(name: object) -> bool:
    return isinstance(name, str) and any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _patched(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the lines where a private name of something else than the caller's own object is replaced, and the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
            if called not in PATCHING or (called in ("object", "multiple", "dict") and not owner.endswith("patch")):
                continue
            for given in node.args[:2]:
                if isinstance(given, ast.Constant) and _is_private(given.value):
                    yield node.lineno, str(given.value)
                elif isinstance(given, ast.Attribute) and _is_private(given.attr):
                    yield node.lineno, ast.unparse(given)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    own = isinstance(each, ast.Attribute) and ast.unparse(each.value) in ("self", "cls", "made")
                    if isinstance(each, ast.Attribute) and _is_private(each.attr) and not own:
                        yield node.lineno, ast.unparse(each)


def _clocks(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the lines where a clock of the whole process is replaced."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in PATCHING:
            for given in node.args[:2]:
                if isinstance(given, ast.Constant) and str(given.value).rpartition(".")[2] in CLOCKS:
                    yield node.lineno, str(given.value)


FILES = [path for path in sorted(TESTS.rglob("*.py")) if BENCHMARKS not in path.parents]


def _places(search: Callable[[ast.AST], Iterator[tuple[int, str]]]) -> list[str]:
    return [
        f"{path.relative_to(TESTS)}:{line}: {name}"
        for path in FILES
        for line, name in search(ast.parse(path.read_text(encoding="utf-8")))
    ]


def test_no_test_replaces_a_private_name() -> None:
    found = _places(_patched)
    assert not found, "give the test a parameter, a setting or the real situation in place of: " + "; ".join(found)


def test_no_test_replaces_the_clock_of_the_process() -> None:
    found = _places(_clocks)
    assert not found, "replace the name `time` in the module that is tested, in place of: " + "; ".join(found)
    assert list(_clocks(ast.parse('monkeypatch.setattr(module.time, "monotonic", f)')))
    assert list(_clocks(ast.parse('monkeypatch.setattr("module.time.monotonic", f)')))
    assert not list(_clocks(ast.parse('monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=f))')))


@pytest.mark.parametrize(
    "line",
    [
        'monkeypatch.setattr("daskkern.x._NAME", 1)',
        'monkeypatch.setattr(module, "_NAME", 1)',
        'monkeypatch.setattr(module._Class, "block", f)',
        'monkeypatch.delattr(module, "_name")',
        'mock.patch("daskkern.x._name")',
        'mock.patch.object(module, "_name")',
        'setattr(module, "_name", 1)',
        "model._name = 1",
        "a._x, a._y = 1, 2",
        "a._x += 1",
    ],
)
def test_each_way_to_replace_one_is_seen(line: str) -> None:
    assert list(_patched(ast.parse(line)))


@pytest.mark.parametrize("line", ['monkeypatch.setattr(module, "name", 1)', "self._x = 1", 'patch.dict("x", y=1)'])
def test_what_is_public_or_its_own_may_be_replaced(line: str) -> None:
    assert not list(_patched(ast.parse(line)))
