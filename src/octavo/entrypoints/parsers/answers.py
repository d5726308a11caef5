"""The parser of one answer: a machine, with the control tokens that it must see and the client must not."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.entrypoints.parsers.events import AnswerParser, Event, PassThrough, ReasoningDelta
from octavo.entrypoints.parsers.format import ReasoningFormat, ToolFormat
from octavo.entrypoints.parsers.machine import Machine
from octavo.tokenizers import Tokenizer, TokenStream


@dataclass(frozen=True)
class AnswerForm:
    """How the answers to one request are to be read.

    Attributes:
        tools: How calls are written; None: none are looked for.
        reasoning: How reasoning is set off; None: there is none.
        schemas: Parameters' schemas by the names of the tools.
        max_calls: Calls beyond these are dropped; None: there is no limit.
        include_reasoning: Tell reasoning too.
        hides_special_tokens: Leave control tokens out of the texts.
    """

    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    schemas: Mapping[str, Any] = field(default_factory=dict)
    max_calls: int | None = None
    include_reasoning: bool = True
    hides_special_tokens: bool = True

    @property
    def is_plain(self) -> bool:
        """All text is content. Otherwise the engine must spell control tokens out: they may be markers."""
        return self.tools is None and self.reasoning is None

    def parser(
        self, tokenizer: Tokenizer, prompt: str, prompt_token_ids: Sequence[int], *, opens_turn: bool
    ) -> AnswerParser:
        """What takes one answer apart.

        Args:
            prompt: As the template wrote it.
            opens_turn: It ends with the head of a new turn.
        """
        if self.is_plain:
            return PassThrough()
        reasons = self.reasoning is not None and self.reasoning.opened_by(prompt, opens_turn=opens_turn)
        machine = Machine(
            self.tools,
            self.reasoning,
            in_reasoning=reasons,
            schemas=self.schemas,
            max_calls=self.max_calls,
        )
        return FormatParser(machine, tokenizer, prompt_token_ids, self)

    @property
    def markers(self) -> tuple[str, ...]:
        """All strings with a meaning in an answer."""
        parts = (part.markers() for part in (self.tools, self.reasoning) if part is not None)
        return tuple(marker for markers in parts for marker in markers)


class FormatParser:
    """An `AnswerParser` over a `Machine`.

    The engine spells control tokens out for it (`skip_special_tokens` false). Those that are no marker of the format
    are left out here, token by token, so that the same letters in the text itself are kept.
    """

    def __init__(
        self, machine: Machine, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], form: AnswerForm
    ) -> None:
        self.reasoning_tokens = 0
        self._machine = machine
        self._tokenizer = tokenizer
        self._form = form
        self._stream = TokenStream(tokenizer, prompt_token_ids, skip_special_tokens=False)
        self._special = tokenizer.special_ids if form.hides_special_tokens else frozenset()
        # Tokens whose text the engine has not handed out yet: what is left of it, and whether to leave it out.
        self._waiting: deque[tuple[str, bool]] = deque()

    def feed(self, text: str, token_ids: Sequence[int]) -> list[Event]:
        """See `AnswerParser`."""
        for token_id in token_ids:
            self._waiting.append((self._stream.push(token_id), self._is_hidden(token_id)))
        events: list[Event] = []
        at = 0
        while at < len(text):
            piece, hidden = self._waiting.popleft() if self._waiting else (text[at:], False)
            part = text[at : at + len(piece)]
            if not piece.startswith(part):
                # Not this token's: what the engine makes of half a character at the end. Tokens without text follow.
                piece, part, hidden = text[at:], text[at:], False
            at += len(part)
            if len(part) < len(piece):
                self._waiting.appendleft((piece[len(part) :], hidden))
            else:
                self.reasoning_tokens += self._machine.in_reasoning
            if part and not hidden:
                events += self._machine.feed(part)
        return self._shown(events)

    def finish(self) -> list[Event]:
        """See `AnswerParser`."""
        return self._shown(self._machine.finish())

    def _shown(self, events: list[Event]) -> list[Event]:
        if self._form.include_reasoning:
            return events
        return [event for event in events if not isinstance(event, ReasoningDelta)]

    def _is_hidden(self, token_id: int) -> bool:
        if token_id not in self._special:
            return False
        spelling = self._tokenizer.token_text(token_id)
        return not any(spelling in marker for marker in self._form.markers)
