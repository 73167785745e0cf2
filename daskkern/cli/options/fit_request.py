"""The options given for a fit, and their conversion to settings."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from daskkern.basis import uses_kernel
from daskkern.cli.options.basis_options import basis_of, names_no_columns, resized
from daskkern.cli.options.values import (
    as_batch,
    as_budget,
    as_calibrate,
    as_flag,
    as_groups,
    as_number,
    as_penalty,
    as_scale,
    as_whole,
)
from daskkern.errors import SpecError
from daskkern.feature_learning import FeatureLearning
from daskkern.kernels import parse_kernel
from daskkern.losses import parse_loss
from daskkern.solvers import Solver, parse_solver
from daskkern.solvers.sampling import draws_rows
from daskkern.systems import System, system
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.defaults import first_dtype, for_few_rows, usual_basis, usual_loss, with_usual_metric

OPTIONS = (
    *("system", "kernel", "loss", "basis", "landmarks", "features", "feature_kind", "selector", "nearest"),
    *("leaf_rows", "trees", "multilabel", "solver", "alpha"),
    *("epochs", "max_seconds", "batch_size", "sampling", "class_weight", "early_stopping", "monitor", "scale", "seed"),
    *("learn_features", "calibrate", "dtype", "precision", "device", "memory", "keep_blocks", "disk", "scratch"),
    *("virtual_shards", "reading", "groups"),
)
"""Names of the options of a fit."""


@dataclass(frozen=True)
class FitRequest:
    """Options with checked names and raw values; they become settings once the store's task is known."""

    values: Mapping[str, Any]

    def settings(
        self,
        task: str | None,
        n_rows: int | None = None,
        resumed: Mapping[str, Any] | None = None,
        n_features: int | None = None,
        n_classes: int = 0,
    ) -> FitSettings:
        """Return the settings for a store of this task and size. Raises SpecError for an invalid value.

        `resumed` are the settings of the run that is resumed, as its checkpoint has them: its solver, and whether the
        metric of the kernel is learned, are defaults then.
        """
        earlier = resumed or {}
        begun = str(earlier.get("solver", {}).get("name", ""))
        if as_flag("multilabel", self.values.get("multilabel", False)):
            task = "classification"  # of each label
        named = self.values.get("system")
        settings = self._plain(task, n_rows, begun) if named is None else self._of_system(system(str(named)), task)
        if "kernel" in self.values and not uses_kernel(settings.basis):
            raise SpecError(
                f"got --kernel {self.values['kernel']} with the basis {settings.basis.name}, which uses no kernel; "
                "leave it out, or give another --basis or --feature-kind"
            )
        if settings.solver.most_epochs(2) == 1:
            _refuse_epochs(self.values, settings.solver.name)
        if named is not None or task is None or "learn_features" in self.values:
            return settings
        if begun:  # as the first run did: limits may have been given or left out since
            learns = earlier.get("learn_features") is not None
            return replace(settings, learn_features=FeatureLearning()) if learns else settings
        known = None if task == "regression" else n_classes
        return with_usual_metric(settings, n_rows, n_features, known, names_solver=self._names_solver)

    @property
    def _names_solver(self) -> bool:
        return any(name == "solver" or name.startswith("solver.") for name in self.values)

    def check(self) -> None:
        """Raise SpecError for values that suit rows of no task; so they are refused before rows are read."""
        try:
            self.settings("classification")
        except SpecError as error:
            try:
                self.settings("regression")
            except SpecError:
                raise error from None

    def _plain(self, task: str | None, n_rows: int | None = None, begun: str = "") -> FitSettings:
        """Return the settings of a fit without --system."""
        get = self.values.get
        named = not names_no_columns(self.values)
        space = basis_of(self.values).name if named else ""
        solver = _with_changes(parse_solver(str(get("solver", "auto")), space), self.values)
        drawn = draws_rows(str(get("sampling", "uniform"))) or get("virtual_shards") is not None
        settings = FitSettings(
            kernel=parse_kernel(str(get("kernel", "auto"))),
            loss=parse_loss(_loss_name(self.values, task, solver)),
            basis=basis_of(self.values) if named else usual_basis(None if drawn else n_rows, solver),
            solver=solver,
            alpha=as_penalty(get("alpha", "auto")),
            max_epochs=as_whole("epochs", get("epochs", 10), least=1),
            batch_size=as_batch(get("batch_size", "auto")),
            seed=as_whole("seed", get("seed", 0)),
            dtype=first_dtype(str(get("dtype", "auto"))),
            precision=None if get("precision") is None else str(get("precision")),
            device=str(get("device", "auto")),
            class_weight=get("class_weight"),
            multilabel=as_flag("multilabel", get("multilabel", False)),
            early_stopping=_early_stopping(self.values),
            memory_budget=as_budget(get("memory")),
            keep_blocks=str(get("keep_blocks", "auto")),
            disk_budget=as_budget(get("disk")),
            scratch=None if get("scratch") is None else str(get("scratch")),
            sampling=str(get("sampling", "uniform")),
            max_seconds=None if get("max_seconds") is None else as_number("max_seconds", get("max_seconds")),
            scale=as_scale(get("scale", "auto")),
            class_intercept=task == "classification",
            learn_features=_feature_learning(self.values),
            calibrate=as_calibrate(get("calibrate", "auto")),
            virtual_shards=None if get("virtual_shards") is None else as_whole("virtual_shards", get("virtual_shards")),
            reading=str(get("reading", "auto")),
            groups=as_groups(get("groups", "auto")),
        )
        named = self._names_solver
        left_open = {"dtype"} if get("dtype", "auto") == "auto" else set()
        if not (named or begun == settings.solver.name or ("epochs" in self.values and not begun)):
            settings = replace(settings, max_epochs=FitSettings.max_epochs) if begun else settings
            left_open.add("solver")
        return for_few_rows(settings, left_open, n_rows)

    def _of_system(self, chosen: System, task: str | None) -> FitSettings:
        """Return the settings of a system, overridden by the given options."""
        own = chosen.for_task(task or chosen.tasks[0]).fit_settings()
        named = "solver" in self.values  # if not, solver.* settings apply to the system's solver
        own = replace(own, learn_features=_feature_learning(self.values, own.learn_features))
        left = {key: value for key, value in self.values.items() if named or not key.startswith("solver.")}
        given = replace(self, values={key: value for key, value in left.items() if key != "system"})._plain(task)
        names = {"epochs": "max_epochs", "memory": "memory_budget", "disk": "disk_budget", "monitor": "early_stopping"}
        changed = {names.get(key, key) for key in self.values if key in OPTIONS}
        takes = {item.name for item in fields(FitSettings)} - {"basis", "solver", "learn_features"}
        settings = replace(own, **{name: getattr(given, name) for name in changed & takes})
        if changed & {"basis", "landmarks", "features", "feature_kind", "selector", "nearest", "leaf_rows", "trees"}:
            keep = given.keep_blocks  # the system's own value may suit its basis only
            settings = replace(settings, basis=resized(chosen, self.values), keep_blocks=keep)
        if named:
            epochs = settings.max_epochs if "epochs" in self.values else max(chosen.max_epochs, given.max_epochs)
            return replace(settings, solver=given.solver, max_epochs=epochs)
        return replace(settings, solver=_with_changes(settings.solver, self.values))


