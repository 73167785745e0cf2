"""Syntax trees of the package, parsed once and only by the process that runs a test about them."""

import ast
from functools import cache
from pathlib import Path

import daskkern

PACKAGE = Path(daskkern.__file__).parent


def module_name(path: Path) -> str:
    """Return the dotted name of a module of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of each module by its path below the package."""
    return {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of each module by its dotted name."""
    return {module_name(PACKAGE / path): tree for path, tree in trees().items()}
