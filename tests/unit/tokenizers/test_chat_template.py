"""Chat templates: as transformers renders them, bounded, and clear about what is wrong."""

from __future__ import annotations

import enum
import time
from typing import Any

import pytest

from octavo.lib.errors import CheckpointError, InvalidRequestError
from octavo.tokenizers.chat import check_template, choose_template, render_chat
from octavo.tokenizers.chat_format import content_format, prepare_messages
from octavo.tokenizers.chat_sandbox import Limits

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
USER = [{"role": "user", "content": "hi"}]
TALK = [*USER, {"role": "assistant", "content": "Well, "}]


def render(template: str, messages: list[dict[str, Any]] | None = None, **kwargs: Any) -> str:
    return render_chat(template, messages or USER, **kwargs)


def reference(template: str, messages: list[dict[str, Any]], **kwargs: Any) -> str:
    from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

    rendered, _ = render_jinja_template(
        [_normalize_chat_messages(messages)], chat_template=template, **kwargs
    )
    return str(rendered[0])


def test_the_three_legal_settings_give_three_prompts() -> None:
    opened = render(CHATML, TALK)
    closed = render(CHATML, TALK, add_generation_prompt=False)
    continued = render(CHATML, TALK, continue_final_message=True)
    assert opened == reference(CHATML, TALK, add_generation_prompt=True)
    assert closed == reference(CHATML, TALK, add_generation_prompt=False)
    assert continued == reference(CHATML, TALK, continue_final_message=True)
    assert len({opened, closed, continued}) == 3
    assert continued.endswith("Well, ")
    with pytest.raises(InvalidRequestError, match="exclude each other") as caught:
        render(CHATML, TALK, add_generation_prompt=True, continue_final_message=True)
    assert caught.value.param == "continue_final_message"


@pytest.mark.parametrize(
    "content", ["Well, ", "Well", " a\n", [{"type": "text", "text": "x "}, {"type": "image"}]]
)
@pytest.mark.parametrize("shown", ["m.content", "m.content | trim"])
def test_continuing_equals_transformers(content: Any, shown: str) -> None:
    if isinstance(content, list):
        shown = "m.content[0].text if m.content is not string else m.content"
    template = "{% for m in messages %}[{{ " + shown + " }}]{% endfor %}"
    messages = [*USER, {"role": "assistant", "content": content}]
    expected = reference(template, messages, continue_final_message=True)
    assert render(template, messages, continue_final_message=True) == expected


@pytest.mark.parametrize(
    ("template", "messages", "message"),
    [
        (CHATML, [{"role": "assistant"}], "needs a last message with content"),
        (CHATML, [{"role": "assistant", "content": [{"type": "image"}]}], "needs a last message with text"),
        ("{# content #}nothing", TALK, "changes or leaves out the last message"),
    ],
)
def test_what_cannot_be_continued(template: str, messages: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        render(template, messages, continue_final_message=True)


def test_an_empty_list_of_tool_calls_counts_as_absent() -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% if m.tool_calls is defined %}!{% endif %}{% endfor %}"
    )
    talk = [*USER, {"role": "assistant", "content": "hi", "tool_calls": []}, *USER]
    assert render(template, talk) == "hihihi"
    assert render(template, [{"role": "user", "content": "x", "tool_calls": None}]) == "x"


def test_a_refusal_in_the_templates_own_words() -> None:
    template = "{{ raise_exception('Conversation roles must alternate') }}"
    with pytest.raises(InvalidRequestError) as caught:
        render(template)
    assert caught.value.message == "Conversation roles must alternate"
    assert (caught.value.status, caught.value.param) == (400, "messages")


@pytest.mark.parametrize(
    "template", ["{{ 1 + 'a' }}", "{{ messages[9].content }}", "{{ none.x.y }}", "{{ nope() }}"]
)
def test_a_template_that_fails_is_the_requests_fault(template: str) -> None:
    with pytest.raises(InvalidRequestError):
        render(template)


