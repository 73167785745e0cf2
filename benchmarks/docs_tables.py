"""Tables in the pages of docs/, made of the files of figures.

    python benchmarks/docs_tables.py            # after a benchmark: rewrites the blocks of its figures

A block begins with ``<!-- figures: NAME -->`` and ends with ``<!-- end of figures -->``; what is between is generated.
A test compares all blocks with the files.
"""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from figures import Row, Run, read
from pages import picture_text, table, text
from papers.documents import document_table, documents
from ranks.page import many_ranks

FOLDER = Path(__file__).resolve().parent
DOCS = FOLDER.parent / "docs"
_BLOCK = re.compile(r"<!-- figures: ([a-z-]+) -->\n.*?<!-- end of figures -->\n", re.DOTALL)


def collectives(run: Run) -> list[str]:
    """Return the times of allreduces, a row for each number of workers and algorithm, the chosen one in bold."""
    rows = run.tables["sums"]
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    cells: dict[tuple[int, str], dict[str, Row]] = {}
    for row in rows:
        cells.setdefault((row["n_workers"], row["way"]), {})[row["size"]] = row
    header = ["workers", "algorithm", *(f"{size}: median / p95, ms" for size in sizes)]
    lines = table(header, [[*key, *(_times(found[size]) for size in sizes)] for key, found in cells.items()])
    return [_origin(run), "", *lines]


def _times(row: Row) -> str:
    said = f"{row['median_ms']:.3g} / {row['p95_ms']:.3g}"
    return f"**{said}**" if row["chosen"] else said


def _origin(run: Run) -> str:
    machine = run.machine
    return f"One run on {machine['cpu']}, {machine['n_cores']} cores, {text(machine['memory_gb'])} GB, {run.date}."


def ranks(run: Run) -> list[str]:
    """Return what was measured of many ranks, and what follows."""
    (whole,) = run.tables["whole"]
    before, after = (text(whole[f"others_load_{when}_cores"]) for when in ("before", "after"))
    load = f"Other processes used {before} cores before and {after} after it."
    return [f"{_origin(run)} {load}", "", *many_ranks(run)]


def wires(run: Run) -> list[str]:
    """Return the times of a sum by each wire, of two ranks and of four on two hosts, and what others would save."""
    (whole,) = run.tables["whole"]
    saved = [
        [
            row["step"],
            row["size"],
            *(f"{row[f'{name}_share']:.1%}" for name in ("sockets_save", "shared_memory_saves", "fits_save")),
        ]
        for row in run.tables["gains"]
    ]
    load = f"Other processes used {text(whole['others_load_cores'])} cores meanwhile."
    return [
        f"{_origin(run)} {load}", "",
        *_times_by_wire(run.tables["sums"]), "",
        "Four ranks on two hosts, which are addresses of the loopback interface and share the two cores:", "",
        *_times_by_wire(run.tables["hosts"]), "",
        *table(["step", "bytes of each of two sums", "sockets", "shared memory at most", "as it is built"], saved),
    ]  # fmt: skip


def _times_by_wire(rows: Sequence[Row]) -> list[str]:
    by_size: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_size.setdefault(row["size"], {})[row["wire"]] = row
    names = list(dict.fromkeys(row["wire"] for row in rows))
    lines = [
        [size, *(f"{found[name]['least_ms']:.3g} / {found[name]['median_ms']:.3g}" for name in names)]
        for size, found in by_size.items()
    ]
    return table(["bytes", *(f"{name}: least / median, ms" for name in names)], lines)


BLOCKS: dict[str, tuple[str, Callable[[Run], list[str]]]] = {
    "collectives": ("results-collectives.json", collectives),
    "wires": ("results-wires.json", wires),
    "many-ranks": ("results-many-ranks.json", ranks),
}


def rewritten(page: str, folder: Path = FOLDER) -> str:
    """Return a page with the blocks of its figures rewritten, where their files exist.

    KeyError for a block that nobody makes.
    """

    def block(found: re.Match[str]) -> str:
        if found[1] in documents():
            return "\n".join(
                [f"<!-- figures: {found[1]} -->", *document_table(found[1]), "<!-- end of figures -->", ""]
            )
        name, make = BLOCKS[found[1]]
        if not (folder / name).exists():
            return found[0]
        picture = (folder / name).with_suffix(".png")
        lines = make(read(folder / name)[-1])
        lines += ["", f"![{picture_text(picture)}](../benchmarks/{picture.name})"] if picture.exists() else []
        return "\n".join([f"<!-- figures: {found[1]} -->", *lines, "<!-- end of figures -->", ""])

    return _BLOCK.sub(block, page)


def main(pages: Sequence[Path] = ()) -> None:
    """Rewrite the blocks of all pages."""
    for path in pages or sorted(DOCS.glob("*.md")):
        before = path.read_text()
        after = rewritten(before)
        if after != before:
            path.write_text(after)
            print(f"{path.name}: rewritten")


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
