"""Every backend: what it accepts, what it refuses, masks that agree with what it accepts, and taking tokens back."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from tests.engine.structured_vocabulary import EOS, SIZE, tokenizer, vocabulary

from octavo.config import StructuredOutputsConfig
from octavo.structured_output.backend import Backend, GrammarError, Matcher
from octavo.structured_output.compiler import GrammarCompiler
from octavo.structured_output.libraries import is_installed
from octavo.structured_output.select import ChosenBackend
from octavo.structured_output.trial import GrammarTrial
from octavo.types.structured_outputs import StructuredOutputsParams as Params

OBJECT = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
          "required": ["name", "n"], "additionalProperties": False}  # fmt: skip
ALL = ["auto", "guidance", "outlines", "xgrammar"]


@pytest.fixture(scope="module", params=ALL)
def backend(request: pytest.FixtureRequest) -> Backend:
    name = request.param
    if name == "xgrammar":
        pytest.skip("importing it loads transformers and a compiler of its own: see test_xgrammar_too")
    if name != "auto" and not is_installed(name):
        pytest.skip(f"{name} is not installed")
    return ChosenBackend(StructuredOutputsConfig(backend=name), vocabulary())


def ids(text: str) -> list[int]:
    return tokenizer().encode(text, add_special_tokens=False, parse_special=False)


def allowed(matcher: Matcher) -> set[int]:
    bits = np.zeros((SIZE + 31) // 32, np.int32)
    matcher.fill_bitmask(bits)
    return set(np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist())


def admits(backend: Backend, params: Params, text: str) -> bool:
    matcher = backend.compile(params)()
    return matcher.accept(ids(text)) and (EOS in allowed(matcher) or matcher.is_terminated())


@pytest.mark.parametrize(
    ("params", "good", "bad"),
    [
        (Params(regex="[0-9]{2,3}x?"), "12x", "1x"),
        (Params(choice=["name", "na\u00e4", 'a"b']), 'a"b', "n"),
        (Params(json=OBJECT), '{"name": "x", "n": 12}', '{"name": "x"}'),
    ],
)
def test_kinds_that_all_have(backend: Backend, params: Params, good: str, bad: str) -> None:
    check(backend, params, good, bad)


def check(backend: Backend, params: Params, good: str, bad: str) -> None:
    assert admits(backend, params, good)
    assert not admits(backend, params, bad)
    new = backend.compile(params)
    tokens = ids(good)
    for size, token in enumerate(tokens):  # a mask allows what is accepted, and tokens can be taken back
        matcher = new()
        assert matcher.accept(tokens[:size])
        assert token in allowed(matcher)
        if size:
            matcher.rollback(1)
            fresh = new()
            assert fresh.accept(tokens[: size - 1])
            assert allowed(matcher) == allowed(fresh)


def test_masks_allow_only_what_is_accepted() -> None:
    new = ChosenBackend(StructuredOutputsConfig(backend="guidance"), vocabulary()).compile(
        Params(json=OBJECT)
    )
    draw = random.Random(1)
    for _ in range(5):
        path: list[int] = []
        for _ in range(12):
            matcher = new()
            assert matcher.accept(path)
            may = allowed(matcher) - {EOS}
            if not may:
                break
            for token in draw.sample(range(SIZE), 40):
                again = new()
                assert again.accept(path)
                assert again.accept([token]) or token not in may
            path.append(draw.choice(sorted(may)))


def test_forced_tokens_are_the_only_ones_allowed() -> None:
    new = ChosenBackend(StructuredOutputsConfig(), vocabulary()).compile(
        Params(json=OBJECT, disable_any_whitespace=True)
    )
    matcher = new()
    forced = matcher.forced_tokens()
    for token in forced:
        assert allowed(matcher) == {token}
        assert matcher.accept([token])


@pytest.mark.parametrize(
    "params",
    [
        Params(regex="("),
        Params(grammar="start: ((("),
        Params(grammar="root ::= missing"),
        Params(grammar="this is no grammar"),
        Params(json="{"),
        Params(json={"properties": {"a": {"type": "string", "pattern": "["}}}),
        Params(json={"$ref": "#/$defs/nowhere"}),
        Params(json={"type": "strang"}),
        Params(structural_tag={"type": "structural_tag", "format": {"type": "unheard of"}}),
    ],
)
def test_a51_what_cannot_be_held_to_is_refused(params: Params) -> None:
    with pytest.raises(GrammarError):
        ChosenBackend(StructuredOutputsConfig(), vocabulary()).compile(params)


def test_an_escaped_mark_and_anchors_are_held_to() -> None:
    chosen = ChosenBackend(StructuredOutputsConfig(), vocabulary())
    pattern = Params(json={"type": "string", "pattern": r"^hello there\!$"})
    assert admits(chosen, pattern, '"hello there!"')
    assert not admits(chosen, pattern, '"hello there! "')
    assert admits(
        chosen, Params(json={"type": "string", "pattern": "abc"}), '"xxabcx"'
    )  # patterns are not anchored


def test_the_place_of_a_keyword_is_named() -> None:
    chosen = ChosenBackend(StructuredOutputsConfig(), vocabulary())
    with pytest.raises(GrammarError, match="/properties/a/items/not") as caught:
        chosen.compile(Params(json={"properties": {"a": {"items": {"not": {}}}}}))
    assert caught.value.param == "structured_outputs.json"


def test_a_backend_that_lacks_a_kind_says_so() -> None:
    if not is_installed("outlines"):
        pytest.skip("outlines-core is not installed")
    with pytest.raises(GrammarError, match="does not support the kind grammar"):
        ChosenBackend(StructuredOutputsConfig(backend="outlines"), vocabulary()).compile(
            Params(grammar='start: "a"')
        )


def test_what_takes_too_long_or_crashes_is_refused_and_the_next_one_is_tried() -> None:
    trial = GrammarTrial(seconds=0.2)
    huge = Params(json={"allOf": [{"pattern": f"a{i}.*"} for i in range(50)]})
    from octavo.structured_output.guidance import grammar_text

    with pytest.raises(GrammarError, match="more than"):
        trial.check(grammar_text(huge))
    trial.check(grammar_text(Params(regex="a")))
    trial.close()


@pytest.fixture
def compiler() -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(lambda: ChosenBackend(StructuredOutputsConfig(), vocabulary()))
    yield made
    made.close()


def test_a_grammar_is_compiled_once(compiler: GrammarCompiler) -> None:
    first = compiler.submit(Params(regex="a+"))
    assert compiler.submit(Params(regex="a+")) is first
    assert compiler.submit(Params(regex="b+")) is not first
    with pytest.raises(GrammarError) as caught:
        compiler.submit(Params(regex="(")).result()
    assert caught.value.param == "structured_outputs.regex"


@pytest.mark.slow
def test_xgrammar_too() -> None:
    pytest.importorskip("xgrammar")
    chosen = ChosenBackend(StructuredOutputsConfig(backend="xgrammar"), vocabulary())
    check(chosen, Params(regex="[0-9]{2,3}x?"), "12x", "1x")
    check(chosen, Params(choice=["name", 'a"b']), 'a"b', "n")
    check(chosen, Params(json=OBJECT), '{"name": "x", "n": 12}', '{"name": "x"}')
    check(chosen, Params(grammar='root ::= "a" [0-9]+'), "a12", "b")
