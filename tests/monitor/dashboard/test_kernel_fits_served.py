"""The page and the metrics on a scheduler that runs: put there once, replaced, taken away, and used in a browser."""

import json
import pickle
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import dask
import pytest
from bokeh.client import connection, pull_session
from bokeh.document.events import MessageSentEvent
from bokeh.events import ButtonClick
from distributed import Client, LocalCluster
from tornado.httpclient import HTTPRequest

from daskkern.cluster.scheduler.client import ask_fits, install_fits
from daskkern.cluster.scheduler.event_topics import TOPIC
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.plugin import FitsPlugin
from daskkern.errors import ClusterError
from daskkern.monitor.metrics import FitMetrics
from daskkern.training.jobs.install_dashboard import MonitorPlugin, hide_fits, show_fits
from tests.support.browser import browser, missing, wait_for
from tests.support.cluster import wait_until
from tests.support.fit_records import NAMES, record

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
SOURCE = """
for (const model of Bokeh.documents[0]._all_models.values())
  if (model.name === '{}') return Array.from(model.data['{}'])
"""
CLICK = """
const stop = Bokeh.documents[0].get_model_by_name('stop');
const walk = node => [node, ...(node.shadowRoot ? [...node.shadowRoot.querySelectorAll('*')].flatMap(walk) : [])];
const nodes = [...document.querySelectorAll('*')].flatMap(walk);
nodes.find(node => node.tagName === 'BUTTON' && node.textContent === stop.label).click()
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Client of a scheduler in this process, with a dashboard and without workers."""
    options: dict[str, Any] = {"n_workers": 0, "processes": True, "silence_logs": 50}
    with (
        LocalCluster(dashboard_address="127.0.0.1:0", **options) as cluster,
        Client(cluster, set_as_default=False) as made,
    ):
        yield made


@pytest.fixture
def address(client: Client) -> str:
    """Where the dashboard is, with the page on it."""
    show_fits(client)
    return str(client.dashboard_link).removesuffix("/status")


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as reply:
            return int(reply.status), reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def _routes(client: Client) -> tuple[int, int]:
    """Return how many applications serve the page, and how many tabs lead to it."""

    def count(dask_scheduler: Any) -> tuple[int, int]:
        from distributed.dashboard.scheduler import template_variables

        apps = dask_scheduler.http_application.applications
        served = sum("/kernel-fits" in getattr(app, "app_paths", ()) for app in apps)
        return served, template_variables(dask_scheduler)["pages"].count("kernel-fits")

    return client.run_on_scheduler(count)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("dask_daskkern_fits{")]


class NewerPlugin(MonitorPlugin):
    name = "daskkern_monitor_next"


def test_the_page_is_there_once_whoever_puts_it_there(client: Client, address: str) -> None:
    show_fits(client)
    assert _routes(client) == (1, 1)
    assert len(_lines(_get(f"{address}/metrics")[1])) == 11
    client.register_plugin(NewerPlugin())  # as a newer daskkern does
    assert _routes(client) == (1, 1)
    assert len(_lines(_get(f"{address}/metrics")[1])) == 11
    client.unregister_scheduler_plugin("daskkern_monitor_next")  # Dask does not tell the plugin
    client.register_plugin(NewerPlugin())
    assert _routes(client) == (1, 1)
    assert "Kernel-Fits" in _get(f"{address}/workers")[1]
    hide_fits(client)
    assert _routes(client) == (0, 0)
    assert _lines(_get(f"{address}/metrics")[1]) == []
    assert _get(f"{address}/kernel-fits")[0] == 404
    hide_fits(client)
    show_fits(client)
    assert _get(f"{address}/kernel-fits")[0] == 200


def _shown(dask_scheduler: Any) -> list[int]:
    return [id(shown) for shown in dask_scheduler.extensions["daskkern_monitor"]]


