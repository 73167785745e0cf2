"""The site: its blocks run, its sentences and figures are those of the source, and it builds without a warning."""

import ast
import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_digits

import daskkern
from daskkern.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"<!-- run(?:: (\w+))? -->\n```(\w+)\n(.*?)```", re.DOTALL)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _blocks(page: str) -> list[tuple[str, str, str]]:
    return _BLOCK.findall((DOCS / page).read_text())


def _is_of_the_tour(page: str) -> bool:
    return any(where == "tour" for where, _, _ in _blocks(page))


def _run(kind: str, code: str) -> str:
    """Run a block in the current folder, commands and Python in this process, and return what it says."""
    said = io.StringIO()
    if kind == "python":
        with contextlib.redirect_stdout(said):
            exec(compile(code, "block", "exec"), {"__name__": "__main__"})
        return said.getvalue()
    assert kind == "bash"
    for line in code.replace("\\\n", " ").splitlines():
        called = shlex.split(line, comments=True)
        if not called:
            continue
        program, *words = called
        assert program == "daskkern"
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert result.exit_code == 0, f"{line}: {result.output}"
        said.write(result.output)
    return said.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.repeated
@pytest.mark.timeout(60)
def test_the_tutorial_runs_from_its_first_block_to_its_last(folder: Path) -> None:
    pytest.importorskip("palmerpenguins")
    said = [_run(kind, code) for _, kind, code in _blocks("tutorial.md")]
    assert len(said) == 10
    assert "train.zarr: 256 rows x 13 features" in said[1]
    scores = re.findall(r"R2 (?:on the test rows: )?([\d.]+)", "".join(said))
    assert len(scores) == 2
    assert min(map(float, scores)) > 0.85
    assert len((folder / "checked.csv").read_text().splitlines()) == 1 + 86
    assert len((folder / "predictions.csv").read_text().splitlines()) == 1 + 342
    assert "--landmarks 256 " in said[8]  # as many as there are


@pytest.mark.repeated
@pytest.mark.timeout(300)
def test_the_blocks_of_other_pages_run(folder: Path) -> None:
    X, y = load_digits(return_X_y=True)
    np.savez("digits.npz", X=X, y=y)
    daskkern.ingest("digits.npz", "train.zarr", scale="minmax")
    pages = [path.name for path in DOCS.glob("*.md") if path.name != "tutorial.md" and _blocks(path.name)]
    pages = [name for name in pages if not _is_of_the_tour(name)]
    assert sorted(pages) == [
        "add-a-solver.md",
        "explain.md",
        "how-to.md",
        "index.md",
        "scaling.md",
        "unsupervised.md",
        "why-kernels.md",
    ]
    said = {page: "".join(_run(kind, code) for _, kind, code in _blocks(page)) for page in pages}
    assert float(said["add-a-solver.md"].split()[-1]) > 0.85
    assert float(said["index.md"].split()[-1]) > 0.93
    assert "total" in said["scaling.md"]
    assert "together: [('feature 1', 'feature 2'," in said["explain.md"].replace("2', 'feature 1", "1', 'feature 2")
    assert "rings apart: True" in said["unsupervised.md"]
    assert "known, novel: [ 1 -1]" in said["unsupervised.md"]
    _check_how_to(said["how-to.md"])
    linear, kernel = re.findall(r": ([\d.]+)", said["why-kernels.md"])
    assert float(linear) < 0.2 < 0.85 < float(kernel)


def _check_how_to(said: str) -> None:
    """Each kind of data is learned: better than the simplest guess, and by a margin."""
    wine, text, squares = (float(share) for share in re.findall(r"accuracy: ([\d.]+)", said))
    assert wine > 0.9
    assert text > 0.5  # of five topics
    assert squares > 0.9
    ahead, before = map(float, re.findall(r"([\d.]+) MW", said))
    assert ahead < before / 2
    (inside,) = map(float, re.findall(r"90% interval: (\d+)%", said))
    assert 80 <= inside <= 98
    sphere, degrees = map(float, re.findall(r"([\d.]+) °C", said))
    assert sphere < degrees


@pytest.mark.repeated
@pytest.mark.timeout(300)
def test_the_five_lines_of_the_readme_run(folder: Path) -> None:
    ((_, kind, code),) = _BLOCK.findall((ROOT / "README.md").read_text())
    assert len([line for line in code.splitlines() if line]) == 5
    assert float(_run(kind, code).split()[-1]) > 0.93


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_the_tour_runs_on_the_digits_of_the_demo(folder: Path) -> None:
    X, y = load_digits(return_X_y=True)
    np.savez("digits.npz", X=X, y=y)
    pages = ["first-steps.md", "command-line.md", "python.md"]
    assert sorted(pages) == sorted(path.name for path in DOCS.glob("*.md") if _is_of_the_tour(path.name))
    settings = re.search(r"```yaml\n(.*?)```", (DOCS / "command-line.md").read_text(), re.DOTALL)
    assert settings is not None
    Path("fit.yaml").write_text(settings[1])
    said = {page: "".join(_run(kind, code) for _, kind, code in _blocks(page)) for page in pages}
    assert "359 rows: accuracy 98" in said["first-steps.md"]
    assert "length scale  alpha" in said["command-line.md"]
    assert float(said["python.md"].splitlines()[0]) > 0.97


