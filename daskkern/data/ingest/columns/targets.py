"""The decision whether targets are classes or quantities, and its reason."""

from dataclasses import dataclass

from daskkern.data.ingest.columns.whole_numbers import n_few_whole_numbers
from daskkern.data.ingest.readers.tables import Table
from daskkern.data.schema.schema import Task
from daskkern.errors import DataError, SpecError

_HINTS: dict[str, Task] = {
    "binary": "classification",
    "multiclass": "classification",
    "classification": "classification",
    "regression": "regression",
}
TASKS = ("auto", "classification", "regression")


@dataclass(frozen=True)
class Decision:
    """The task, the reason for it in a few words, and whether it was guessed from the values."""

    task: Task | None
    reason: str
    guessed: bool


def check_task(task: str) -> None:
    """Raise SpecError unless `task` is a known task."""
    if task not in TASKS:
        raise SpecError(f"got task {task!r}; choose one of {', '.join(TASKS)}")


def decide(table: Table, requested: str) -> Decision:
    """Return the task for the targets of `table`: as given, as recorded in the file, or inferred from values."""
    decision = _decide(table, requested)
    if decision.task == "classification" and table.n_targets != 1:
        raise DataError(
            f"{table.source} has {table.n_targets} targets, but classes are one target; for several quantities use "
            "--task regression"
        )
    if decision.task == "regression" and table.target_kind == "text":
        remedy = "choose a target of numbers, or --task classification"
        if table.n_targets > 1:
            remedy = "encode such targets as numbers, several labels of a row as 0 and 1"
        raise DataError(f"the task is regression, but the target of {table.source} is text; {remedy}")
    return decision


def _decide(table: Table, requested: str) -> Decision:
    if table.target_kind is None:
        if requested != "auto":
            raise DataError(f"got --task {requested}, but {table.source} has no targets; name them with --target")
        return Decision(None, "there are no targets", guessed=False)
    if requested == "classification":
        return Decision("classification", "as asked", guessed=False)
    if requested == "regression":
        return Decision("regression", "as asked", guessed=False)
    if table.task_hint is not None:
        return Decision(_hinted(table, table.task_hint), f"the entry 'task' says {table.task_hint}", guessed=False)
    if table.n_targets > 1:
        labels = "; where they are labels of 0 and 1, fit --multilabel" * (table.target_kind in ("integer", "truth"))
        return Decision("regression", f"there are {table.n_targets} targets{labels}", guessed=True)
    if table.target_kind == "float":
        n_values = n_few_whole_numbers(table)
        if not n_values:
            return Decision("regression", "the target holds floats", guessed=True)
        target = f"target {table.target_names[0]!r}" if table.target_names else "the target"
        reason = f"{target} has {n_values} whole-number values; use --task regression for a regression"
        return Decision("classification", reason, guessed=True)
    kinds = {"text": "strings", "truth": "truth values", "integer": "integers"}
    return Decision("classification", f"the target holds {kinds[table.target_kind]}", guessed=True)


def _hinted(table: Table, hint: str) -> Task:
    task = _HINTS.get(hint.strip().lower())
    if task is None:
        raise DataError(
            f"the entry 'task' of {table.source} is {hint!r:.80}; {', '.join(_HINTS)} are known, "
            "or give --task classification or regression"
        )
    return task
