"""What the page at / does when somebody uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]


def setting(page: Page, name: str, value: str) -> None:
    """Fill in a setting; sections that are folded are opened."""
    field = page.locator(f"#set-{name}")
    if not field.is_visible():
        page.locator("#settings details", has=field).locator("summary").click()
    field.fill(value)


def say(page: Page, text: str) -> dict[str, Any]:
    """Send a message with Enter; the body that went to the server."""
    with page.expect_request("**/v1/chat/completions") as sent:
        page.locator("#composer-text").fill(text)
        page.locator("#composer-text").press("Enter")
    return sent.value.post_data_json


def answer(page: Page) -> str:
    """The text of the last answer, once it has ended."""
    last = page.locator(".turn.assistant").last
    expect(last).to_have_attribute("aria-busy", "false")
    # Tokens that are no part of the text (the end of the answer) are shown too.
    return last.locator(".body").evaluate(
        "body => [...body.querySelectorAll('.token')].filter(t => !t.matches('.unsaid'))"
        ".map(t => t.textContent).join('') || body.textContent"
    )


def facts(page: Page) -> str:
    return page.locator(".turn.assistant .facts").last.inner_text()


def test_an_answer_grows_as_it_comes(page: Page) -> None:
    setting(page, "temperature", "0")
    body = say(page, "What is the capital of France?")
    assert body["stream"] is True
    assert "Paris" in answer(page)
    lengths = page.evaluate("window.lengths")
    assert len(lengths) > 3
    assert lengths[:-1] == sorted(lengths[:-1])
    assert re.search(r"→ \d+ tokens.*first after", facts(page))
    expect(page.locator("#folio")).to_contain_text("tokens")
    expect(page.locator("#title-page")).to_be_hidden()


def test_an_opening_is_a_first_message(page: Page) -> None:
    setting(page, "max_tokens", "4")
    page.locator(".opening").first.click()
    expect(page.locator(".turn.user .said")).to_have_text("What is the capital of France?")
    assert answer(page)


def test_an_answer_is_stopped_by_button_and_by_key(page: Page) -> None:
    setting(page, "max_tokens", "4000")
    page.locator("#set-stop").evaluate("field => field.closest('details').open = true")
    setting(page, "repetition_penalty", "1.3")
    for count, stop in enumerate(
        (lambda: page.locator("#send").click(), lambda: page.keyboard.press("Escape"))
    ):
        say(page, "Tell me a story that never ends.")
        expect(page.locator("#send")).to_have_text("Stop")
        expect(page.locator(".turn.assistant").nth(count).locator(".token").nth(3)).to_be_attached()
        stop()
        assert len(answer(page)) > 3
        assert "stopped" in facts(page)
        expect(page.locator("#send")).to_have_text("Send")
    # The engine is free again: nothing goes on behind the page.
    expect(page.locator(".big .value").first).to_have_text("0")


def test_sampling_settings_are_fields_of_the_request(page: Page) -> None:
    asked = {
        "temperature": "0.5",
        "top_p": "0.9",
        "min_p": "0.05",
        "top_k": "40",
        "max_tokens": "5",
        "seed": "7",
    }
    asked |= {"presence_penalty": "0.1", "frequency_penalty": "0.2", "repetition_penalty": "1.1"}
    for name, value in asked.items():
        setting(page, name, value)
    setting(page, "stop", "###\n\\n\\n")
    setting(page, "system", "Be brief.")
    body = say(page, "Say something.")
    assert {name: body[name] for name in asked} == {name: float(value) for name, value in asked.items()}
    assert body["stop"] == ["###", "\n\n"]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    first = answer(page)
    assert "→ 5 tokens" in facts(page)
    assert "cut at the token limit" in facts(page)
    # The same seed says the same again.
    page.get_by_role("button", name="Again").click()
    assert answer(page) == first
    page.get_by_role("button", name="Back to the defaults").click()
    assert not set(asked) & set(say(page, "And now?"))
    page.locator("#send").click()


def test_a_slider_and_its_number_are_one(page: Page) -> None:
    slider = page.get_by_label("Temperature, slider")
    slider.focus()
    slider.press("Home")
    expect(page.locator("#set-temperature")).to_have_value("0")
    setting(page, "temperature", "1.5")
    expect(slider).to_have_value("1.5")
    page.reload()
    expect(page.locator("#set-temperature")).to_have_value("1.5")


def test_what_the_server_refuses_is_told_in_its_words(page: Page) -> None:
    setting(page, "max_tokens", "999999")
    say(page, "Hello")
    expect(page.locator(".turn.assistant .failure")).to_contain_text("max_tokens")


def test_probabilities_of_a_token_on_hover_and_by_keys(page: Page) -> None:
    setting(page, "temperature", "0")
    setting(page, "max_tokens", "8")
    assert say(page, "What is the capital of France?")["top_logprobs"] == 5
    answer(page)
    tokens, box = page.locator(".turn.assistant .token"), page.locator("#alternatives")
    expect(tokens).to_have_count(8)
    tokens.nth(2).hover()
    expect(box).to_be_visible()
    expect(box.locator("li")).to_have_count(5)
    expect(box.locator("li.chosen")).to_have_count(1)
    shares = [float(re.sub(r"[<%]", "", text)) for text in box.locator("li .number").all_inner_texts()]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) < 101
    page.locator(".brand").hover()
    expect(box).to_be_hidden()
    tokens.nth(2).click()
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(3)).to_be_focused()
    expect(box).to_be_visible()
    page.keyboard.press("End")
    expect(tokens.nth(7)).to_be_focused()
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()
    page.get_by_role("button", name="As text").click()
    expect(tokens).to_have_count(0)
    page.locator("#probabilities").uncheck()
    assert "logprobs" not in say(page, "And of Italy?")
    answer(page)


def test_json_mode_holds_the_answer_to_a_schema(page: Page) -> None:
    setting(page, "temperature", "0")
    page.locator("summary", has_text="Answer format").click()
    page.locator("#set-format").select_option("json_schema")
    setting(page, "schema", "{nothing")
    page.locator("#composer-text").fill("Where do we go?")
    page.locator("#composer-text").press("Enter")
    expect(page.locator("#notice")).to_contain_text("not JSON")
    page.get_by_role("button", name="New").click()
    setting(page, "schema", json.dumps(SCHEMA))
    body = say(page, "Where do we go?")
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    found = json.loads(answer(page))
    assert set(found) == {"city", "days"}
    assert found["city"] in ("Paris", "Rome")


def test_tools_mode_shows_calls_and_takes_their_results(page: Page) -> None:
    setting(page, "temperature", "0")
    page.locator("summary", has_text="Tools").click()
    setting(page, "tools", json.dumps(TOOLS))
    setting(page, "choice", "get_weather")
    body = say(page, "How is the weather in Rome?")
    assert body["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}
    card = page.locator(".call")
    expect(card).to_have_count(1)
    expect(card.locator("code")).to_have_text("get_weather")
    expect(card.get_by_label("Result of the call")).to_be_visible()
    assert set(json.loads(card.locator("pre").inner_text())) == {"city", "days"}
    setting(page, "choice", "none")
    setting(page, "max_tokens", "12")
    card.get_by_label("Result of the call").fill("Rain.")
    with page.expect_request("**/v1/chat/completions") as sent:
        card.get_by_role("button", name="Hand in").click()
    assert [message["role"] for message in sent.value.post_data_json["messages"]] == [
        "user",
        "assistant",
        "tool",
    ]
    expect(page.locator(".turn.tool pre")).to_have_text("Rain.")
    assert answer(page)
    expect(card.get_by_role("button", name="Hand in")).to_be_hidden()


def test_the_engine_is_shown_live(page: Page) -> None:
    expect(page.locator("#engine-state")).to_have_text("live")
    running, value = page.locator(".big .value").first, page.locator("#engine .fact-row .value").first
    expect(running).to_have_text("0")
    setting(page, "max_tokens", "4000")
    say(page, "Tell me a story that never ends.")
    expect(running).to_have_text("1")
    expect(value).to_have_text(re.compile(r"^[1-9][\d,]* of [\d,]+$"))
    expect(page.locator("#engine .spark-row .value").first).to_have_text(re.compile(r"[1-9]"))
    expect(page.locator(".leaves .used")).not_to_have_count(0)
    expect(page.locator(".latency .value").first).to_have_text(re.compile(r"\d (ms|s)"))
    page.keyboard.press("Escape")
    expect(running).to_have_text("0")
    page.locator("#toggle-engine").click()
    expect(page.locator("#engine")).to_be_hidden()


def test_dark_and_light(open_page: Callable[..., Page]) -> None:
    def paper(page: Page) -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3])

    assert paper(open_page(color_scheme="light")) > 3 * 200
    page = open_page(color_scheme="dark")
    assert paper(page) < 3 * 60
    page.get_by_role("button", name="Light theme").click()
    assert paper(page) > 3 * 200
    page.reload()
    assert paper(page) > 3 * 200
    expect(page.get_by_role("button", name="Dark theme")).to_be_visible()


def test_everything_is_at_hand_by_keyboard(page: Page) -> None:
    setting(page, "max_tokens", "4")
    field, notes = page.locator("#composer-text"), page.locator("#help-dialog")
    page.locator("#tab-chat").focus()
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("One")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Two")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.user .said")).to_have_text("One\nTwo", use_inner_text=True)
    answer(page)
    field.focus()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_label("Edit the message")).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("Three")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.user .said")).to_have_text("Three")
    answer(page)
    page.keyboard.press("Control+/")
    expect(notes).to_be_visible()
    page.keyboard.press("Escape")
    expect(notes).to_be_hidden()
    page.locator("#tab-chat").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-text")).to_be_focused()
    expect(page.locator("#text")).to_be_visible()
    page.reload()
    # What was said is there again after a reload.
    expect(page.locator(".turn.user .said")).to_have_text("Three")


def test_text_and_its_tokens(page: Page) -> None:
    setting(page, "temperature", "0")
    setting(page, "max_tokens", "6")
    page.locator("#tab-text").click()
    page.locator("#text-input").fill("The capital of France is")
    expect(page.locator("#tokens .piece")).to_have_count(5)
    page.locator("#text-input").press("Control+Enter")
    expect(page.locator("#text-input")).to_have_value(re.compile("Paris"))
    expect(page.locator("#undo-continue")).to_be_visible()
    page.locator("#undo-continue").click()
    expect(page.locator("#text-input")).to_have_value("The capital of France is")


def test_a_key_is_asked_for_and_kept_in_the_tab(open_page: Callable[..., Page]) -> None:
    page = open_page(key="")
    expect(page.locator("#key-dialog")).to_be_visible()
    page.locator("#key-field").fill("wrong")
    page.locator("#key-field").press("Enter")
    expect(page.locator("#key-dialog")).to_be_visible()
    page.locator("#key-field").fill("key")
    page.locator("#key-field").press("Enter")
    expect(page.locator("#model-name")).to_have_text("SmolLM2-135M-Instruct")
    page.reload()
    expect(page.locator("#model-name")).to_have_text("SmolLM2-135M-Instruct")


def test_a_narrow_window_has_panels_over_the_text(open_page: Callable[..., Page]) -> None:
    page = open_page(viewport={"width": 390, "height": 780})
    expect(page.locator("#settings")).to_be_hidden()
    page.locator("#toggle-settings").click()
    expect(page.locator("#set-temperature")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#settings")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
