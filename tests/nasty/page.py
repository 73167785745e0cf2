"""The page of the documentation: the list of data sets and the table of outcomes, from the records of the cases."""

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.nasty.data import DATA_SETS, TASKS
from tests.nasty.misses import REASONS, misses
from tests.nasty.outcomes import Outcome
from tests.nasty.ways import METHODS, WAYS, Case, cases

_HEAD = """\
# Nasty data

A fit should end in one of two ways: with a right answer, or with a sentence that says what is wrong and what to do. It should never end well with a wrong model. This page lists data sets that are made to spoil fits, and what became of every solver on each of them. `python -m tests.nasty docs/nasty-data.md` makes it; the tests in `tests/nasty` run a part of it each time, and all of it with `-m slow`.

Each data set has some hundred training rows and 600 test rows, for regression and for classification, unless it says otherwise. A fit is *right* when its error on the test rows is at most 10% above that of a reference: the minimum of the same objective, computed in float64 by dense algebra that shares no code with daskkern. For regression the error is the root mean square, and 0.01 standard deviations of the targets are allowed in any case, since float32 gives no more digits of an error that is next to nothing. For classification it is the share of wrong test rows (balanced, where classes are very unequal), and as much more is allowed as chance explains: three standard deviations of the difference between two rules of equal error that differ on as many rows. A smaller error than the reference's is no fault. A *sentence* is an error of daskkern, or a warning that is seen without asking for it, such as that the fit has not converged. All else is a third outcome.
"""  # noqa: E501


def page(outcomes: Mapping[str, Outcome], note: str = "") -> str:
    """Return the page in Markdown. `note` is a paragraph on how the cases were run."""
    parts = [
        _HEAD,
        *_counts(outcomes),
        *([f"{note}\n"] if note else []),
        "## The data sets\n",
        _table(("data set", "what makes it nasty"), _described()),
    ]
    for way, what in WAYS.items():
        parts += [f"## Outcomes: {way}\n", f"{_sentence(what)}\n", _LEGEND]
        for task in TASKS:
            parts += [f"### {task.capitalize()}\n", _outcomes(outcomes, way, task)]
    parts += ["## Third outcomes\n", *_third(outcomes)]
    return "\n".join(parts)


_LEGEND = """\
`·` is right, `!` right with a warning that was not needed, `s` a sentence; a number is the error of a third outcome over the reference's, and `?` one that was not run or took longer than a minute.
"""  # noqa: E501


def _sentence(what: str) -> str:
    return f"With {what}." if what.startswith("the ") else f"{what}."


def _counts(outcomes: Mapping[str, Outcome]) -> Iterable[str]:
    kinds = Counter(outcome.kind for outcome in outcomes.values())
    warned = sum(outcome.kind == "right" and bool(outcome.said) for outcome in outcomes.values())
    third = kinds["wrong"] + kinds["error"]
    named = "is a third outcome" if third == 1 else "are third outcomes"
    yield (
        f"Of {len(list(cases())):,} cases {len(outcomes):,} were run: {kinds['right']:,} are right "
        f"({warned:,} with a warning), {kinds['sentence']:,} end with a sentence, {third:,} {named} "
        f"and {kinds['late']:,} took longer than the limit.\n"
    )


def _described() -> Iterable[tuple[str, str]]:
    for data in DATA_SETS.values():
        only = "" if data.tasks == TASKS else f" ({data.tasks[0]} only)"
        yield data.name, data.why + only


def _outcomes(outcomes: Mapping[str, Outcome], way: str, task: str) -> str:
    here = [case for case in cases() if case.way == way and case.task == task]
    methods = [name for name in METHODS if any(case.method == name for case in here)]
    names = list(dict.fromkeys(case.data for case in here))
    rows = [(name, *(_mark(outcomes.get(Case(way, name, task, method).key)) for method in methods)) for name in names]
    return _table(("data set", *(f"`{name}`" for name in methods)), rows)


def _mark(outcome: Outcome | None) -> str:
    if outcome is None or outcome.kind == "late":
        return "?"
    if outcome.kind == "right":
        return "!" if outcome.said else "·"
    if outcome.kind == "sentence":
        return "s"
    return "error" if outcome.kind == "error" else f"**{outcome.ratio:.3g}**"


def _third(outcomes: Mapping[str, Outcome]) -> Iterable[str]:
    third = {key for key, outcome in outcomes.items() if outcome.kind in ("wrong", "error")}
    if not third:
        yield "There is none among the cases that were run. A new one fails its test.\n"
        return
    reasons = Counter(miss.reason for key, miss in misses().items() if key in third)
    yield "Their number has to shrink: each is an expected failure of the tests, so that a change is seen.\n"
    for name, why in REASONS.items():
        if reasons[name]:
            yield f"- {reasons[name]}: {why}."
    yield ""
    counts = Counter(key.split(" / ")[-1] for key in third)
    yield _table(("solver", "third outcomes"), [(f"`{name}`", str(count)) for name, count in counts.most_common()])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
