"""Calls of tools are found in an answer's text, however it is cut, and no text is ever lost."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backends.llm.tools.formats import FORMATS, HERMES, JSON, LLAMA3_JSON, MISTRAL, ToolFormat
from backends.llm.tools.json_scanner import DONE, MAX_DEPTH, JsonScanner
from backends.llm.tools.scanner import (
    ContentText,
    Event,
    ToolCallAborted,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolScanner,
)

TOOLS: dict[str, dict[str, Any]] = {
    "weather": {"properties": {"days": {"type": "array"}, "place": {"type": "string"}}},
    "time": {},
    "a-b_9": {},
}
Calls = list[tuple[str, Any]]
TAGS = FORMATS["qwen3_coder"]

PLACE: dict[str, Any] = {"place": 'Köln "Süd" \\ {[</tool_call>', "days": [1, -2.5e3, None, True]}


def scanned(format: ToolFormat, pieces: Sequence[str], most: int | None = None) -> list[Event]:
    """The events of a text in pieces, what was cut put together."""
    scanner = ToolScanner(format, TOOLS, most)
    events: list[Event] = []
    for event in [*(one for piece in pieces for one in scanner.add(piece)), *scanner.end()]:
        last = events[-1] if events else None
        if isinstance(event, ContentText) and isinstance(last, ContentText):
            events[-1] = ContentText(last.text + event.text)
        elif isinstance(event, ToolCallArguments) and isinstance(last, ToolCallArguments):
            assert event.number == last.number
            events[-1] = ToolCallArguments(last.number, last.text + event.text)
        else:
            events.append(event)
    return events


def said_and_called(format: ToolFormat, text: str, most: int | None = None) -> tuple[str, Calls]:
    events = scanned(format, list(text), most)
    whole = {event.number for event in events if isinstance(event, ToolCallEnd)}
    names = {event.number: event.name for event in events if isinstance(event, ToolCallStart)}
    calls = [
        (names[event.number], json.loads(event.text))
        for event in events
        if isinstance(event, ToolCallArguments) and event.number in whole
    ]
    return "".join(event.text for event in events if isinstance(event, ContentText)), calls


def call(name: str = "weather", key: str = "arguments", **arguments: Any) -> str:
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False)


WRITTEN: dict[str, tuple[ToolFormat, str, str, Calls]] = {
    "hermes": (
        HERMES,
        f"Let me see.\n\n<tool_call>\n{call(**PLACE)}\n</tool_call>\n",
        "Let me see.",
        [("weather", PLACE)],
    ),
    "hermes, two": (
        HERMES,
        f"<tool_call>\n{call('time')}\n</tool_call>\n<tool_call>{call(**PLACE)}</tool_call>",
        "",
        [("time", {}), ("weather", PLACE)],
    ),
    "hermes with text behind": (
        HERMES,
        f"<tool_call>{call('time')}</tool_call> and on",
        " and on",
        [("time", {})],
    ),
    "hermes without an end": (HERMES, f"<tool_call>{call()}", "", [("weather", {})]),
    "hermes cut in its end": (HERMES, f"<tool_call>{call()}\n</tool_", "", [("weather", {})]),
    "hermes that forgets an end": (
        HERMES,
        f"<tool_call>{call('time')}\n<tool_call>{call()}",
        "",
        [("time", {}), ("weather", {})],
    ),
    "hermes with a list": (
        HERMES,
        f"<tool_call>[{call('time')}, {call()}]</tool_call>",
        "",
        [("time", {}), ("weather", {})],
    ),
    "arguments before the name": (
        HERMES,
        '<tool_call>{"id": [{"name": 1}], "arguments": {"a": 1}, "name": "time"}</tool_call>',
        "",
        [("time", {"a": 1})],
    ),
    "no arguments": (HERMES, '<tool_call>{"name": "time"}</tool_call>', "", [("time", {})]),
    "llama 3": (
        LLAMA3_JSON,
        call(key="parameters", **PLACE),
        "",
        [("weather", PLACE)],
    ),
    "llama 3, marked and two": (
        LLAMA3_JSON,
        f"<|python_tag|>{call(key='parameters')}; {call('time', 'parameters')}",
        "",
        [("weather", {}), ("time", {})],
    ),
    "llama 3, typed": (
        LLAMA3_JSON,
        '\n {"type": "function", "name": "time", "parameters": {"a": "b"}}\n',
        "",
        [("time", {"a": "b"})],
    ),
    "mistral": (
        MISTRAL,
        f"[TOOL_CALLS][{call(**PLACE)}, {call('time')}]",
        "",
        [("weather", PLACE), ("time", {})],
    ),
    "mistral with text": (MISTRAL, f"Well. [TOOL_CALLS] [{call()}]", "Well.", [("weather", {})]),
    "mistral, named": (
        FORMATS["mistral_named"],
        '[TOOL_CALLS]weather[ARGS]{"a": 1}[TOOL_CALLS]a-b_9{"b": {}}',
        "",
        [("weather", {"a": 1}), ("a-b_9", {"b": {}})],
    ),
    "tags": (
        TAGS,
        "So:\n<tool_call>\n<function=weather>\n<parameter=place>\n\n<b>Köln\n</parameter>\n"
        "<parameter=days>\n[1, true]\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call><function=time></function></tool_call>",
        "So:",
        [("weather", {"place": "\n<b>Köln", "days": [1, True]}), ("time", {})],
    ),
    "tags that hold no JSON": (
        TAGS,
        "<tool_call><function=weather><parameter=days>NaN</parameter><parameter=a>1</parameter>"
        "</function>",
        "",
        [("weather", {"days": "NaN", "a": "1"})],
    ),
    "tags in Python's words": (
        TAGS,
        "<tool_call><function=weather><parameter=days>None</parameter></function></tool_call>",
        "",
        [("weather", {"days": None})],
    ),
    "JSON instead of tags": (
        TAGS,
        f"<tool_call>{call(a=1)}</tool_call>",
        "",
        [("weather", {"a": 1})],
    ),
    "mistral, named with ids": (
        MISTRAL,
        '[TOOL_CALLS]weather[CALL_ID]a1b2c3d4e[ARGS]{"a": 1} [TOOL_CALLS]time [CALL_ID] x {}',
        "",
        [("weather", {"a": 1}), ("time", {})],
    ),
    "granite": (
        FORMATS["granite"],
        f"<|tool_call|>[{call()}, {call('time')}]\n<tool_call>[{call()}]",
        "",
        [("weather", {}), ("time", {}), ("weather", {})],
    ),
    "phi 4 mini": (
        FORMATS["granite"],
        f"<|tool_call|>[{call()}]<|/tool_call|>",
        "",
        [("weather", {})],
    ),
    "plain JSON": (JSON, call(**PLACE), "", [("weather", PLACE)]),
    "plain list": (
        JSON,
        f"[{call('time')},\n{call(**PLACE)}]",
        "",
        [("time", {}), ("weather", PLACE)],
    ),
}
BROKEN: dict[str, tuple[ToolFormat, str]] = {
    "text": (HERMES, "  Just <b>text</b> with a < and <tool_ca and more.\n\n"),
    "nothing": (HERMES, ""),
    "space": (HERMES, " \n "),
    "no JSON": (HERMES, "<tool_call>weather in Köln</tool_call>"),
    "unknown tool": (HERMES, f"Hm: <tool_call>\n{call('rm')}\n</tool_call> so."),
    "name of another kind": (HERMES, '<tool_call>{"name": 3, "arguments": {}}</tool_call>'),
    "two names": (HERMES, '<tool_call>{"name": "time", "name": "time"}</tool_call>'),
    "arguments twice": (HERMES, '<tool_call>{"name": "time", "arguments": {}, "arguments": {}}'),
    "arguments as text": (HERMES, '<tool_call>{"name": "time", "arguments": "{}"}</tool_call>'),
    "broken arguments": (
        HERMES,
        '<tool_call>{"name": "time", "arguments": {"a": tru}}</tool_call>',
    ),
    "comma at the end": (HERMES, '<tool_call>{"name": "time", "arguments": {"a": 1,}}</tool_call>'),
    "cut": (HERMES, 'A <tool_call>\n{"name": "time", "arguments": {"a": "b'),
    "cut at its marker": (HERMES, "A <tool_call>"),
    "cut in its marker": (HERMES, "A <tool_c"),
    "no name at all": (HERMES, '<tool_call>{"arguments": {"a": 1}}</tool_call>'),
    "marker only": (MISTRAL, "[TOOL_CALLS]"),
    "empty list": (MISTRAL, "[TOOL_CALLS][]"),
    "long name": (MISTRAL, "[TOOL_CALLS]" + "weather" * 30),
    "other markers": (MISTRAL, "[TOOL_CALLS]weather[CALL_ID]a[CALL_ID]b{}"),
    "half a marker": (MISTRAL, "[TOOL_CALLS]weather[AR{}"),
    "text behind a name": (MISTRAL, "[TOOL_CALLS]weather is {}"),
    "unknown name": (MISTRAL, "[TOOL_CALLS]rm[ARGS]{}"),
    "an answer in JSON": (JSON, '{"answer": 42, "name": "time"}'),
    "no arguments without a marker": (JSON, '{"name": "time"}'),
    "a list of numbers": (JSON, "[1, 2, 3]"),
    "JSON behind text": (JSON, f"So: {call()}"),
    "an unknown tool in tags": (TAGS, "<tool_call><function=rm></function></tool_call>"),
    "other tags": (TAGS, "<tool_call><b>text</b></tool_call>"),
    "tags that say a thing twice": (
        TAGS,
        "<tool_call><function=time><parameter=a>1</parameter><parameter=a>2</parameter></function>",
    ),
    "text between tags": (TAGS, "<tool_call><function=time> and </function></tool_call>"),
    "tags cut short": (TAGS, "<tool_call><function=weather><parameter=place>Köl"),
    "an endless tag": (TAGS, "<tool_call><function=" + "time" * 100),
    "nested too deep": (
        HERMES,
        '<tool_call>{"name": "time", "arguments": {"a": ' + "[" * 200 + "]" * 200 + "}}",
    ),
}


@pytest.mark.parametrize(("format", "text", "said", "calls"), WRITTEN.values(), ids=WRITTEN)
def test_calls_are_found(format: ToolFormat, text: str, said: str, calls: Calls) -> None:
    assert said_and_called(format, text) == (said, calls)


@pytest.mark.parametrize(("format", "text"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_call_is_text_to_the_letter(format: ToolFormat, text: str) -> None:
    assert said_and_called(format, text) == (text, [])


def test_a_broken_call_is_text_and_the_next_one_a_call() -> None:
    text = f'<tool_call>{{"name": "time", "arguments": {{"a" <tool_call>{call()}</tool_call>'
    said, calls = said_and_called(HERMES, text)
    assert said == '<tool_call>{"name": "time", "arguments": {"a" '
    assert calls == [("weather", {})]
    events = scanned(HERMES, [text])
    assert [type(one) for one in events[:4]] == [
        ToolCallStart,
        ToolCallArguments,
        ToolCallAborted,
        ContentText,
    ]


def test_a_list_that_breaks_off_keeps_its_whole_calls() -> None:
    assert said_and_called(MISTRAL, f'[TOOL_CALLS][{call()}, {{"name": "ti') == (
        ', {"name": "ti',
        [("weather", {})],
    )


def test_no_more_calls_are_looked_for_than_are_wanted() -> None:
    two = f"<tool_call>{call('time')}</tool_call><tool_call>{call()}</tool_call>\n"
    assert said_and_called(HERMES, two, 1) == (
        f"<tool_call>{call()}</tool_call>",
        [("time", {})],
    )
    for format in (JSON, MISTRAL):
        listed = f"{''.join(format.begins)}[{call('time')}, {call()}]"
        assert said_and_called(format, listed, 1) == (f", {call()}]", [("time", {})])


def test_arguments_come_as_soon_as_they_are_written() -> None:
    scanner = ToolScanner(HERMES, TOOLS)
    assert scanner.add('<tool_call>{"name": "time", "arguments": ') == []
    assert scanner.add('{"zone"') == [ToolCallStart(0, "time"), ToolCallArguments(0, '{"zone"')]
    assert scanner.add(': "ut') == [ToolCallArguments(0, ': "ut')]
    assert scanner.add('c"}}') == [ToolCallArguments(0, 'c"}'), ToolCallEnd(0)]


def test_text_waits_only_while_it_may_be_a_marker() -> None:
    scanner = ToolScanner(HERMES, TOOLS)
    assert scanner.add("so <tool") == [ContentText("so")]
    assert scanner.add("s>") == [ContentText(" <tools>")]
    plain = ToolScanner(JSON, TOOLS)
    assert plain.add('{"answer"') == [ContentText('{"answer"')]


PIECES = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", "<tool_", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]",
        "<|tool_call|>", "<|python_tag|>", "[",
        "]", "{", "}", ",", ";", " ", "\n", '"', "weather", "text ", "<", '{"name": "time"',
        '{"name": "time", "arguments": {', '"arguments": {"a": "b"}', '"parameters": {}',
        call(), call("time", "parameters", a=[1]), call("rm"), "\\", "é", "tru", "1.5",
        "<function=weather>", "<parameter=days>", "<parameter=a>", "</parameter>", "</function>",
    ]
)  # fmt: skip


@settings(deadline=None, max_examples=500)
@given(
    st.sampled_from([*FORMATS.values()]),
    st.lists(PIECES, max_size=14).map("".join),
    st.lists(st.integers(0, 200), max_size=12),
    st.sampled_from([None, 1]),
)
def test_any_cutting_gives_what_the_whole_gives(
    format: ToolFormat, text: str, cuts: list[int], most: int | None
) -> None:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[begin:end] for begin, end in pairwise(places)]
    whole = scanned(format, [text], most)
    assert scanned(format, pieces, most) == whole
    assert scanned(format, list(text), most) == whole


@settings(deadline=None, max_examples=500)
@given(st.sampled_from([*FORMATS.values()]), st.lists(PIECES, max_size=14).map("".join))
@example(FORMATS["llama3_json"], '[[""')
def test_nothing_is_lost_and_every_call_can_be_made(format: ToolFormat, text: str) -> None:
    events = scanned(format, [text])
    whole = [event.number for event in events if isinstance(event, ToolCallEnd)]
    begun = [event.number for event in events if isinstance(event, ToolCallStart)]
    dropped = [event.number for event in events if isinstance(event, ToolCallAborted)]
    assert begun == sorted({*whole, *dropped})
    assert begun == [*range(len(begun))]
    for event in events:
        if isinstance(event, ToolCallArguments) and event.number in whole:
            assert isinstance(json.loads(event.text), dict)
    said = "".join(event.text for event in events if isinstance(event, ContentText))
    if not whole:
        assert said == text
    letters = iter(text)
    assert all(letter in letters for letter in said)  # what is said stands there in this order


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), ANY_JSON, max_size=4), st.booleans())
def test_json_is_followed_to_its_end_and_no_further(value: Any, ascii: bool) -> None:
    steps, text = JsonScanner(), json.dumps(value, ensure_ascii=ascii, indent=1)
    assert all(map(steps.take, text))
    assert steps.place == DONE
    assert steps.take(" ")
    assert not steps.take("}")


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet='{}[],:"\\ua0b-+.e1tru \n', max_size=14))
def test_what_is_followed_to_its_end_is_json(text: str) -> None:
    steps = JsonScanner()
    for at, char in enumerate("[" + text):
        if not steps.take(char):
            return
        if steps.place == DONE:
            json.loads(("[" + text)[: at + 1])
            return


def test_json_that_nests_too_deep_is_left() -> None:
    steps = JsonScanner()
    assert all(map(steps.take, "[" * MAX_DEPTH))
    assert not steps.take("[")