def test_a_plugin_of_another_version_leaves_the_fits_alone(client: Client, address: str) -> None:
    metadata = asdict(FitMetadata("cafe01234567", "flights"))
    ask_fits(client, "ask", card=metadata, wish={}, asker=client.id)
    with pytest.raises(ClusterError, match="already keeps the list of fits, under another name"):
        client.register_plugin(FitsPlugin(), name="daskkern_fits_99")
    with pytest.raises(ClusterError, match="speaks version 99 of daskkern's messages and the scheduler version"):
        client.register_plugin(FitsPlugin(99), name="daskkern_fits_99")
    assert pickle.loads(pickle.dumps(FitsPlugin(99))).protocol == 99
    assert b"received" in pickle.dumps(FitsPlugin())  # which older schedulers do not have
    lacks = AttributeError("Can't get attribute 'received'")
    refused = pytest.raises(ClusterError, match=r"scheduler's daskkern is older .* version \d+ of its messages")
    with refused, mock.patch.object(client, "register_plugin", side_effect=lacks):
        install_fits(client)
    newer = MonitorPlugin()
    newer.protocol = 99
    shown = client.run_on_scheduler(_shown)
    client.register_plugin(newer, name="daskkern_monitor_99")
    assert client.run_on_scheduler(_shown) == shown
    assert "cafe01234567" in {status["card"]["fit"] for status in ask_fits(client, "fits")}
    assert _get(f"{address}/kernel-fits")[0] == 200  # with a fit of which nothing was heard yet
    ask_fits(client, "ended", fit="cafe01234567", state="cancelled", asker=client.id)


def _click_stop_twice(address: str, origin: str, **headers: str) -> None:
    """Press the button over a socket of its own, as the script of a web site can."""
    sent = {"Origin": origin, **headers}
    with mock.patch.object(connection, "HTTPRequest", partial(HTTPRequest, headers=sent)):
        session = pull_session(url=f"{address}/kernel-fits")
    try:
        document, socket = session.document, session._connection
        click = MessageSentEvent(document, "bokeh_event", ButtonClick(document.get_model_by_name("stop")))
        for _ in range(2):
            socket._send_patch_document(session.id, click)
        session.force_roundtrip()
    finally:
        session.close()


@pytest.mark.repeated
@pytest.mark.filterwarnings("ignore:reference already known")  # bokeh's client sends whole models
def test_only_pages_of_this_dashboard_stop_fits(client: Client, address: str) -> None:
    fit = "beef01234567"
    ask_fits(client, "ask", card=asdict(FitMetadata(fit, "b")), wish={}, asker=client.id)

    def stopped() -> str:
        return str(next(status["stop"] for status in ask_fits(client, "fits") if status["card"]["fit"] == fit))

    _click_stop_twice(address, "http://evil.example")
    _click_stop_twice(address, "http://evil.example", Host="evil.example")  # a name that leads to the dashboard
    assert stopped() == ""
    _click_stop_twice(address, address)
    assert stopped() == "stop"
    ask_fits(client, "ended", fit=fit, state="cancelled", asker=client.id)


def test_browsers_show_the_page_in_no_frame_of_another_site(client: Client, address: str) -> None:
    def headers() -> tuple[str | None, str | None]:
        with urllib.request.urlopen(f"{address}/kernel-fits", timeout=20) as reply:
            return reply.headers["Content-Security-Policy"], reply.headers["X-Frame-Options"]

    assert headers() == ("frame-ancestors 'self'", "SAMEORIGIN")
    place = "distributed.scheduler.dashboard.bokeh-application.allow_websocket_origin"
    with dask.config.set({place: ["*", "lab.example:8888"]}):  # the scheduler is in this process
        assert headers() == ("frame-ancestors 'self' lab.example:8888", None)


