"""Answers as models write them, and what they say: layouts as the models' chat templates state them."""

# An answer is one line, so that what is compared can be read across.
# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CITY = '{"city": "Tokyo \\"東京\\" {]", "days": [1, {"a": null}]}'
TOOLS: dict[str, Any] = {
    "f": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "n": {"type": "integer"},
            "x": {"type": ["number", "null"]},
            "ok": {"type": "boolean"},
            "list": {"type": "array"},
        },
    },
    "g": {"type": "object", "properties": {}},
}
TYPED: dict[str, Any] = {"city": "a <b>\n c", "n": 42, "x": None, "ok": True, "list": [1, "z"]}
Call = tuple[str, Any]


@dataclass(frozen=True)
class Case:
    """One answer: `calls` with arguments as values, or as a string where they are cut short."""

    format: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    in_reasoning: bool = False


FG: list[Call] = [("f", {"city": 'Tokyo "東京" {]', "days": [1, {"a": None}]}), ("g", {})]
PY = [
    ("f", {"city": 'Martha\'s "V"', "n": -3, "x": 1.5, "ok": True, "list": [None, {"k": ["v"]}]}),
    ("g", {}),
]
PY_F = """f(city='Martha\\'s "V"', n=-3, x=1.5, ok=True, list=[None, {'k': ("v",)}])"""


def _tagged(open_: str, call: str, param: str, end: str, call_end: str, close: str, line: str) -> str:
    values = [("city", "a <b>\n c"), ("n", "42"), ("x", "null"), ("ok", "true"), ("list", '[1, "z"]')]
    params = line.join(param % key + line + value + line + end for key, value in values)
    first = call % "f" + line + params + line + call_end
    return (
        open_
        + line
        + first
        + line
        + (close + open_ + line if line else "")
        + call % "g"
        + call_end
        + line
        + close
    )