def test_a_template_that_is_not_valid() -> None:
    with pytest.raises(InvalidRequestError, match="not valid at line 2: Encountered unknown tag 'foo'"):
        render("\n{% foo %}")
    with pytest.raises(CheckpointError, match=r"chat\.jinja: The chat template is not valid at line 1"):
        check_template("{{", file="chat.jinja")
    check_template(CHATML)


def test_no_messages() -> None:
    with pytest.raises(InvalidRequestError, match="at least one message") as caught:
        render_chat(CHATML, [])
    assert caught.value.param == "messages"
    with pytest.raises(InvalidRequestError, match="must be an object"):
        render_chat(CHATML, ["hi"])  # type: ignore[list-item]


def test_odd_values() -> None:
    class Kind(str, enum.Enum):  # noqa: UP042  (a StrEnum writes itself plainly anyway)
        A = "a"

    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidRequestError, match="nested too deeply"):
        render(CHATML, [{"role": "user", "content": deep}])
    template = "{{ messages[0].content }} {{ x }} {{ y }}"
    assert (
        render(template, [{"role": "user", "content": Kind.A}], x=object(), y=(1, 2.5))
        == "a <object> (1, 2.5)"
    )
    with pytest.raises(InvalidRequestError, match="needs a last message with text"):
        render(CHATML, [{"role": "user", "content": 5}], continue_final_message=True)


def test_special_tokens_and_variables() -> None:
    template = "{{ bos_token }}{{ enable_thinking }}{{ eos_token }}"
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    assert render(template, special_tokens=tokens, enable_thinking=False, eos_token="X") == "<s>FalseX"


def test_json_is_not_escaped_for_html() -> None:
    template = "{{ tools | tojson(indent=2) }}{{ messages[0] | tojson }}"
    tools = [{"name": "<&>é'\""}]
    assert render(template, tools=tools) == reference(template, USER, tools=tools)


def test_generation_marks_and_loop_controls() -> None:
    template = (
        "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}{{ m.content }}{% endgeneration %}"
        "{% if loop.last %}{% break %}{% endif %}{% endfor %}{{ x }}{{ loop is defined }}{{ strftime_now('%Y') > '2000' }}"
    )
    assert render(template, TALK) == reference(template, TALK)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__ }}",
        "{{ messages[0].update({}) }}",
        "{{ namespace(_x=1) }}",
        "{% set n = namespace() %}{% set n._x = 1 %}",
        "{{ dict.__base__ }}",
    ],
)
def test_the_sandbox(template: str) -> None:
    try:
        shown = render(template)
    except InvalidRequestError:
        return
    assert shown == ""  # an unsafe attribute is undefined, which shows as nothing


SMALL = Limits(seconds=2.0, steps=50_000, characters=100_000, template_characters=1000)
NESTED = "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}"
BOMBS = {
    "loops": "{% set r = range(9999) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
    "a loop that shows": "{% for a in range(99999) %}{{ 'x' * 9 }}{% endfor %}",
    "recursion": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "recursive loop": "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
    "a product": "{{ 'x' * 10000000000 }}",
    "a list product": "{% set x = [1] * 10000000000 %}",
    "a power": "{{ 10 ** 10000000000 }}",
    "doubling": "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "doubling by ~": "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "doubling by %": "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = '%s%s' % (n.s, n.s) %}{% endfor %}",
    "doubling by format": "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = '{0}{0}'.format(n.s) %}{% endfor %}",
    "doubling by join": "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = [n.s, n.s]|join %}{% endfor %}",
    "doubling by replace": "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s.replace('x', 'xx') %}{% endfor %}",
    "the replace filter": "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s|replace('x', 'xx') %}{% endfor %}",
    "doubling a list": "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "a width": "{{ 'x'.ljust(10000000000) }}",
    "a width in a filter": "{{ 'x'|center(10000000000) }}",
    "a width in a pattern": "{{ '%10000000000d' % 1 }}",
    "a width in the format filter": "{{ '%10000000000d'|format(1) }}",
    "a width in format": "{{ '{:10000000000}'.format(1) }}",
    "a width by argument": "{{ '%*d' % (10000000000, 1) }}",
    "an indent": "{{ messages|tojson(indent=10000000000) }}",
    "a separator": "{{ ('x' * 9999).join(['a'] * 9999) }}",
    "expanded tabs": "{{ ('\\t' * 9999).expandtabs(99999) }}",
    "a nested structure shown": NESTED + "{{ n.s }}",
    "a nested structure as JSON": NESTED + "{{ n.s|tojson }}",
    "a nested structure as text": NESTED + "{{ n.s|string }}",
    "a nested structure joined": NESTED + "{{ n.s ~ 'x' }}",
    "lorem": "{{ lipsum(n=10000000000) }}",
    "many small": "{{ 'x' * 60000 }}{{ 'x' * 60000 }}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_time_and_size_are_bounded(name: str) -> None:
    start = time.monotonic()
    with pytest.raises(InvalidRequestError):
        render(BOMBS[name], limits=SMALL)
    assert time.monotonic() - start < 5


def test_a_long_template_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="has 1001 characters; at most 1000 are allowed"):
        render("x" * 1001, limits=SMALL)


