"""The layers of the package: who may import whom, proved on the syntax trees of all modules."""

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

import daskkern
from tests.support.source_trees import PACKAGE, modules, trees

LAYERS = {
    **dict.fromkeys(("errors", "events", "arrays", "display"), 0),
    **dict.fromkeys(("backend", "row_table"), 1),
    **dict.fromkeys(("kernels", "losses", "data", "cluster", "monitor"), 2),
    **dict.fromkeys(("linalg", "calibration"), 3),
    **dict.fromkeys(("landmarks", "features", "feature_learning"), 4),
    "basis": 5,
    **dict.fromkeys(("preconditioners", "models"), 6),
    **dict.fromkeys(("solvers", "evaluation"), 7),
    **dict.fromkeys(("training", "inspection"), 8),
    "model_selection": 9,
    "estimators": 10,
    **dict.fromkeys(("systems", "doctor", "unsupervised"), 11),
    **dict.fromkeys(("plot", "mlflow"), 12),
    "report": 13,
    "cli": 14,
    "__main__": 15,
}
OPTIONAL = {
    "cupy",
    "cupyx",
    "dask_cuda",
    "kvikio",
    "rmm",
    "ucxx",
    "matplotlib",
    "pandas",
    "h5py",
    "obstore",
    "deltalake",
    "pyiceberg",
    "moto",
    "werkzeug",
    "xarray",
}
OPTIONAL |= {"prometheus_client", "selenium"}
PAGE = "daskkern.monitor.dashboard"  # made with bokeh, which only a scheduler that shows it imports
SPARED = {"scipy", "sklearn"}
"""Needed, but a saved model of dense points is served without SciPy, and ranks start in half the time without
scikit-learn, which one landmark rule calls."""
SLOW = {"pyarrow.dataset"}
"""Modules of needed packages that only some commands use: this one imports pandas where it is installed."""
OPTIONAL |= {"IPython", "mlflow", "wandb", "opentelemetry", "onnx"}