CASES = [
    Case("hermes", "How are you?\n\n<b>fine</b> </tool", "How are you?\n\n<b>fine</b> </tool"),
    Case("hermes", f'Look:\n<tool_call>\n{{"name": "f", "arguments": {CITY}}}\n</tool_call>\n<tool_call>{{"name":"g"}}</tool_call>\n', "Look:", "", FG),
    Case("hermes", f'<tool_call>{{"arguments": {CITY}, "name": "f"}}</tool_call>\nDone. ', "Done. ", "", FG[:1]),
    Case("hermes", '<tool_call>{"name": "f", "arguments": "{\\"n\\": 1}"}</tool_call>', "", "", [("f", {"n": 1})]),
    Case("hermes", '<tool_call>{"nome": "f"}</tool_call> x', '<tool_call>{"nome": "f"} x'),
    Case("hermes", '<tool_call> no <tool_call>{"name": "g"}</tool_call>', "<tool_call> no", "", FG[1:]),
    Case("hermes", '<tool_call>{"name": "f", "arguments": {"a": "b', "", "", [("f", '{"a": "b')]),
    Case("hermes", '<tool_call>{"name": "f', '<tool_call>{"name": "f'),
    Case("hermes", '<tool_call>{"name": "f", "arguments": {"a": [1}}}</tool_call>.', "}}}.", "", [("f", '{"a": [1')]),
    Case("ernie45", f'hm\n</think>\n\n<tool_call>\n{{"name": "f", "arguments": {CITY}}}\n</tool_call>\n', "", "hm", FG[:1], True),
    Case("ernie45", "hm\n</think>\n\n<response>\nHi.\n</response>\n", "Hi.", "hm", [], True),
    Case("llama3_json", f'{{"name": "f", "parameters": {CITY}}}; {{"name": "g", "parameters": {{}}}}', "", "", FG),
    Case("llama3_json", f'<|python_tag|>{{"type": "function", "name": "f", "parameters": {CITY}}}', "", "", FG[:1]),
    Case("llama3_json", '{"name": "unknown", "parameters": {}}', '{"name": "unknown", "parameters": {}}'),
    Case("llama3_json", ' {"answer": 42}', ' {"answer": 42}'),
    Case("pythonic", f"[{PY_F}, g()]", "", "", PY),
    Case("pythonic", "[1] is a citation, f(x) a call", "[1] is a citation, f(x) a call"),
    Case("llama4_pythonic", f"<|python_start|>[{PY_F}, g()]<|python_end|>", "", "", PY),
    Case("olmo3", f"<think>hm</think><function_calls>{PY_F}\ng()</function_calls>", "", "hm", PY),
    Case("mistral", f'[TOOL_CALLS][{{"name": "f", "arguments": {CITY}}}, {{"name": "g", "arguments": {{}}}}]', "", "", FG),
    Case("mistral", f"[THINK]hm[/THINK]Ok[TOOL_CALLS]f[CALL_ID]abc[ARGS]{CITY}[TOOL_CALLS]g{{}}", "Ok", "hm", FG),
    Case("qwen3_coder", _tagged("<tool_call>", "<function=%s>", "<parameter=%s>", "</parameter>", "</function>", "</tool_call>", "\n"), "", "", [("f", TYPED), ("g", {})]),
    Case("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=city>\nOsl", "", "", [("f", '{"city": "Osl')]),
    Case("seed_oss", "<seed:think>hm</seed:think>" + _tagged("<seed:tool_call>", "<function=%s>", "<parameter=%s>", "</parameter>", "</function>", "</seed:tool_call>", "\n"), "", "hm", [("f", TYPED), ("g", {})]),
    Case("minimax_m2", "hm\n</think>\n\nOk.\n" + _tagged("<minimax:tool_call>", '<invoke name="%s">', '<parameter name="%s">', "</parameter>", "</invoke>", "</minimax:tool_call>", ""), "Ok.", "hm", [("f", TYPED), ("g", {})], True),
    Case("step3", "hm</think>" + _tagged("<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>", '<steptml:invoke name="%s">', '<steptml:parameter name="%s">', "</steptml:parameter>", "</steptml:invoke>", "<｜tool_call_end｜><｜tool_calls_end｜>", ""), "", "hm", [("f", TYPED), ("g", {})], True),
    Case("glm45", "<think>hm</think>\nOk\n<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>a <b>\n c</arg_value>\n<arg_key>n</arg_key>\n<arg_value>42</arg_value>\n<arg_key>x</arg_key>\n<arg_value>null</arg_value>\n<arg_key>ok</arg_key>\n<arg_value>true</arg_value>\n<arg_key>list</arg_key>\n<arg_value>[1, \"z\"]</arg_value>\n</tool_call>\n<tool_call>g</tool_call>", "Ok", "hm", [("f", TYPED), ("g", {})]),
    Case("deepseek_v3", f"hm</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{CITY}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{{}}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "", "hm", FG, True),
    Case("deepseek_v31", f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{CITY}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{{}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "", "", FG),
    Case("kimi_k2", f"<think>hm<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{CITY}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{{}}<|tool_call_end|><|tool_calls_section_end|>", "", "hm", FG),
    Case("granite", f'Here is my thought process: hm\nHere is my response: Ok <|tool_call|> [{{"arguments": {CITY}, "name": "f"}}, {{"name": "g", "arguments": {{}}}}]', "Ok", "hm", FG),
    Case("phi4_mini_json", f'functools[{{"name": "f", "arguments": {CITY}}}, {{"name": "g", "arguments": {{}}}}]', "", "", FG),
    Case("internlm", f'Ok<|action_start|><|plugin|>\n{{"name": "f", "parameters": {CITY}}}<|action_end|>\n', "Ok", "", FG[:1]),
    Case("jamba", f' <tool_calls>[\n    {{"name": "f", "arguments": {CITY}}},\n {{"name": "g", "arguments": {{}}}}\n]</tool_calls>', "", "", FG),
    Case("hunyuan_a13b", f'<think>\nhm\n</think>\n<answer>\nOk\n<tool_calls>[{{"name": "f", "arguments": {CITY}}}]</tool_calls>\n</answer>', "Ok", "hm", FG[:1]),
    Case("xlam", f'[{{"name": "f", "arguments": {CITY}}}, {{"name": "g", "arguments": {{}}}}]', "", "", FG),
    Case("cohere_command3", f'<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n{{"tool_call_id": "0", "tool_name": "f", "parameters": {CITY}}}\n]<|END_ACTION|>', "", "hm", FG[:1]),
    Case("cohere_command3", "<|START_RESPONSE|>Hi.<|END_RESPONSE|>", "Hi."),
    Case("functiongemma", 'Ok <start_function_call>call:f{city:<escape>a "b"<escape>,n:3,list:[1,{k:<escape>v<escape>}]}<end_function_call><start_function_call>call:g{}<end_function_call>', "Ok", "", [("f", {"city": 'a "b"', "n": 3, "list": [1, {"k": "v"}]}), ("g", {})]),
    Case("gemma4", '<|tool_call>call:f{city:<|"|>a<|"|>,ok:true}<tool_call|>', "", "", [("f", {"city": "a", "ok": True})]),
    Case("phi4_mini_json", f'<|tool_call|>[{{"name": "f", "arguments": {CITY}}}]<|/tool_call|>', "", "", FG[:1]),
    Case("openai", f"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>Look:<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{CITY}<|call|><|start|>assistant to=functions.g<|channel|>commentary json<|message|>{{}}", "Look:", "hm", FG),
    Case("openai", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis to=python<|message|>1+1<|call|><|start|>assistant<|channel|>final<|message|>Hi. <|return|>", "Hi.", "a\n1+1"),
    Case("openai", '{"plain": 1}', '{"plain": 1}'),
    Case("openai", "<|channel|>commentary to=functions.f<|message|>{\"n\": [1}<|call|><|start|>assistant<|channel|>final<|message|>x", "x", "", [("f", '{"n": [1')]),
    Case("qwen3", "<think>\nhm <x\n</think>\n\nHi. ", "Hi. ", "hm <x"),
    Case("qwen3", "hm", "", "hm", [], True),
]  # fmt: skip
