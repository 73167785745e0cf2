"""MkDocs hooks: pages generated from other files, and links to files outside of this folder."""

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
sys.path.insert(0, str(ROOT / "docs"))
import site_versions  # noqa: E402

VERSION = site_versions.version_of(ROOT)
_TREE = "main" if VERSION == site_versions.DEVELOPMENT else f"v{VERSION}"
REPOSITORY = f"https://github.com/daskkern/daskkern/blob/{_TREE}/"

COPIED = {
    "examples.md": "examples/README.md",
    "deploy/index.md": "deploy/README.md",
    "changelog.md": "CHANGELOG.md",
    **{
        f"deploy/{path.name}": f"deploy/{path.name}" for path in (ROOT / "deploy").glob("*.md") if path.stem != "README"
    },
}
"""Pages of the site that are copies of files outside of `docs/`."""

REFERENCE = {
    "daskkern": ("daskkern",),
    "estimators": ("daskkern.estimators",),
    "unsupervised": ("daskkern.unsupervised",),
    "kernels": ("daskkern.kernels", "daskkern.kernels.operands", "daskkern.kernels.formula"),
    "losses": ("daskkern.losses",),
    "basis": ("daskkern.basis",),
    "landmarks": ("daskkern.landmarks",),
    "solvers": ("daskkern.solvers",),
    "systems": ("daskkern.systems",),
    "models": ("daskkern.models", "daskkern.evaluation.predict"),
    "inspection": ("daskkern.inspection",),
    "data": ("daskkern.data.ingest", "daskkern.data.storage.writer", "daskkern.data.storage.store"),
    "training": ("daskkern.training.run.fit", "daskkern.training.run.settings", "daskkern.cluster.gang.gang"),
    "events": ("daskkern.events",),
    "errors": ("daskkern.errors",),
}
"""Pages of the reference, with the modules whose public names they list."""

_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_NO_WORDS = re.compile(r"\)\s*\u2013\s*(?=<div class=\"doc-md-description\">\s*</div>)")
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):<code>~?(.*?)</code>")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the version in the title, and add to the section "Run" the pages of `deploy/`, and pages of `docs/` that the navigation does not list."""
    config.site_name = site_versions.title(VERSION)  # at the top of every page
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
    """Add the generated pages."""
    sys.path[:0] = [
        str(ROOT),
        str(ROOT / "benchmarks"),
        str(ROOT / "docs"),
    ]  # here, because MkDocs restores the path after the import
    pages = {name: _moved((ROOT / path).read_text(), ROOT / path, name) for name, path in COPIED.items()}
    pages["changelog.md"] += unreleased()
    versions = site_versions.page(VERSION, site_versions.published_versions())
    pages["versions.md"] = _moved(versions, ROOT / "docs" / "versions.md", "versions.md")
    pages |= {f"reference/{name}.md": reference_page(name) for name in REFERENCE}
    pages["reference/commands.md"] = commands_page()
    pages["benchmarks.md"] = _moved(
        importlib.import_module("pages").page(), ROOT / "benchmarks" / "README.md", "benchmarks.md"
    )
    pages["reproduction.md"] = _moved(
        importlib.import_module("papers.page").page(), ROOT / "benchmarks" / "README.md", "reproduction.md"
    )
    gallery = importlib.import_module("gallery_page")
    pages["gallery.md"] = gallery.page()
    for name in gallery.ORDER:
        files.append(File.generated(config, f"gallery/{name}.png", content=gallery.picture(name)))
    notebooks = importlib.import_module("notebook_pages")
    for name in notebooks.ORDER:
        shown = notebooks.executed(name, REPOSITORY)
        pages[f"notebooks/{name}.md"] = _moved(
            shown.text, ROOT / "docs" / "notebooks" / f"{name}.ipynb", f"notebooks/{name}.md"
        )
        for picture, content in shown.pictures.items():
            files.append(File.generated(config, f"notebooks/{picture}", content=content))
    for picture in sorted((ROOT / "benchmarks").glob("*.png")):
        files.append(File.generated(config, picture.name, content=picture.read_bytes()))
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirect links to files outside of the docs to their page, or to the repository."""
    if page.file.abs_src_path is None:
        return markdown  # generated by on_files
    return _moved(markdown, Path(page.file.abs_src_path), page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Render the Sphinx roles of docstrings as code; a parameter without words has no dash."""
    return _NO_WORDS.sub(")", _ROLE.sub(r"<code>\1</code>", html))


def unreleased() -> str:
    """Return the unreleased changes, by kind."""
    kinds: dict[str, list[str]] = {}
    for path in sorted((ROOT / "changes").glob("*.*.md")):
        kinds.setdefault(path.name.split(".")[1], []).append(path.read_text())
    parts = (f"\n### {kind.capitalize()}\n\n" + "".join(texts) for kind, texts in sorted(kinds.items()))
    return "\n## Unreleased\n" + "".join(parts)


def _heading(path: Path) -> str:
    return next(line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("# "))


def _moved(markdown: str, path: Path, page: str) -> str:
    """Return the text of the file `path` with its links adapted to its place `page` on the site."""
    up = "../" * page.count("/")
    copied = {(ROOT / source).resolve(): name for name, source in COPIED.items()}
    copied |= {path: f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    copied[ROOT / "docs" / "gallery"] = "gallery.md"

    def link(found: re.Match[str]) -> str:
        target, anchor = (path.parent / found[1]).resolve(), found[2] or ""
        if target in copied:
            return f"]({up}{copied[target]}{anchor})"
        if target.is_relative_to(ROOT / "docs"):
            return f"]({up}{target.relative_to(ROOT / 'docs').as_posix()}{anchor})"
        if target.parent == ROOT / "benchmarks" and target.suffix == ".png":
            return f"]({up}{target.name}{anchor})"
        if not target.exists() or not target.is_relative_to(ROOT):
            return found[0]  # the strict build reports it
        return f"]({REPOSITORY}{target.relative_to(ROOT).as_posix()}{anchor})"

    return _LINK.sub(link, markdown)


def public_names(module_name: str) -> list[str]:
    """Return the public names of a module: `__all__`, otherwise the classes and functions that it defines."""
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
    """Return a page with all public names of its modules; names documented on another page are linked."""
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
    """Return the reference page that documents a class or function."""
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
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        text = command.get_help(click.Context(command, info_name=f"daskkern {name}", max_content_width=100))
        lines += ["", f"## {name}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"