def _targets(node: ast.AST) -> list[str]:
    """Return the modules that an import statement names, submodules imported from their package included."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        module = node.module or ""
        return sorted({name if (name := f"{module}.{a.name}") in modules() else module for a in node.names})
    return []


@cache
def _imports(module: str) -> list[str]:
    return [name for node in ast.walk(modules()[module]) for name in _targets(node)]


def _package(module: str) -> str:
    return module.split(".")[1]


def _ours(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith("daskkern.")]


@cache
def _pairs() -> list[tuple[str, str]]:
    """Return each module of a package with each module of ours that it imports."""
    return [(module, name) for module in modules() if module != "daskkern" for name in _ours(_imports(module))]


def test_every_package_has_a_layer() -> None:
    assert {_package(module) for module in modules() if module != "daskkern"} <= set(LAYERS)


def test_every_module_named_in_an_import_exists() -> None:
    assert [pair for pair in _pairs() if pair[1] not in modules()] == []


def test_modules_import_from_lower_layers_only() -> None:
    across = [(module, name) for module, name in _pairs() if _package(module) != _package(name)]
    assert len(across) > 100  # the walk has seen the package
    assert [pair for pair in across if LAYERS[_package(pair[0])] <= LAYERS[_package(pair[1])]] == []


def test_no_folder_has_more_than_twenty_modules() -> None:
    counts = Counter(path.parent for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    assert {str(folder): count for folder, count in counts.items() if count > 20} == {}


def test_no_file_has_more_than_three_hundred_lines() -> None:
    lengths = {name: len((PACKAGE / name).read_text().splitlines()) for name in map(str, trees())}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_no_two_classes_share_a_name() -> None:
    names = Counter(node.name for tree in modules().values() for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_nobody_imports_test_doubles() -> None:
    assert [pair for pair in ((m, n) for m in modules() for n in _imports(m)) if pair[1].split(".")[0] == "tests"] == []


def test_there_are_no_cycles_between_modules() -> None:
    graph = {module: set(_ours(_imports(module))) for module in modules() if module != "daskkern"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' -> '.join(error.args[1])}")


def test_imports_inside_functions_are_of_optional_packages_only() -> None:
    hidden = [
        (module, name)
        for module, tree in modules().items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
        for name in _targets(node)
        if name.split(".")[0] not in OPTIONAL | SPARED and name not in SLOW and not name.startswith(PAGE)
    ]
    assert hidden == []


def test_bokeh_is_imported_by_the_page_only_and_the_page_by_nobody_at_the_top() -> None:
    assert {module for module in modules() if "bokeh" in {name.split(".")[0] for name in _imports(module)}} <= {
        module for module in modules() if module.startswith(PAGE)
    }
    tops = [(module, name) for module, tree in modules().items() for node in tree.body for name in _targets(node)]
    assert [(m, name) for m, name in tops if name.startswith(PAGE) and not m.startswith(PAGE)] == []


def test_only_public_names_commands_and_plugins_of_dask_are_imported_by_name() -> None:
    by_name = {"import_module", "__import__"}
    callers = {
        module
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
        and (getattr(node, "id", "") or getattr(node, "attr", "")) in by_name
    }
    assert callers <= {"daskkern", "daskkern.cli.main", "daskkern.cluster.connect.plugin_loading"}


def test_optional_packages_are_never_imported_at_the_top() -> None:
    tops = [
        (module, name)
        for module, tree in modules().items()
        for node in tree.body
        for name in _targets(node)
        if name.split(".")[0] in OPTIONAL
    ]
    assert tops == []


def test_only_the_backend_and_the_cluster_name_cupy() -> None:
    assert {_package(module) for module in modules() if {"cupy", "cupyx"} & set(_imports(module))} <= {
        "backend",
        "cluster",
    }


def _fresh(statements: str) -> str:
    """Run statements in a new interpreter and return what they print."""
    run = subprocess.run([sys.executable, "-c", statements], capture_output=True, text=True, check=True, timeout=60)
    return run.stdout.strip()


def test_importing_the_package_imports_none_of_its_dependencies() -> None:
    heavy = ["dask", "distributed", "sklearn", "zarr", "scipy", "numpy", "pyarrow", "bokeh", "cupy", "click"]
    heavy += ["dask_cuda", "llvmlite", "pandas", "rich"]
    assert _fresh(f"import sys, daskkern; print([name for name in {heavy} if name in sys.modules])") == "[]"


def test_every_public_name_resolves_and_is_listed() -> None:
    check = (
        "import daskkern; names = daskkern.__all__; assert set(names) <= set(dir(daskkern)); "
        "found = [getattr(daskkern, name) for name in names]; "
        "print(all(getattr(f, '__module__', f.__name__).startswith('daskkern.') for f in found), len(names) > 4)"
    )
    assert _fresh(check) == "True True"


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'KernelClasifier'"):
        _ = daskkern.KernelClasifier


@pytest.mark.one_in(3)
@pytest.mark.parametrize("start", ["training.run.rank", "cli.fit", "cli.score"])
def test_ranks_and_commands_start_without_scikit_learn_and_what_comes_with_it(start: str) -> None:
    heavy = ["sklearn", "pandas", "scipy.stats", "matplotlib"]
    hidden = "import sys; sys.modules['xarray'] = None"  # Dask imports it where it is installed, and it imports pandas
    found = f"print([name for name in {heavy} if name in sys.modules])"
    assert _fresh(f"{hidden}; import daskkern.{start}; {found}") == "[]"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--version", 0),
        ("--help", 0),
        ("", 2),
        ("fit --help", 0),
        ("fit --bogus", 2),
        ("score model.zarr", 2),
        ("ft", 2),
    ],
)
def test_help_and_wrong_options_import_nothing_that_computes(words: str, code: int) -> None:
    heavy = ["numpy", "scipy", "dask", "distributed", "zarr", "sklearn", "bokeh", "pyarrow", "yaml", "cryptography"]
    check = (
        "import contextlib, io, sys; from daskkern.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        f"    try: main({words.split()})\n"
        "    except SystemExit as end: code = end.code\n"
        f"print(code, [name for name in {heavy} if name in sys.modules], len(sys.modules) < 600)"
    )
    assert _fresh(check) == f"{code} [] True"


def test_numeric_packages_and_models_import_no_cluster_software() -> None:
    loaded = "[name for name in ('dask', 'distributed', 'sklearn', 'bokeh') if name in sys.modules]"
    for package in ("backend", "kernels", "losses", "models"):
        assert _fresh(f"import sys, daskkern.{package}; print({loaded})") == "[]", package
