"""A rollout begun, watched and rolled back in a real browser; by keyboard; and not by a viewer."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import PATIENCE_MS, log_in, page
from support.console_seed import PASSWORD, PEOPLE
from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def running(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("rollouts")) as y:
        folder = y.repository("vision")
        write_identity(folder, "digits", 1, 2)
        y.commit(folder, "Digits")
        y.push(folder)
        y.wait_versions("digits", 2)
        for name, role in PEOPLE.items():
            y.api("POST", "/users", {"name": name, "role": role, "password": PASSWORD})
        yield y


@pytest.fixture
def routed(running: Yard) -> Yard:
    """All of the traffic goes to version 1, and no rollout is under way."""
    for one in running.api("GET", "/rollouts")[1]["items"]:
        running.api("POST", f"/rollouts/{one['id']}/abort")

    def over() -> bool:
        rows = running.api("GET", "/rollouts")[1]["items"]
        return all(one["phase"] in ("degraded", "healthy", "superseded") for one in rows)

    running.wait_for(over, "rollouts to end")
    arms = [{"name": "stable", "model": "digits", "version": 1, "weight": 100}]
    assert running.api("PUT", "/routes/digits", {"arms": arms})[0] == 200
    running.wait_versions("digits", 1, 2)
    return running


def url_of(y: Yard) -> str:
    return f"http://127.0.0.1:{y.admin_port}"


@contextmanager
def traffic(y: Yard) -> Iterator[None]:
    over = threading.Event()
    tensor = {"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [1]}

    def send() -> None:
        connection = HTTPConnection("127.0.0.1", y.server.http_port, timeout=60)
        while not over.wait(0.005):
            connection.request("POST", "/v2/models/digits/infer", json.dumps({"inputs": [tensor]}))
            connection.getresponse().read()
        connection.close()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def begin(tab: Page, y: Yard, hold: str) -> None:
    tab.goto(f"{url_of(y)}/rollouts")
    tab.click("a[href='#make']")
    tab.select_option("#f-rollouts-candidate", "digits:2")
    tab.click("form.act summary")
    for name, value in {"mirror": "0", "steps": "20, 50", "hold": hold, "min_sample": "20"}.items():
        tab.fill(f"#f-rollouts-{name}", value)
    tab.click("button:has-text('Start rollout')")
    expect(tab.locator("h1")).to_have_text("Rollout of digits: version 2")
    expect(tab.locator("#live-state")).to_have_text("live")


def stable_weight(y: Yard) -> float:
    arms = y.api("GET", "/routes/digits")[1]["arms"]
    return float(next(one["weight"] for one in arms if one["name"] == "stable"))


def test_a_rollout_is_watched_step_by_step_and_aborted_without_a_reload(
    browser: Browser, routed: Yard
) -> None:
    with page(browser) as tab, traffic(routed):
        log_in(tab, url_of(routed), "iris", PASSWORD)
        begin(tab, routed, "10s")
        tab.evaluate("window.stayed = true")
        expect(tab.locator("#weight")).to_have_text("20 %")
        expect(tab.locator("#traffic-p99-rollout canvas")).to_be_visible()
        expect(tab.locator("#traffic-p99-rollout")).to_have_attribute(
            "data-series", re.compile(r"\[(null, ?)*\d+\.\d+,")
        )
        expect(tab.locator("#weight")).to_have_text("50 %")
        expect(tab.locator(".rail .here")).to_contain_text("50 %")
        expect(tab.locator(".events")).to_contain_text("Step 2 of 2")
        tab.click("text=Abort …")
        tab.locator("input[name=confirm]").fill("digits")
        assert tab.evaluate("window.stayed") is True
        tab.click("text=Abort the rollout")
        expect(tab.locator(".big")).to_contain_text("rolled back")
        expect(tab.locator("#weight")).to_have_text("0 %")
        assert stable_weight(routed) == 100
        tab.click(".trail >> text=digits")
        expect(tab.locator("tr", has_text="stable").first).to_contain_text("100 %")
        tab.click("nav >> text=Audit")
        expect(tab.locator("tr", has_text="rollout.abort").first).to_contain_text("user:iris")


def test_the_keyboard_alone_promotes_a_rollout(browser: Browser, routed: Yard) -> None:
    with page(browser) as tab:
        log_in(tab, url_of(routed), "otto", PASSWORD)
        begin(tab, routed, "1h")
        expect(tab.locator("#weight")).to_have_text("20 %")
        for _ in range(40):
            tab.keyboard.press("Tab")
            if tab.evaluate("document.activeElement.textContent") == "Promote to the next step":
                break
        tab.keyboard.press("Enter")
        expect(tab.locator("#weight")).to_have_text("50 %")
        assert stable_weight(routed) == 50


def test_a_viewer_watches_and_is_refused(browser: Browser, routed: Yard) -> None:
    plan = {"mirror": 0, "steps": "20, 50", "hold": "1h"}
    begun = routed.api("POST", "/rollouts", {"name": "digits", "candidate": 2, "plan": plan})
    with page(browser) as tab:
        log_in(tab, url_of(routed), "vera", PASSWORD)
        at = f"{url_of(routed)}/rollouts/{begun[1]['id']}"
        tab.goto(at)
        expect(tab.locator("#weight")).to_have_text("20 %")
        others = ":not([action='/logout'], [action='/theme'])"
        assert tab.locator(f"form[method=post]{others}").count() == 0
        token = tab.locator("input[name=token]").first.get_attribute("value")
        answer = tab.request.post(
            f"{at}/abort",
            form={"token": token or "", "confirm": "digits"},
            headers={"Origin": url_of(routed)},
        )
        assert answer.status == 403
        assert stable_weight(routed) == 80


def test_sliders_always_make_100_and_listen_to_the_keyboard(browser: Browser, routed: Yard) -> None:
    arm = {"model": "digits", "weight": 25}
    arms = [{**arm, "name": f"arm{one}", "version": 1 + one % 2} for one in range(4)]
    routed.api("PUT", "/routes/shop", {"arms": arms})
    with page(browser) as tab:
        log_in(tab, url_of(routed), "otto", PASSWORD)
        tab.goto(f"{url_of(routed)}/routes/shop")
        tab.click("a[href='#weigh']")
        tab.get_by_label("arm1, digits:2, slider").focus()
        for key in ("ArrowRight", "ArrowRight", "PageUp", "End", "Home", "ArrowRight"):
            tab.keyboard.press(key)
            values = tab.locator(".weights input[type=number]").evaluate_all(
                "fields => fields.map((field) => Math.round(field.value * 100))"
            )
            assert sum(values) == 10_000, (key, values)
        tab.click("text=Set weights")
        expect(tab.locator("#live tr", has_text="arm1")).to_contain_text("1 %")
        assert routed.api("GET", "/routes/shop")[1]["arms"][1]["weight"] == 1
        routed.api("DELETE", "/routes/shop")


def test_a_mistyped_weight_is_not_sent_as_another(browser: Browser, routed: Yard) -> None:
    arm = {"model": "digits", "version": 1}
    arms = [{**arm, "name": "old", "weight": 90}, {**arm, "name": "new", "weight": 10}]
    routed.api("PUT", "/routes/shop", {"arms": arms})
    with page(browser) as tab:
        log_in(tab, url_of(routed), "otto", PASSWORD)
        tab.goto(f"{url_of(routed)}/routes/shop")
        tab.click("a[href='#weigh']")
        field = tab.locator("input[name='weight.new']")
        field.fill("1010")
        tab.click("text=Set weights")
        expect(field).to_have_value("1010")
        expect(field).to_be_focused()
        assert field.evaluate("field => field.validity.rangeOverflow")
        assert [one["weight"] for one in routed.api("GET", "/routes/shop")[1]["arms"]] == [90, 10]
        routed.api("DELETE", "/routes/shop")


def test_a_model_is_called_in_the_playground(browser: Browser, routed: Yard) -> None:
    with page(browser) as tab:
        log_in(tab, url_of(routed), "vera", PASSWORD)
        tab.goto(f"{url_of(routed)}/playground/digits")
        tab.fill("textarea[name='data.INPUT0']", "42")
        tab.click("button:has-text('Send')")
        expect(tab.locator("#answered-by")).to_have_text("digits version 1")
        expect(tab.locator("pre.text").first).to_contain_text("42.0")