def test_what_is_no_fit_or_no_event_is_refused(client: Client, address: str) -> None:
    for metadata in ({"fit": "bad", "name": "b", "max_epochs": "<img>"}, {"fit": "bad", "name": 9 * [1]}):
        with pytest.raises(ClusterError, match="of a fit is a"):
            ask_fits(client, "ask", card=metadata, wish={}, asker=client.id)
    ask_fits(client, "ask", card=asdict(FitMetadata("deed01234567", "b")), wish={}, asker=client.id)
    for message in (
        {"event": "WorkersJoined", "size": "<img>"},
        {"event": "StageFinished"},
        {"event": "FitQueued", "reason": "the last"},
    ):
        client.log_event(f"{TOPIC}deed01234567", message)
    wait_until(lambda: ask_fits(client, "fit_events", fit="deed01234567")["next"] == 1, timeout_s=20)
    ask_fits(client, "ended", fit="deed01234567", state="cancelled", asker=client.id)
    with pytest.raises(ClusterError, match="as the end of a fit"):
        ask_fits(client, "ended", fit="deed01234567", state="<img>", asker=client.id)
    assert _get(f"{address}/metrics")[0] == 200


def test_a_scheduler_without_a_dashboard_goes_on_without() -> None:
    options: dict[str, Any] = {"n_workers": 0, "processes": True, "silence_logs": 50}
    settings = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(scheduler_kwargs=settings, **options) as cluster, Client(cluster, set_as_default=False) as client:
        show_fits(client)
        assert len(ask_fits(client, "fits")) == 0


class _NoFits:
    """The view of a scheduler without fits."""

    def fits(self) -> list[dict[str, Any]]:
        return []

    def history(self, fit: str) -> dict[str, Any]:
        return {}

    def glance(self, fit: str) -> dict[str, Any]:
        return {}

    def cancel(self, fit: str) -> bool:
        return False


