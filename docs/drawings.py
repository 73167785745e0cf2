"""Draw `layers.svg` and `data-flow.svg`, and write the tables of layers and folders: ``python docs/drawings.py``.

The layers, in `design.md`, are those of tests/test_imports.py; the folders, in `architecture.md`, are described by the
first paragraphs of their docstrings.
"""

import ast
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
INK, SOFT, LINE = "#1f2933", "#52606d", "#7b8794"
WHAT = {
    "__main__": "python -m daskkern",
    "cli": "commands",
    "report": "HTML reports on models",
    "mlflow": "models of MLflow",
    "plot": "figures of fits",
    "systems": "published systems, sweeps",
    "unsupervised": "components, clusters, densities",
    "estimators": "scikit-learn's conventions",
    "model_selection": "searches within a time budget",
    "training": "fits: set-up, plan, ranks, checkpoints",
    "solvers": "one file or folder per method",
    "evaluation": "scores, predictions",
    "inspection": "what predictions depend on",
    "doctor": "checks of machines and clusters",
    "preconditioners": "spectra, batch and step size",
    "models": "predict, save, load",
    "basis": "columns and their sharding",
    "landmarks": "selection of landmarks",
    "features": "random features",
    "linalg": "eigenpairs, factors",
    "calibration": "probabilities, sets",
    "kernels": "formulas, engines",
    "losses": "values, gradients",
    "data": "stores, ingestion",
    "cluster": "gangs, collectives",
    "monitor": "progress, history",
    "backend": "NumPy or CuPy, tiles, threads, random numbers, communicators",
    "row_table": "tables of records",
    "errors": "exceptions",
    "events": "events of fits",
    "arrays": "array types",
    "display": "tables in notebooks",
}


def layers() -> dict[int, list[str]]:
    """Return the packages of each layer, read from the test of imports."""
    tree = ast.parse((HERE.parent / "tests" / "test_imports.py").read_text())
    value = next(
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS"
    )
    table: dict[str, int] = eval(ast.unparse(value), {"__builtins__": {}, "dict": dict})
    rows: dict[int, list[str]] = {}
    for package, layer in table.items():
        if package != "__main__":
            rows.setdefault(layer, []).append(package)
    return rows


def with_layers(page: str) -> str:
    """Return the page with its indented table of layers replaced by that of the test."""
    rows = layers()
    table = [
        f"    {layer if name == rows[layer][0] else '':>2}  {name:<15} {WHAT.get(name, '')}".rstrip()
        for layer in sorted(rows, reverse=True)
        for name in rows[layer]
    ]
    return re.sub(r"(?<=\n\n)    \d+  cli .*?(?=\n\n## )", lambda _: "\n".join(table), page, flags=re.DOTALL)


def folders() -> dict[str, str]:
    """Return the first paragraph of the docstring of each package, by its path."""
    package = HERE.parent / "daskkern"
    found = {}
    for module in sorted(package.rglob("__init__.py")):
        inside = module.parent.relative_to(package)
        if inside.parts:
            said = (ast.get_docstring(ast.parse(module.read_text())) or "").split("\n\n")[0]
            found[inside.as_posix()] = re.sub(r":[a-z]*:`[.~]*(\w+)`", r"`\1`", said).replace("``", "`")
    return found


def with_folders(page: str) -> str:
    """Return the page with its table of folders replaced by that of the packages."""
    rows = [f"| `{path}` | {' '.join(said.split())} |" for path, said in folders().items()]
    table = "\n".join(["| folder | what it is |", "| --- | --- |", *rows])
    return re.sub(r"\| folder \| what it is \|\n.*?(?=\n\n)", lambda _: table, page, flags=re.DOTALL)


def svg(width: int, height: int, title: str, about: str, body: list[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
            f'     role="img" aria-labelledby="t d" font-family="Helvetica, Arial, sans-serif" fill="{INK}">',
            f'  <title id="t">{title}</title>',
            f'  <desc id="d">{about}</desc>',
            '  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"',
            f'    orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{SOFT}"/></marker></defs>',
            f'  <rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="12" fill="#fbfaf7" stroke="#9aa5b1"/>',
            *(f"  {line}" for line in body),
            "</svg>",
            "",
        ]
    )


def text(
    x: float, y: float, words: str, size: int = 14, fill: str = INK, weight: str = "normal", at: str = "middle"
) -> str:
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    look = f'text-anchor="{at}" font-size="{size}" fill="{fill}" font-weight="{weight}"'
    return f'<text x="{x:g}" y="{y:g}" {look}>{words}</text>'


def box(x: float, y: float, w: float, h: float, fill: str, stroke: str = LINE) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" fill="{fill}" stroke="{stroke}"/>'