def _refuse_epochs(values: Mapping[str, Any], solver: str) -> None:
    """Refuse options of methods with epochs for a solver that solves a problem at once."""
    usual = {"epochs": ("1",), "batch_size": ("auto",), "early_stopping": ("False", "false")}
    unused = [name for name, words in usual.items() if str(values.get(name, words[0])) not in words]
    if unused:
        named = " and ".join("--" + name.replace("_", "-") for name in unused)
        raise SpecError(
            f"got {named} with solver {solver}, which has no epochs; leave it out, or choose another --solver"
        )


def _early_stopping(values: Mapping[str, Any]) -> EarlyStopping | None:
    if as_flag("early_stopping", values.get("early_stopping", False)):
        return EarlyStopping(monitor=str(values.get("monitor", "auto")))
    if "monitor" in values:
        raise SpecError(f"got --monitor {values['monitor']} without --early-stopping; give both, or neither")
    return None


def _feature_learning(values: Mapping[str, Any], usual: FeatureLearning | None = None) -> FeatureLearning | None:
    """Return the settings of feature learning: `usual`, with the given options."""
    prefix = "learn_features."
    changes = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    known_metric = "auto" if usual is None else usual.metric
    metric = values.get("learn_features", known_metric if changes or usual else "none")
    if metric in ("none", None, False):
        if changes:
            raise SpecError(f"got {prefix}{next(iter(changes))} with --learn-features none; leave one of them out")
        return None
    known = {field.name for field in fields(FeatureLearning)} - {"metric"}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise SpecError(f"feature learning has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}")
    named = known_metric if metric is True else str(metric)
    return replace(usual or FeatureLearning(), metric=named, **changes)


def _loss_name(values: Mapping[str, Any], task: str | None, solver: Solver[Any]) -> str:
    named = str(values.get("loss", "auto"))
    return usual_loss(solver, classes=task != "regression") if named == "auto" else named


def _with_changes(solver: Solver[Any], values: Mapping[str, Any]) -> Solver[Any]:
    changes = {key.removeprefix("solver."): value for key, value in values.items() if key.startswith("solver.")}
    known = {field.name for field in fields(solver)}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise SpecError(f"the {solver.name} solver has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}")
    try:
        return replace(solver, **changes)
    except TypeError as error:
        raise SpecError(f"the {solver.name} solver cannot take {changes}: {error}") from None
