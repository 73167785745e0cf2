"""The page "Kernel fits" shows what the scheduler knows: its data sources, its words, its buttons."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bokeh.document import Document

from daskkern.cluster.scheduler.fits import RUNNING, FitRecord, checked
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.errors import SpecError
from daskkern.events import (
    PARTS_OF_TIME,
    BatchFinished,
    CheckpointWritten,
    FitResumed,
    WorkersLost,
    to_message,
)
from daskkern.monitor import formatting
from daskkern.monitor.curves import batch_columns, rates, share_columns, smoothed
from daskkern.monitor.dashboard import figures, tables
from daskkern.monitor.dashboard.comparison import comparison_table, differing_settings, not_comparable
from daskkern.monitor.dashboard.document import KernelFits, fill
from daskkern.monitor.dashboard.facts import facts, waits_note
from daskkern.monitor.dashboard.origins import is_own, trust
from daskkern.monitor.metrics import MOST_FITS, FitMetrics
from daskkern.monitor.view import SharedView
from tests.support.fit_records import NAMES, record


class View:
    """Two fits that stand still."""

    def __init__(self, *records: FitRecord) -> None:
        self.records = {kept.metadata.fit: kept for kept in records}
        self.cancelled: list[str] = []
        self.requested = 0

    def fits(self) -> list[dict[str, Any]]:
        return [kept.status(("0", "1"), ()).to_message() for kept in self.records.values()]

    def history(self, fit: str) -> dict[str, Any]:
        self.requested += 1
        workers = {"workers": {"tcp://h:0": {"name": "0", "heard": 0.0}}}
        return {**self.records[fit].history.to_message(), **workers} if fit in self.records else {}

    def glance(self, fit: str) -> dict[str, Any]:
        workers = {"workers": {"tcp://h:0": {"name": "0", "heard": 0.0}}}
        return {**self.records[fit].history.glance(), **workers} if fit in self.records else {}

    def cancel(self, fit: str) -> bool:
        self.cancelled.append(fit)
        self.records[fit].stop = "stop"
        return True


@pytest.fixture
def view() -> View:
    first, second = record(NAMES[0], 3), record(NAMES[1], 8)
    first.submitted, second.submitted = 1.0, 2.0
    return View(first, second)


@pytest.fixture
def page(view: View) -> KernelFits:
    made = KernelFits(view)
    document = Document()
    made.put_on(document)
    trust(document)
    return made


def test_the_newest_fit_is_shown_and_another_can_be_chosen(page: KernelFits) -> None:
    assert page.chosen.value == NAMES[1]
    assert len(page.sources.fits[0].batches.data["loss"]) == 40
    page.chosen.value = NAMES[0]
    np.testing.assert_allclose(page.sources.fits[0].epochs.data["validation_loss"], [2, 1, 2 / 3])
    np.testing.assert_allclose(page.sources.shares.data["waiting"], [25, 25, 25])
    np.testing.assert_allclose(page.sources.spectrum.data["after"], [0.1, 0.1, 0.1])
    assert "3 of 20" in page.facts.text
    assert "<b>128 rows</b>" in page.spectrum_note.text
    assert "50% of 2 GB" in page.ranks.text


def test_curves_are_against_time_or_epochs(page: KernelFits) -> None:
    page.axis.active = 1
    np.testing.assert_allclose(page.sources.fits[0].batches.data["x"], np.arange(1, 41) / 5)
    np.testing.assert_allclose(page.sources.fits[0].epochs.data["x"], np.arange(1, 9))
    page.smoothing.value = "none"
    np.testing.assert_allclose(page.sources.fits[0].batches.data["smooth"], page.sources.fits[0].batches.data["loss"])


def test_news_come_with_the_next_update(page: KernelFits, view: View) -> None:
    for event in (
        WorkersLost("worker <b> left", 1),
        FitResumed(4, 2, 1),
        CheckpointWritten(4, 2, 0.5),
        BatchFinished(4, 3, 5, 0.2, 1e4),
    ):
        view.records[NAMES[1]].note(to_message(event))
    page.update()
    assert len(page.sources.fits[0].batches.data["loss"]) == 18
    assert "worker lost" in page.notices.text
    assert "worker &lt;b&gt; left" in page.notices.text
    assert "window redone" in page.notices.text
    assert page.ranks.text.count("<tr") == 2  # the head, and one rank


def test_stopping_takes_two_clicks(page: KernelFits, view: View) -> None:
    page._stop_clicked()
    assert (view.cancelled, page.stop.button.label) == ([], "Click again to stop")
    page._stop_clicked()
    assert view.cancelled == [NAMES[1]]
    assert page.stop.button.disabled
    assert "running, stopping" in page.facts.text


def test_nobody_stops_a_fit_before_a_page_of_this_dashboard_has_connected(view: View) -> None:
    made = KernelFits(view)
    made.put_on(Document())
    assert made.stop.button.disabled
    made._stop_clicked()
    made._stop_clicked()
    assert view.cancelled == []


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({"Host": "s:8787", "Origin": "http://s:8787"}, True),
        ({"Host": "s:8787", "Origin": "http://S:8787"}, True),
        ({"Host": "[::1]:8787", "Origin": "http://[::1]:8787"}, True),
        ({"Host": "10.0.0.1", "Origin": "http://10.0.0.1"}, True),
        ({"Host": "dask.svc.cluster.local:8787", "Origin": "http://dask.svc.cluster.local:8787"}, True),
        ({"Host": "node.hpc.example:8787", "Origin": "http://node.hpc.example:8787"}, True),
        ({"Host": "evil.example:8787", "Origin": "http://evil.example:8787"}, False),
        ({"Host": "10.0.0.1.evil.example", "Origin": "http://10.0.0.1.evil.example"}, False),
        ({"Host": "evil.example:8787", "Origin": "http://hub", "X-Forwarded-Host": "hub"}, False),
        ({"Host": "x", "Origin": "http://a.named.example:9"}, False),
        ({"Host": "x", "Origin": "http://10.1.2.3:9000"}, True),
        ({"Host": "x", "Origin": "http://10.1.2.3:9001"}, False),
        ({"Host": "s:8787", "Origin": "http://s"}, False),
        ({"Host": "s:8787", "Origin": "http://evil.example"}, False),
        ({"Host": "s:8787", "Origin": "null"}, False),
        ({"Host": "s:8787"}, False),
        ({"Host": "", "Origin": ""}, False),
        ({"Host": "10.0.0.1:8787", "Origin": "https://hub", "X-Forwarded-Host": "hub, inner"}, True),
        ({"Host": "10.0.0.1:8787", "Origin": "https://named.example"}, True),
    ],
)
def test_a_page_is_of_this_dashboard_when_its_host_was_asked(headers: dict[str, str], own: bool) -> None:
    assert is_own(headers, ("*", "*:80", "Named.example", "10.1.*.*:9000"), ("node", "Node.hpc.example")) == own


def test_the_second_click_stops_the_fit_of_the_first_only(page: KernelFits, view: View) -> None:
    page._stop_clicked()
    page.chosen.value = NAMES[0]
    assert page.stop.button.label == "Stop after this window"
    page._stop_clicked()
    page.chosen.value = NAMES[1]
    page.chosen.value = NAMES[0]
    page._stop_clicked()
    assert view.cancelled == []
    page._stop_clicked()
    assert view.cancelled == [NAMES[0]]


def test_a_fit_of_which_nothing_was_heard_has_a_page() -> None:
    document = Document()
    fill(document, View(FitRecord(FitMetadata(NAMES[0], "flights"))), {})
    assert "Nothing has happened yet" in document.get_model_by_name("notices").text


def test_the_whole_history_is_asked_for_when_it_has_changed(page: KernelFits, view: View) -> None:
    before = view.requested
    page.update()
    page.update()
    assert view.requested == before
    view.records[NAMES[1]].note(to_message(BatchFinished(9, 1, 5, 0.2, 1e4)))
    page.update()
    assert view.requested == before + 1


def test_what_many_viewers_ask_for_is_made_once(view: View) -> None:
    now = [0.0]
    shared = SharedView(view, clock=lambda: now[0])
    pages = [KernelFits(shared) for _ in range(3)]
    for made in pages:
        made.put_on(Document())
    assert view.requested == 1
    view.records[NAMES[1]].note(to_message(BatchFinished(9, 1, 5, 0.2, 1e4)))
    for made in pages:
        made.update()
        assert made.sources.fits[0].batches.data["loss"][-1] == 0.2
        assert "8 of 20" in made.facts.text  # as of half a second ago at most
    assert view.requested == 2
    now[0] = 0.5
    pages[0].update()
    assert "9 of 20" in pages[0].facts.text
    assert shared.cancel(NAMES[1])
    assert next(s for s in shared.fits() if s["card"]["fit"] == NAMES[1])["stop"] == "stop"
    for number in range(2 * SharedView._HISTORIES):
        shared.history(f"{number:012x}")
    assert shared.history(NAMES[1]) == view.history(NAMES[1])
    assert len(shared._histories) == SharedView._HISTORIES


def test_a_page_without_fits_says_how_they_come() -> None:
    document = Document()
    fill(document, View(), {})
    assert "No fits yet" in document.get_model_by_name("fits").text
    assert document.get_model_by_name("stop").disabled


def test_a_fit_that_waits_has_not_run_yet() -> None:
    kept = record(NAMES[0], 0)
    waits, history = kept.status((), ()).to_message(), kept.history.to_message()
    waits |= {"state": "queued", "submitted": 100.0, "started": 0.0, "ended": 0.0}
    runs = {**waits, "state": "running", "started": 130.0}
    prepares = {**waits, "state": "preparing"}
    never = {**waits, "state": "cancelled", "ended": 150.0}
    texts = [facts(status, history, 160.0) for status in (waits, runs, prepares, never)]
    assert "<span>Queued for</span><b>1 min 0 s</b>" in texts[0]
    assert "<span>Running for</span><b>30 s</b>" in texts[1]
    assert "<span>Submitted</span><b>1 min 0 s ago</b>" in texts[2]
    assert "<span>Running for</span><b>-</b>" in texts[3]
    assert "1 min 0 s" not in tables.fits_table([waits], {}, 160.0)


def test_what_clients_send_is_escaped(view: View) -> None:
    view.records["<script>"] = record("<script>", 1, name="<img src=x onerror=alert(1)>", owner="'><b>", out="<i>")
    made = KernelFits(view)
    made.chosen.value = "<script>"
    for text in (made.fits.text, made.facts.text, made.notices.text, made.ranks.text):
        assert not any(tag in text for tag in ("<img", "<script", "'><b>", "<i>"))


def test_numbers_that_are_markup_do_not_reach_the_page(view: View) -> None:
    for event in (
        {"event": "WorkersJoined", "size": "<img>"},
        {"event": "StageFinished"},
        {"event": "BatchFinished", "epoch": "<img>", "batch": 1, "n_batches": 1, "loss": 1.0, "rows_per_second": 1.0},
        {"event": "RankReported", "rank": 10**400, "worker": "", "device": "", "memory_bytes": 1, "planned_bytes": 1},
        {"event": "<img>"},
    ):
        assert checked(event) is None
    for metadata in ({"max_epochs": "<img>"}, {"max_epochs": True}, {"name": 1}, {"name": 501 * "n"}, {"detached": 1}):
        with pytest.raises(SpecError, match=next(iter(metadata))):
            FitMetadata(**{"fit": NAMES[0], "name": "flights", **metadata})  # type: ignore[arg-type]
    long = checked(to_message(WorkersLost(10**6 * "a", 1)))
    assert long is not None
    assert len(long["reason"]) < 10_000


def test_a_fit_that_cannot_be_read_has_no_metrics(view: View) -> None:
    good, bad = view.fits()
    bad["card"]["max_epochs"], bad["loss"], bad["epoch"], bad["workers"] = "<img>", "a", None, 3

    class Odd(View):
        def fits(self) -> list[dict[str, Any]]:
            return [good, bad]

    samples = [sample for family in FitMetrics(Odd()).collect() for sample in family.samples]
    assert {sample.name for sample in samples if sample.labels.get("fit") == NAMES[0]} >= {"dask_daskkern_fit_epoch"}
    assert "dask_daskkern_fit_epoch" not in {s.name for s in samples if s.labels.get("fit") == NAMES[1]}


def test_columns_against_a_plain_reference(view: View) -> None:
    values = np.random.default_rng(0).random(20)
    weights = [[0.8 ** (i - j) for j in range(i + 1)] for i in range(20)]
    expected = [np.dot(w, values[: i + 1]) / np.sum(w) for i, w in enumerate(weights)]
    np.testing.assert_allclose(smoothed(values, 0.8), expected)
    time, done = np.array([0.0, 1, 2, 9, 10]), np.array([0.0, 10, 30, 40, 80])
    np.testing.assert_allclose(rates(time, done), [np.nan, 10, 15, 10 / 7, 50 / 8])
    history = view.history(NAMES[0])
    few = batch_columns(history, 0.97)
    assert set(map(len, few.values())) == {15}
    np.testing.assert_array_equal(few["smooth"], few["loss"])  # or the curve would end far from the loss beside it
    shares = share_columns(history)
    np.testing.assert_allclose(sum(shares[part] for part in PARTS_OF_TIME), 100)


def test_numbers_have_units() -> None:
    assert [formatting.seconds(value) for value in (0.42, 75, 4000, math.nan)] == [
        "0.4 s",
        "1 min 15 s",
        "1 h 6 min",
        "-",
    ]
    assert [formatting.format_bytes(value) for value in (12, 1.5e6, 2.25e12)] == ["12 B", "1.5 MB", "2.25 TB"]


def test_the_progress_of_a_fit(view: View) -> None:
    status = {**view.fits()[0], "state": RUNNING}
    assert tables.done_share(status) == pytest.approx(3 / 20)
    assert tables.done_share({**status, "state": "finished"}) == 1
    assert tables.done_share({**status, "epoch": 0, "n_batches": 0}) == 0


def test_metrics_of_many_fits_are_bounded() -> None:
    view = View(*(record(f"{i:012x}", 1) for i in range(MOST_FITS + 9)))
    families = {family.name: family for family in FitMetrics(view).collect()}
    assert list(families) == [
        f"dask_daskkern_{name}"
        for name in (
            "fits",
            "fit_epoch",
            "fit_max_epochs",
            "fit_loss",
            "fit_validation_score",
            "fit_rows_per_second",
            "fit_seconds_left",
            "fit_workers",
            "fit_time_share",
            "fit_workers_lost",
        )
    ]
    assert {sample.labels["state"]: sample.value for sample in families["dask_daskkern_fits"].samples}["running"] == 59
    shares = families.pop("dask_daskkern_fit_time_share").samples
    assert {sample.labels["part"]: sample.value for sample in shares} == pytest.approx(
        {"computing": 0.3, "reading": 0.15, "checkpointing": 0.05, "waiting": 0.25, "exchanging": 0.25}
    )
    assert len(shares) == MOST_FITS * len(PARTS_OF_TIME)
    assert max(len(family.samples) for family in families.values()) == MOST_FITS


def test_fits_are_drawn_over_the_chosen_one(page: KernelFits) -> None:
    others = page.sources.fits[1]
    assert len(others.batches.data["x"]) == 0
    assert [fit for fit, _ in page.compared.options] == [NAMES[0]]
    page.axis.active = 1
    page.compared.value = [NAMES[0]]
    np.testing.assert_allclose(others.batches.data["x"], np.arange(1, 16) / 5)
    np.testing.assert_allclose(others.epochs.data["x"], np.arange(1, 4))
    page.chosen.value = NAMES[0]  # a fit is not compared with itself
    assert page.compared.value == []
    assert len(others.batches.data["x"]) == 0


def _many(n_fits: int, **differing: list[str]) -> View:
    """Return fits whose settings differ in these values."""
    records = []
    for number in range(n_fits):
        own = {"solver": "eigenpro", **{name: values[number] for name, values in differing.items()}}
        made = record(f"{number:012x}", number + 1, name=f"fit {number}", task="classification", settings=own)
        made.submitted = float(n_fits - number)
        records.append(made)
    return View(*records)


def test_six_fits_keep_their_colors_while_others_come_and_go() -> None:
    view = _many(8)
    page = KernelFits(view)
    page.put_on(Document())
    ids = list(view.records)
    assert figures.MOST_FITS == 6
    page.compared.value = ids[1:]
    assert page.compared.value == ids[1:6]  # the others find no color
    lengths = [len(curves.epochs.data["x"]) for curves in page.sources.fits]
    assert lengths == [1, 2, 3, 4, 5, 6]
    legend = [item.label.value for item in page.score.figure.above[0].items]
    assert legend == [f"fit {number}" for number in range(6)]
    page.compared.value = [ids[3], ids[7]]
    lengths = [len(curves.epochs.data["x"]) for curves in page.sources.fits]
    assert lengths == [1, 8, 0, 4, 0, 0]  # the fourth is where it was
    assert page.fits.text.count("Remove these curves") == 2
    page.compared.value = []
    assert [item.label.value for item in page.losses[0].figure.above[0].items] == [
        "training, epoch so far",
        "validation",
    ]


def test_fits_of_one_name_are_told_apart_by_their_ids() -> None:
    ids = ["ab12cd34ef56", "12cd34ef56ab", "34ef56ab12cd"]
    view = View(*(record(fit, 2, name="other" if fit == ids[2] else "eigenpro") for fit in ids))
    page = KernelFits(view)
    page.put_on(Document())
    page.chosen.value, page.compared.value = ids[0], ids[1:]
    legend = [item.label.value for item in page.score.figure.above[0].items]
    assert legend == ["eigenpro ab12cd", "eigenpro 12cd34", "other"]


def test_new_curves_reach_the_browser_in_a_few_messages() -> None:
    """Each message with new models makes a browser draw: one for each line took it half a minute."""
    view = _many(6)
    page, document = KernelFits(view), Document()
    page.put_on(document)
    sent: list[Any] = []
    document.on_change(sent.append)
    page.compared.value = list(view.records)[1:]
    changed = [(event.model.id, event.attr) for event in sent if hasattr(event, "attr")]
    assert len(changed) == len(set(changed))
    assert len([attr for _, attr in changed if attr == "renderers"]) == 4 + 6  # of figures, and what the pointer shows


def test_times_of_all_fits_are_in_one_unit(view: View) -> None:
    class Slow(View):
        def history(self, fit: str) -> dict[str, Any]:
            found, stretch = super().history(fit), 90.0 if fit == NAMES[1] else 1.0  # the second is shown in minutes
            times = [stretch * number for number in range(1, 1 + len(found["batches"]["time"]))]
            begun = {**found["started"], "time": times[0]}
            return {**found, "batches": {**found["batches"], "time": times}, "epochs": [], "started": begun}

    page = KernelFits(Slow(*view.records.values()))
    page.put_on(Document())
    page.chosen.value, page.compared.value = NAMES[0], [NAMES[1]]
    assert page.rate.figure.xaxis[0].axis_label == "Time since the start (min)"
    np.testing.assert_allclose(page.sources.fits[0].batches.data["x"], np.arange(15) / 60)
    np.testing.assert_allclose(page.sources.fits[1].batches.data["x"], 90 * np.arange(40) / 60)


def test_a_table_has_the_settings_in_which_fits_differ() -> None:
    settings = [{"loss": "squared", "seed": "0"}, {"loss": "hinge", "seed": "0", "step": "2"}, {"loss": "<b>"}]
    assert differing_settings(settings) == ["loss"]
    view = _many(2, loss=["squared", "<hinge>"], seed=["0", "0"])
    text = comparison_table(list(enumerate(view.fits())), 10.0)
    assert "data-label='Loss'" in text
    assert "&lt;hinge&gt;" in text
    assert "Seed" not in text
    assert comparison_table([(0, view.fits()[0])], 10.0) == ""
    assert "different functions (&lt;hinge&gt;, squared)" in not_comparable(view.fits())
    same = _many(2).fits()
    assert "Their settings are the same" in comparison_table(list(enumerate(same)), 10.0)
    assert not_comparable(same) == ""
    other = [{**same[0], "card": {**same[0]["card"], "task": "regression"}}, same[1]]
    assert "different measures (R\N{SUPERSCRIPT TWO}, accuracy)" in not_comparable(other)


def test_names_of_a_series_stay_apart_in_legends() -> None:
    assert figures.shortened("prices") == "prices"
    names = [figures.shortened(f"delays of all flights, landmarks {number}") for number in (1000, 2000)]
    assert names == ["delays of all \N{HORIZONTAL ELLIPSIS}ks 1000", "delays of all \N{HORIZONTAL ELLIPSIS}ks 2000"]


def test_a_fit_that_waits_says_for_what() -> None:
    waiting = View(FitRecord(FitMetadata(NAMES[0], "flights", max_epochs=20)))
    waiting.records[NAMES[0]].state = "queued"

    class Queue(View):
        def fits(self) -> list[dict[str, Any]]:
            return [
                kept.status((), (NAMES[1],), "", "waiting for <2> fits").to_message() for kept in self.records.values()
            ]

    page = KernelFits(Queue(*waiting.records.values()))
    page.put_on(Document())
    assert page.facts.tags == ["waits"]  # the page leaves its plots out
    assert "<b>Waiting for &lt;2&gt; fits.</b> It starts by itself" in page.facts.text
    assert "Epochs to run</span><b>20</b>" in page.facts.text
    assert "0 of 0" not in page.facts.text
    assert "<small class='waits'>waiting for &lt;2&gt; fits</small>" in page.fits.text
    kept = record(NAMES[0], 3)
    kept.state = "preempted"
    status = kept.status((), (), "", "waiting for 1 more worker").to_message()
    assert "It has committed its state" in waits_note(status)
    assert "3 of 20" in facts(status, kept.history.glance(), 1.0)


def test_the_speed_is_that_at_the_end_of_its_curve(page: KernelFits) -> None:
    rate = page.sources.fits[0].batches.data["rate"]
    last = rate[np.isfinite(rate)][-1]
    assert f"<span>Speed, last 5 s</span><b>{last:,.0f} rows/s</b>" in page.facts.text


@pytest.mark.parametrize(
    ("task", "score"),
    [
        ("classification", "Accuracy"),
        ("regression", "R²"),
        ("multilabel", "R² of the scores"),
        ("", "Validation score"),
    ],
)
def test_what_a_fit_is_stands_in_the_list_and_over_its_curves(view: View, task: str, score: str) -> None:
    kept = view.records[NAMES[1]]
    method = "gaussian:median, squared, 500 <landmarks>, penalty auto"
    kept.metadata = replace(kept.metadata, task=task, method=method, source="/data/train.zarr/")
    page = KernelFits(view)
    page.put_on(Document())
    assert page.score.figure.yaxis[0].axis_label == score
    tile = f"Validation {score if 'R²' in score else score.lower()}" if task else score
    assert f"<span>{tile}</span>" in page.facts.text
    assert "gaussian:median, squared, 500 &lt;landmarks&gt;, penalty auto · train.zarr</small>" in page.fits.text
    assert "<b>gaussian:median, squared" in page.facts.text