def test_the_figures_of_the_readme_are_those_of_the_tables(benchmarks: Path) -> None:
    """Errors and times are means over the same splits, of the last run of all ten tables that has all three."""
    readme = (ROOT / "README.md").read_text()
    runs = importlib.import_module("figures").read(benchmarks / "results-tables.json")
    shown = {"daskkern, `Ker": "daskkern", "LightGBM": "lightgbm", "scikit-learn": "svc"}
    whole = [run for run in runs if {f"{key}_seconds" for key in shown.values()} <= run.tables["splits"][0].keys()]
    splits = next(run for run in reversed(whole) if len(run.tables["means"]) > 10).tables["splits"]
    for label, key in shown.items():
        line = next(line for line in readme.splitlines() if line.startswith(f"| {label}"))
        error, seconds = (np.mean([row[f"{key}_{what}"] for row in splits]) for what in ("error", "seconds"))
        assert f"{100 * error:.2f}%" in line, line
        assert f"{seconds:.1f} s" in line, line
    found, _ = importlib.import_module("table_means").merged(runs)
    for data in ("magic", "adult"):
        pair = [f"{100 * (found[data][f'{key}_error'] or 0):.2f}%" for key in ("daskkern", "lightgbm")]
        assert re.search(rf"{data} {pair[0]} \((LightGBM )?{pair[1]}[;)]", readme, re.IGNORECASE), data


def _sentences() -> Iterator[str]:
    """Yield every string of the package, what is filled in replaced by an ellipsis."""
    for path in (ROOT / "daskkern").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            if isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)


@pytest.mark.long
def test_the_sentences_of_errors_are_those_of_the_source() -> None:
    quoted = re.findall(r"^> (.*)$", (DOCS / "errors.md").read_text(), re.MULTILINE)
    known = set(_sentences())
    assert len(quoted) > 20
    for sentence in quoted:
        assert sentence in known, sentence


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the benchmarks, whose modules can be imported for as long as the test lasts."""
    folder, before = ROOT / "benchmarks", set(sys.modules)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_tables_of_choices_are_those_of_the_figures(benchmarks: Path) -> None:
    pages, figures = importlib.import_module("pages"), importlib.import_module("figures")
    page = (DOCS / "measured-choices.md").read_text()
    tables = [line for line in pages.choices(figures.read(benchmarks / "results-choices.json")) if line]
    assert len(tables) > 30
    for line in tables:
        assert line.startswith("###") or line in page, f"docs/measured-choices.md lacks: {line}"


def test_every_file_of_figures_is_on_a_page_with_its_machine_and_date(benchmarks: Path) -> None:
    pages, figures = importlib.import_module("pages"), importlib.import_module("figures")
    both = pages.page() + importlib.import_module("papers.page").page()
    for path in benchmarks.glob("*.json"):
        assert f"[JSON]({path.name})" in both
        assert pages.origin(figures.read(path)[-1]) in both


def test_the_drawings_are_those_that_the_script_makes() -> None:
    drawings = _module(DOCS / "drawings.py")
    assert (DOCS / "layers.svg").read_text() == drawings.draw_layers(), "run: python docs/drawings.py"
    assert (DOCS / "data-flow.svg").read_text() == drawings.draw_flow(), "run: python docs/drawings.py"
    design = (DOCS / "design.md").read_text()
    assert "  cli " in design
    assert design == drawings.with_layers(design), "run: python docs/drawings.py"
    architecture = (DOCS / "architecture.md").read_text()
    assert all(said for said in drawings.folders().values()), "a package has no docstring"
    assert "| `cluster/gang` |" in architecture
    assert architecture == drawings.with_folders(architecture), "run: python docs/drawings.py"


def _check_notebooks(pages: Path) -> None:
    """The notebooks were executed: they show objects, figures and the progress of a fit, and predict well."""
    table, larger = ((pages / f"{name}.html").read_text() for name in ("table", "larger-than-memory"))
    for page in (table, larger):
        assert '<div class="daskkern">' in page
        assert float(re.findall(r"accuracy on [\w ]+: ([\d.]+)", page)[0]) > 0.9
    assert len(list(pages.glob("table_*.png"))) == 2
    assert re.search(r"epoch +5/5", larger)


@pytest.mark.repeated
@pytest.mark.timeout(600)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for module in ("mkdocs", "material", "mkdocstrings", "nbconvert", "ipykernel"):
        pytest.importorskip(module, reason="pip install -e '.[docs]' builds the site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "site" / "benchmarks.html").is_file()
    name = _module(DOCS / "site_versions.py")
    version = name.version_of(ROOT)
    assert name.title(version) in (tmp_path / "site" / "index.html").read_text()
    assert "This site documents daskkern" in (tmp_path / "site" / "versions.html").read_text()
    _check_notebooks(tmp_path / "site" / "notebooks")
    reference = "".join(path.read_text() for path in (tmp_path / "site" / "reference").glob("*.html"))
    for name in daskkern.__all__:
        assert re.search(rf'id="[\w.]*{name}"|<code>daskkern\.{name}</code>', reference), name
    shutil.rmtree(tmp_path / "site")