def test_time_is_bounded_when_steps_are_not() -> None:
    limits = Limits(seconds=0.2, steps=1 << 60)
    start = time.monotonic()
    with pytest.raises(InvalidRequestError, match=r"takes longer than 0\.2 seconds"):
        render(BOMBS["loops"], limits=limits)
    assert time.monotonic() - start < 2


def test_a_long_conversation_is_no_bomb() -> None:
    talk = [{"role": "user", "content": "x" * 10_000}] * 200
    assert len(render(CHATML, talk)) > 2_000_000


def test_choosing_a_template() -> None:
    named = {"default": "D", "tool_use": "T", "rag": "R"}
    assert choose_template(named) == "D"
    assert choose_template(named, tools=True) == "T"
    assert choose_template({"default": "D"}, tools=True) == "D"
    assert choose_template(named, name="rag") == "R"
    with pytest.raises(InvalidRequestError, match="no chat template 'x'; it has: default"):
        choose_template(named, name="x")
    with pytest.raises(InvalidRequestError, match="no default chat template"):
        choose_template({})


LOOPING = "{% for m in messages %}{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endfor %}"
ASKING = """{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}
{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"""
ASSIGNING = """{% for m in messages %}{% set c = m.get('content') %}{% if c is string %}{{ c }}{% else %}
{% for p in c | selectattr('type', 'equalto', 'text') %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"""
SPLITTING = (
    "{% for m in messages %}{% for line in m.content.split('\\n') %}{{ line }}{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHATML, "string"),
        (LOOPING, "parts_only"),
        (ASKING, "parts"),
        (ASSIGNING, "parts"),
        (SPLITTING, "string"),
    ],
)
def test_what_a_template_takes_as_content(template: str, expected: str) -> None:
    assert content_format(template) == expected


def test_messages_in_the_form_that_a_template_takes() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = {"role": "user", "content": parts}
    assert prepare_messages([message], CHATML) == [{"role": "user", "content": "a\nb"}]
    assert prepare_messages([message], LOOPING) == [message]
    assert prepare_messages(USER, LOOPING) == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


def test_arguments_of_earlier_calls_become_objects() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    prepared = prepare_messages([{"role": "assistant", "content": None, "tool_calls": [call]}], CHATML)
    assert prepared[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": 1}}
    call["function"] = {"name": "f", "arguments": "{"}
    with pytest.raises(
        InvalidRequestError, match=r"messages\[0\]\.tool_calls\[0\]\.function\.arguments is not JSON"
    ):
        prepare_messages([{"role": "assistant", "tool_calls": [call]}], CHATML)


def test_parts_that_are_not_text_are_refused() -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]\.content\[0\] is of type 'image_url'"):
        prepare_messages(messages, CHATML)