def arrow(path: str, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{SOFT}" stroke-width="1.5"{dash} marker-end="url(#tip)"/>'


def draw_layers() -> str:
    """Return the drawing of the layers: one row of boxes per layer."""
    rows = layers()
    left, wide, high, gap = 64, 880, 46, 8
    body = []
    for row, layer in enumerate(sorted(rows, reverse=True)):
        y = 20 + row * (high + gap)
        body.append(text(36, y + 29, str(layer), 15, SOFT))
        names = rows[layer]
        each = (wide - gap * (len(names) - 1)) / len(names)
        shade = f"hsl({205 - 12 * row}, 45%, {93 - row}%)"
        for number, name in enumerate(names):
            x = left + number * (each + gap)
            body.append(box(x, y, each, high, shade))
            body.append(text(x + each / 2, y + 20, name, 15, weight="bold"))
            body.append(text(x + each / 2, y + 37, WHAT.get(name, ""), 12, SOFT))
    bottom = 20 + len(rows) * (high + gap)
    body.append(text(left, bottom + 18, "A layer imports only from the layers below it.", 13, SOFT, at="start"))
    top = "from the command line at the top to errors, events and array types at the bottom"
    return svg(968, bottom + 36, "The layers of daskkern", f"The packages of daskkern in layers, {top}.", body)


def draw_flow() -> str:
    """Return the drawing of the path of the data, from files to predictions, with the loop of steps below."""
    blue, green, yellow, grey, pink = "#d6eaf8", "#d5f0e0", "#fdeeb5", "#e4e7eb", "#f5dcea"
    body = []

    def part(x: float, y: float, w: float, h: float, fill: str, name: str, *lines: str) -> None:
        body.append(box(x, y, w, h, fill))
        body.append(text(x + w / 2, y + 23, name, 15, weight="bold"))
        body.extend(text(x + w / 2, y + 43 + 17 * number, line, 12, SOFT) for number, line in enumerate(lines))

    part(20, 60, 150, 100, grey, "files", "npz, CSV, Parquet,", "HDF5, AnnData, Zarr,", "SVMLight, dask")
    part(
        236,
        60,
        170,
        100,
        yellow,
        "store",
        "Zarr: X, y in chunks,",
        "classes, scaling, encoding,",
        "a checksum per chunk",
    )
    part(
        472,
        60,
        190,
        100,
        green,
        "preparation",
        "landmarks Z, subsample,",
        "eigenpairs (dask.array),",
        "batch and step size",
    )
    part(
        728,
        60,
        220,
        100,
        green,
        "memory plan, gang",
        "refused here if too large;",
        "all workers at once,",
        "one rank on each",
    )
    body.append(arrow("M170 110 H232"))
    body.append(text(201, 100, "ingest", 12, SOFT))
    body.append(arrow("M406 110 H468"))
    body.append(text(437, 100, "sample", 12, SOFT))
    body.append(arrow("M662 110 H724"))
    body.append(arrow("M838 160 V212"))

    body.append(
        f'<rect x="236" y="216" width="712" height="196" rx="8" fill="#ffffff" stroke="{LINE}" stroke-dasharray="6 4"/>'
    )
    body.append(text(934, 238, "steps, on every rank r of W", 13, SOFT, at="end"))
    part(256, 254, 130, 84, yellow, "batch", "m rows, the same", "on every rank")
    part(424, 254, 150, 84, blue, "own columns", "K(X, Z_r) a_r:", "its partial scores")
    part(612, 254, 140, 84, pink, "allreduce", "sum of scores,", "(m, c) numbers")
    part(790, 254, 140, 84, blue, "gradient", "the same everywhere:", "a_r is updated")
    body.extend(arrow(f"M{x} 296 H{x + 34}") for x in (386, 574, 752))
    body.append(arrow("M321 160 V250"))
    body.append(text(330, 190, "windows of rows,", 12, SOFT, at="start"))
    body.append(text(330, 205, "prefetched", 12, SOFT, at="start"))
    body.append(arrow("M860 338 V380 H499 V342"))
    body.append(text(680, 398, "K(X, Z_r)' g: no communication; then the next batch", 12, SOFT))

    part(
        20,
        254,
        170,
        118,
        grey,
        "commits",
        "the state, every few",
        "seconds, in the workers'",
        "memory; checkpoints",
        "on disk",
    )
    body.append(arrow("M236 313 H194", dashed=True))

    part(424, 462, 200, 84, green, "model", "points, coefficients, kernel,", "scaling, encoding, classes")
    part(728, 462, 220, 84, yellow, "predictions", "of arrays, lazily of dask,", "of stores and tables")
    body.append(arrow("M524 412 V458"))
    body.append(text(534, 440, "collected, written atomically", 12, SOFT, at="start"))
    body.append(arrow("M624 504 H724"))
    body.append(text(674, 494, "NumPy, Zarr", 12, SOFT))
    body.append(text(20, 34, "client, or a process that reads files", 13, SOFT, at="start"))
    body.append(text(948, 34, "workers", 13, SOFT, at="end"))
    about = (
        "Files are ingested into a store; landmarks and spectrum are prepared; ranks read batches, sum partial scores "
        "and update their own columns; the model is collected and predicts."
    )
    return svg(968, 566, "Data flow", about, body)


if __name__ == "__main__":
    (HERE / "layers.svg").write_text(draw_layers())
    (HERE / "data-flow.svg").write_text(draw_flow())
    design = HERE / "design.md"
    design.write_text(with_layers(design.read_text()))
    architecture = HERE / "architecture.md"
    architecture.write_text(with_folders(architecture.read_text()))