def test_every_query_of_the_deployed_dashboards_names_a_metric(address: str) -> None:
    names = {line.split("{")[0].split(" ")[0] for line in _get(f"{address}/metrics")[1].splitlines() if line[:1] != "#"}
    board = json.loads((ROOT / "deploy" / "grafana" / "daskkern.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert len(queries) >= 6
    known = {family.name for family in FitMetrics(_NoFits()).collect()} | names
    for query in queries:
        requested = {word for word in _words(query) if word.startswith("dask_")}
        assert requested, query
        assert requested <= known, requested - known
    rules = (ROOT / "deploy" / "prometheus.yml").read_text()
    assert "/metrics" in rules


def _words(query: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "_" else " " for letter in query).split()


def _tell(client: Client, fit: str, n_epochs: int) -> None:
    """Let the scheduler hear of a fit, as from a worker."""
    kept = record(fit, n_epochs)
    ask_fits(
        client, "ask", card=asdict(FitMetadata(fit, "flights", "ada@host", max_epochs=20)), wish={}, asker=client.id
    )
    events = [*kept.events, *kept.history.to_message()["ranks"]]
    batches = kept.history.to_message()["batches"]
    rows = [dict(zip(batches, row, strict=True)) for row in zip(*batches.values(), strict=True)]
    for message in [*events, *({"event": "BatchFinished", **row} for row in rows)]:
        client.log_event(f"{TOPIC}{fit}", {key: value for key, value in message.items() if key != "time"})


CUT = """const below = node => node ? [...node.querySelectorAll('*')] : [];
    const walk = node => [node, ...below(node.shadowRoot).flatMap(walk)];
    const row = below(document).flatMap(walk).find(node => node.dataset && node.dataset.fit === 'FIT');
    const owner = row.querySelector('[data-label=Owner]'), edge = row.getBoundingClientRect().right;
    const wide = [...row.children].filter(cell => cell.getBoundingClientRect().right > edge + 1);
    return [getComputedStyle(row).display, getComputedStyle(owner).display, wide.length]"""
"""How a fit is shown on a phone: the layout of its row, of its owner, and how many cells it cuts."""


@pytest.mark.long
@pytest.mark.skipif(bool(missing()), reason=f"no headless Chromium; {missing()}")
def test_the_page_in_a_browser(client: Client, address: str) -> None:
    for fit, n_epochs in zip(NAMES, (3, 8), strict=True):
        _tell(client, fit, n_epochs)
    wait_until(lambda: all(s["epoch"] for s in ask_fits(client, "fits") if s["card"]["fit"] in NAMES), timeout_s=20)
    with browser(1280, 1800) as driver:
        driver.get(f"{address}/kernel-fits?theme=dark")
        wait_for(driver, SOURCE.format("batches", "loss"), lambda loss: len(loss) == 40)
        assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        page = "return Bokeh.documents[0].get_model_by_name('{}')"
        assert wait_for(driver, f"{page.format('facts')}.text").count("8 of 20") == 1
        row = f"""const host = [...document.querySelectorAll('*')].flatMap(function walk(node) {{
            return [node, ...(node.shadowRoot ? [...node.shadowRoot.querySelectorAll('*')].flatMap(walk) : [])] }});
            const row = host.find(node => node.dataset && node.dataset.fit === '{NAMES[0]}');
            row.dispatchEvent(new PointerEvent('pointerdown')); return true"""
        wait_for(driver, row)
        losses = wait_for(driver, SOURCE.format("batches", "loss"), lambda loss: len(loss) == 15)
        assert losses[-1] == pytest.approx(1 / 3)
        driver.execute_script("Bokeh.documents[0].get_model_by_name('axis').active = 1")
        wait_for(driver, SOURCE.format("batches", "x"), lambda x: x[-1] == pytest.approx(3.0))
        assert wait_for(driver, SOURCE.format("spectrum", "after")) == pytest.approx([0.1] * 3)
        over = f"""const host = [...document.querySelectorAll('*')].flatMap(function walk(node) {{
            return [node, ...(node.shadowRoot ? [...node.shadowRoot.querySelectorAll('*')].flatMap(walk) : [])] }});
            const button = host.find(node => node.dataset && node.dataset.of === '{NAMES[1]}');
            button.dispatchEvent(new PointerEvent('pointerdown', {{bubbles: true}})); return true"""
        wait_for(driver, over)
        wait_for(driver, SOURCE.format("1_batches", "loss"), lambda loss: len(loss) == 40)
        assert wait_for(driver, f"{page.format('chosen')}.value") == NAMES[0]  # the button did not choose the fit
        shown = "return getComputedStyle(document.querySelector('.of-several')).display"
        wait_for(driver, shown, lambda display: display != "none")
        wait_for(driver, over)
        wait_for(driver, shown, lambda display: display == "none")
        driver.find_element("id", "theme").click()
        assert driver.execute_script("return document.documentElement.dataset.theme") == "light"
        wait_for(driver, f"{page.format('stop')}.disabled === false")
        driver.execute_script(CLICK)
        wait_for(driver, f"{page.format('stop')}.label", lambda label: label == "Click again to stop")
        driver.execute_script(CLICK)
        wait_for(driver, f"{page.format('stop')}.label", lambda label: label == "Stopping …")
        assert not [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]
        size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        cut = CUT.replace("FIT", NAMES[0])
        assert wait_for(driver, cut, lambda found: found is not None) == ["grid", "none", 0]
        assert driver.execute_script("return document.documentElement.scrollWidth") == 390
    stopped = {status["card"]["fit"]: status["stop"] for status in ask_fits(client, "fits")}
    assert {fit: stopped[fit] for fit in NAMES} == {NAMES[0]: "stop", NAMES[1]: ""}


@pytest.mark.repeated
@pytest.mark.skipif(bool(missing()), reason=f"no headless Chromium; {missing()}")
def test_while_it_connects_the_page_is_one_sentence(client: Client, address: str) -> None:
    ask_fits(client, "fits")
    shown = """return [...document.querySelectorAll('main > *')]
        .filter(node => getComputedStyle(node).visibility === 'visible' && getComputedStyle(node).display !== 'none')
        .map(node => node.className)"""
    with browser(900, 900) as driver:
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*bokeh*.js"]})
        driver.get(f"{address}/kernel-fits")
        assert wait_for(driver, shown, lambda found: len(found) > 0) == ["connecting"]
        top = "return document.querySelector('.connecting').getBoundingClientRect().top"
        menu = "return document.querySelector('.navbar').getBoundingClientRect().bottom"
        assert driver.execute_script(top) >= driver.execute_script(menu)
