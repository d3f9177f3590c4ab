"""A bad night, from the overview: which model fails, since when, why, and who changed what, each
within two clicks. Ada pushed a version whose worker dies at every request, otto gave it traffic;
and a model of a folder fails every request.
"""

from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from support.browser import PATIENCE_MS, log_in, page, violations
from support.console_seed import PASSWORD, PEOPLE
from support.series_seed import seed_series
from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow
expect.set_options(timeout=PATIENCE_MS)

DIES = """import os
import sys


class TritonPythonModel:
    def execute(self, requests):
        print("the price list is gone", file=sys.stderr, flush=True)
        os._exit(3)
"""
CONFIG = """name: "prices"
backend: "python"
max_batch_size: 0
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
instance_group { count: 1 kind: KIND_CPU }
"""
FAILS = """class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("the scaler was not fitted")
"""
STEADY = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        values = [pb_utils.get_input_tensor_by_name(one, "INPUT0").as_numpy() for one in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", one)]) for one in values
        ]
"""


@pytest.fixture(scope="module")
def night(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("incident")
    scores = folder / "models" / "scores" / "1"
    scores.mkdir(parents=True)
    (scores / "model.py").write_text(FAILS)
    (scores.parent / "config.pbtxt").write_text(CONFIG.replace("prices", "scores"))
    with yard(folder) as y:
        for name, role in PEOPLE.items():
            y.api("POST", "/users", {"name": name, "role": role, "password": PASSWORD})
        arms: list[dict[str, Any]] = []
        work = y.repository("shop", formats=["python", "config"])
        for version, code in ((1, STEADY), (2, DIES)):
            home = work / "models" / "prices" / str(version)
            home.mkdir(parents=True)
            (home / "model.py").write_text(code)
            (home.parent / "config.pbtxt").write_text(CONFIG)
            y.commit(work, f"Prices, the version {version}")
            y.push(work)
            y.wait_versions("prices", *range(1, version + 1))
            arm = {"name": f"v{version}", "model": "prices", "version": version}
            arms.append({**arm, "weight": 0 if arms else 100})
            assert y.api("PUT", "/routes/shop", {"arms": arms})[0] == 200
        with page(browser) as tab:
            change_the_weights(tab, y)
        write_identity(work, "digits", 1, config="# a mistake\nmax_queue_size: 1\n")
        y.commit(work, "Digits")
        y.push(work, ok=False)
        crash(y)
        for _ in range(61):
            assert ask(y, "/v2/models/scores/infer") == 500
        seed_series(y, model="prices")
        yield y


def url_of(y: Yard) -> str:
    return f"http://127.0.0.1:{y.admin_port}"


def change_the_weights(tab: Page, y: Yard) -> None:
    log_in(tab, url_of(y), "otto", PASSWORD)
    tab.goto(f"{url_of(y)}/routes/shop")
    tab.click("a[href='#weigh']")
    tab.fill("input[name='weight.v2']", "10")
    tab.click("text=Set weights")
    expect(tab.locator("#live tr", has_text="v2").first).to_contain_text("10 %")


def crash(y: Yard) -> None:
    """Requests to the new version until they have cost it its worker thrice."""

    def thrice() -> bool:
        with suppress(OSError, HTTPException):
            ask(y, "/v2/models/prices/versions/2/infer")
        rows: list[Any] = y.api("GET", "/deaths")[1]["items"]
        return [one["deaths"] >= 3 for one in rows] == [True]

    y.wait_for(thrice, "the worker to have died three times", 60)


def ask(y: Yard, path: str) -> int:
    """The status of an inference."""
    tensor = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}
    return y.server.post(path, {"inputs": [tensor]})[0]


class Operator:
    """A tab whose clicks are counted, from the overview."""

    def __init__(self, tab: Page) -> None:
        self.tab = tab
        self.clicks = 0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()


@pytest.fixture
def overview(browser: Browser, night: Yard) -> Iterator[Page]:
    with page(browser) as tab:
        log_in(tab, url_of(night), "otto", PASSWORD)
        tab.goto(url_of(night))
        yield tab


@pytest.fixture
def operator(overview: Page) -> Operator:
    return Operator(overview)


def problem(tab: Page, text: str) -> Locator:
    found = tab.locator(".problems > li", has_text=text)
    expect(found).to_have_count(1)
    return found


def test_which_version_fails_since_when_and_why_stands_on_the_overview(overview: Page) -> None:
    expect(problem(overview, "prices version 2")).to_contain_text("crashes repeatedly")
    told = problem(overview, "prices version 2").inner_text()
    assert "exited with status 3" in told
    assert "the price list is gone" in told
    assert "by ada" in told
    assert "UTC" in told.partition("since")[2]


def test_which_model_fails_at_run_time_since_when_and_how_is_two_clicks_away(
    overview: Page,
) -> None:
    told = problem(overview, "scores version 1")
    expect(told).to_contain_text("fails requests")
    expect(told).to_contain_text("61 of 61 requests failed from")
    expect(told).to_contain_text("since 20")
    told.locator("a.title").click()
    expect(overview.locator("#live .state", has_text="failing").first).to_be_visible()
    overview.click("text=Failed requests")
    expect(overview.locator("tbody tr").first).to_contain_text("the scaler was not fitted")


def test_the_list_of_models_has_the_failing_one_in_red_above_the_rest(overview: Page) -> None:
    expect(problem(overview, "scores version 1")).to_be_visible()
    overview.goto(overview.url + "models?sort=state")
    expect(overview.locator("tbody tr").nth(0)).to_contain_text("failing")
    expect(overview.locator("tbody tr", has_text="scores").locator(".bad").first).to_be_visible()


def test_what_is_acknowledged_folds_with_its_note_and_can_be_taken_back(overview: Page) -> None:
    home = overview.url
    problem(overview, "scores version 1").get_by_role("link", name="Acknowledge").click()
    assert violations(overview) == []
    overview.get_by_label("Note").fill("the scaler comes back with the next push")
    overview.keyboard.press("Enter")
    overview.wait_for_url(home)
    folded = overview.locator("details.known")
    expect(folded).to_contain_text("1 problem acknowledged")
    folded.locator("summary").click()
    expect(folded.locator("li")).to_contain_text("the scaler comes back with the next push")
    expect(folded.locator("li")).to_contain_text("by otto")
    assert violations(overview) == []
    folded.get_by_role("link", name="Acknowledged").click()
    overview.click("button:has-text('Remove the acknowledgement')")
    overview.wait_for_url(home)
    expect(overview.locator("details.known")).to_have_count(0)
    expect(problem(overview, "scores version 1")).to_be_visible()


def test_who_brought_the_version_and_with_which_commit_is_two_clicks_away(overview: Page) -> None:
    problem(overview, "prices version 2").locator("a.title").click()
    expect(overview.locator("h1")).to_contain_text("prices")
    overview.locator("#live a[href^='/pushes/']").first.click()
    expect(overview.locator("main")).to_contain_text("Prices, the version 2")
    expect(overview.locator("main")).to_contain_text("ada")


def test_who_changed_the_weights_and_from_what_is_one_click_away(overview: Page) -> None:
    expect(overview.locator(".events")).to_contain_text(
        "route shop changed: weights v1 100 → 90 %, v2 0 → 10 % by otto"
    )
    overview.click("text=Who changed what")
    row = overview.locator("tr", has_text="route.changed").first
    expect(row).to_contain_text("user:otto")
    expect(row).to_contain_text("10")


def test_why_a_push_was_refused_is_one_click_away(overview: Page) -> None:
    told = problem(overview, "push to shop was refused")
    expect(told).to_contain_text("by ada")
    told.locator("a.title").click()
    expect(overview.locator("pre.text").first).to_contain_text("did you mean max_batch_size")


def test_what_fails_at_run_time_since_when_and_what_changed_before_takes_two_clicks(
    operator: Operator,
) -> None:
    failing = problem(operator.tab, "prices version 2")
    expect(failing).to_contain_text("since 20")
    expect(failing).to_contain_text("by ada")
    operator.click(failing.locator("a.title"))
    operator.click(operator.tab.locator(".markers summary"))
    changes = operator.tab.locator(".markers li")
    expect(changes.filter(has_text="prices deployed")).not_to_have_count(0)
    assert operator.clicks <= 2


def test_where_a_p99_rise_comes_from_takes_two_clicks(operator: Operator) -> None:
    tab = operator.tab
    operator.click(tab.get_by_role("navigation").get_by_role("link", name="Models", exact=True))
    operator.click(tab.get_by_role("link", name="prices", exact=True).first)
    peak = tab.locator("figure", has=tab.locator("[id^='traffic-p99']"))
    expect(peak).to_contain_text("Highest: version 3")
    expect(peak).to_contain_text("mostly compute")
    expect(peak).to_contain_text("ms in the queue")
    assert operator.clicks <= 2


def test_who_holds_the_memory_takes_two_clicks(operator: Operator) -> None:
    tab = operator.tab
    operator.click(tab.get_by_role("navigation").get_by_role("link", name="Servers", exact=True))
    workers = tab.locator("section[aria-labelledby=instances] tbody tr", has_text="prices 1")
    expect(workers).to_contain_text("MiB")
    operator.click(tab.get_by_text("the largest first"))
    expect(tab.locator("section[aria-labelledby=memory] li").first).to_contain_text("iB")
    assert operator.clicks <= 2


def test_which_version_served_a_request_takes_two_clicks(operator: Operator, night: Yard) -> None:
    tensor = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}
    body = {"id": "order-4711", "inputs": [tensor]}
    assert night.server.post("/v2/models/prices/versions/1/infer", body)[0] == 200
    tab = operator.tab
    operator.click(tab.get_by_role("navigation").get_by_role("link", name="Requests", exact=True))
    tab.get_by_label("Request id").fill("order-4711")
    operator.click(tab.get_by_role("button", name="Search"))
    row = tab.locator("section[aria-labelledby=last] tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("prices version 1")
    expect(row).to_contain_text("served")
    assert operator.clicks <= 2


def test_the_last_healthy_version_is_back_after_three_clicks(
    operator: Operator, night: Yard
) -> None:
    """The last test here: what it changes stays."""
    tab = operator.tab
    operator.click(problem(tab, "prices version 2").locator("a.title"))
    operator.click(tab.get_by_role("link", name="Roll back to version 1 …"))
    operator.click(tab.get_by_role("button", name="Roll back", exact=True))
    expect(tab.locator("h1")).to_have_text("Rollback of prices: version 1")
    assert operator.clicks <= 3

    def back() -> bool:
        return ask(night, "/v2/models/prices/infer") == 200

    night.wait_for(back, "version 1 to answer")
