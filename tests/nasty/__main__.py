"""``python -m tests.nasty docs/nasty-data.md``: run the cases that have no record yet, and write the page."""

import argparse
from pathlib import Path

from tests.nasty.misses import write
from tests.nasty.outcomes import run
from tests.nasty.page import page
from tests.nasty.records import add, read
from tests.nasty.ways import cases


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.nasty", description=__doc__)
    parser.add_argument("page", type=Path, help="Markdown file to write")
    parser.add_argument(
        "--records", type=Path, default=Path("nasty-outcomes.jsonl"), help="outcomes so far; appended to"
    )
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for a fit")
    parser.add_argument("--only", default="", help="run only cases whose name has this text")
    parser.add_argument("--again", action="store_true", help="run cases that have a record as well")
    parser.add_argument("--share", default="0/1", help="i/k: run the cases numbered i modulo k")
    parser.add_argument("--note", default="", help="a paragraph for the page on how the cases were run")
    parser.add_argument("--misses", action="store_true", help="write the list of known third outcomes anew as well")
    args = parser.parse_args()
    share, of = map(int, args.share.split("/"))
    done = {} if args.again else read(args.records)
    for number, case in enumerate(cases()):
        if number % of == share and args.only in case.key and case.key not in done:
            outcome = run(case, args.limit)
            add(args.records, outcome)
            print(f"{case.key}: {outcome.kind} {outcome.said[:80]}", flush=True)
    found = read(args.records)
    if args.misses:
        write(found.values())
    args.page.write_text(page(found, args.note))


if __name__ == "__main__":
    main()
