"""Hooks of the site: pages made from other files, and links that lead out of this folder."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/daskkern/daskkern/blob/main/"

COPIED = {
    "examples.md": "examples/README.md",
    "deploy/index.md": "deploy/README.md",
    "changelog.md": "CHANGELOG.md",
    **{
        f"deploy/{path.name}": f"deploy/{path.name}" for path in (ROOT / "deploy").glob("*.md") if path.stem != "README"
    },
}
"""Pages that are files beside the docs."""

REFERENCE = {
    "daskkern": ("daskkern",),
    "estimators": ("daskkern.estimators",),
    "kernels": ("daskkern.kernels", "daskkern.kernels.formula"),
    "losses": ("daskkern.losses",),
    "basis": ("daskkern.basis",),
    "landmarks": ("daskkern.landmarks",),
    "solvers": ("daskkern.solvers",),
    "systems": ("daskkern.systems",),
    "models": ("daskkern.models",),
    "data": ("daskkern.data.ingest", "daskkern.data.storage.writer", "daskkern.data.storage.store"),
    "training": ("daskkern.training.run.fit", "daskkern.training.run.settings", "daskkern.cluster.gang.gang"),
    "events": ("daskkern.events",),
    "errors": ("daskkern.errors",),
}
"""Pages of the reference, and the modules whose public names they hold."""

_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):<code>~?(.*?)</code>")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add to the section of what runs a page for each environment in `deploy/`, and pages that stand nowhere yet."""
    (run,) = (entry["Run"] for entry in config.nav if isinstance(entry, dict) and "Run" in entry)
    place = 1 + next(number for number, entry in enumerate(run) if "deploy/index.md" in entry.values())
    pages = [
        (page, path) for page, path in sorted(COPIED.items()) if path.startswith("deploy/") and "README" not in path
    ]
    run[place:place] = [{_heading(ROOT / path): page} for page, path in pages]
    named = str(config.nav)
    run += [
        {_heading(path): path.name} for path in sorted((ROOT / "docs").glob("*.md")) if f"'{path.name}'" not in named
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]  # here, because MkDocs puts the path back after the import
    pages = {name: _moved((ROOT / path).read_text(), ROOT / path, name) for name, path in COPIED.items()}
    pages["changelog.md"] += unreleased()
    pages |= {f"reference/{name}.md": reference_page(name) for name in REFERENCE}
    pages["reference/commands.md"] = commands_page()
    pages["benchmarks.md"] = _moved(
        importlib.import_module("pages").page(), ROOT / "benchmarks" / "README.md", "benchmarks.md"
    )
    pages["reproduction.md"] = _moved(
        importlib.import_module("papers.page").page(), ROOT / "benchmarks" / "README.md", "reproduction.md"
    )
    for picture in sorted((ROOT / "benchmarks").glob("*.png")):
        files.append(File.generated(config, picture.name, content=picture.read_bytes()))
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files outside of the docs lead to their page, or to the repository."""
    if page.file.abs_src_path is None:
        return markdown  # made above
    return _moved(markdown, Path(page.file.abs_src_path), page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show the roles of docstrings as code."""
    return _ROLE.sub(r"<code>\1</code>", html)


def unreleased() -> str:
    """Return the changes that no version has yet, by kind."""
    kinds: dict[str, list[str]] = {}
    for path in sorted((ROOT / "changes").glob("*.*.md")):
        kinds.setdefault(path.name.split(".")[1], []).append(path.read_text())
    parts = (f"\n### {kind.capitalize()}\n\n" + "".join(texts) for kind, texts in sorted(kinds.items()))
    return "\n## Not in a version yet\n" + "".join(parts)


def _heading(path: Path) -> str:
    return next(line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("# "))


def _moved(markdown: str, path: Path, page: str) -> str:
    """Return the text of the file `path` with links that hold on the site, where it is `page`."""
    up = "../" * page.count("/")
    copied = {(ROOT / source).resolve(): name for name, source in COPIED.items()}

    def link(found: re.Match[str]) -> str:
        target, anchor = (path.parent / found[1]).resolve(), found[2] or ""
        if target in copied:
            return f"]({up}{copied[target]}{anchor})"
        if target.is_relative_to(ROOT / "docs"):
            return f"]({up}{target.relative_to(ROOT / 'docs').as_posix()}{anchor})"
        if target.parent == ROOT / "benchmarks" and target.suffix == ".png":
            return f"]({up}{target.name}{anchor})"
        if not target.exists() or not target.is_relative_to(ROOT):
            return found[0]  # the build tells of it
        return f"]({REPOSITORY}{target.relative_to(ROOT).as_posix()}{anchor})"

    return _LINK.sub(link, markdown)


def public_names(module_name: str) -> list[str]:
    """Return the names that a module offers: `__all__`, else the classes and functions that it defines."""
    module = importlib.import_module(module_name)
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module_name
    ]


def reference_page(name: str) -> str:
    """Return a page with all public names of its modules; what another page holds is named, with its place."""
    lines = [f"# {'The package' if name == 'daskkern' else name.capitalize()}"]
    for module_name in REFERENCE[name]:
        module = importlib.import_module(module_name)
        lines += ["", f"`{module_name}`: {(module.__doc__ or '').strip().splitlines()[0]}"]
        for public in public_names(module_name):
            lines += ["", *_entry(module_name, public, getattr(module, public))]
    return "\n".join(lines) + "\n"


def _entry(module_name: str, name: str, value: Any) -> list[str]:
    if inspect.isclass(value) or inspect.isfunction(value):
        home = f"{value.__module__}.{value.__qualname__}"
        elsewhere = _page_of(value) if module_name == "daskkern" else None
        if elsewhere is not None:
            return [f"- `daskkern.{name}`: {_first(value)} [{home}]({elsewhere}.md#{home})"]
        return [f"::: {home}"] if value.__name__ == name else [f"- `{name}` is `{home}`: {_first(value)}"]
    if inspect.ismodule(value):
        return [f"- `{module_name}.{name}`: {_first(value)} [{value.__name__}](systems.md)"]
    return [f"- `{name}`: a {type(value).__name__}"]


def _page_of(value: Any) -> str | None:
    """Return the page of the reference that holds a class or function."""
    for page, modules in REFERENCE.items():
        if page != "daskkern" and any(
            getattr(importlib.import_module(module), name) is value
            for module in modules
            for name in public_names(module)
        ):
            return page
    return None


def _first(value: Any) -> str:
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def commands_page() -> str:
    """Return the help of every command."""
    from daskkern.cli.main import cli

    lines = ["# Command line"]
    for name in sorted(cli.commands):
        command = cli.commands[name]
        text = command.get_help(click.Context(command, info_name=f"daskkern {name}", max_content_width=100))
        lines += ["", f"## {name}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"
