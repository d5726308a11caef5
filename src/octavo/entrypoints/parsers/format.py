"""What a format is: values that the one machine reads answers by."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.entrypoints.parsers.calls import Layout
from octavo.entrypoints.parsers.channels import Channels


@dataclass(frozen=True)
class ToolFormat:
    """How calls are announced and written.

    Attributes:
        sections: Markers, each with the layout of what follows it.
        bare: Characters with which a call may begin an answer without any marker, and its layout.
        strays: Markers without a meaning outside of a call: they are left out of the content.
        channels: The answer is a row of messages with headers, calls among them, and the rest does not apply.
        signs: Texts in a chat template that give the format away; all of one tuple must be there.
    """

    sections: tuple[tuple[str, Layout], ...] = ()
    bare: tuple[str, Layout] | None = None
    strays: tuple[str, ...] = ()
    channels: Channels | None = None
    signs: tuple[tuple[str, ...], ...] = ()

    def markers(self) -> tuple[str, ...]:
        """All strings with a meaning in the format."""
        layouts = [layout for _, layout in self.sections] + ([self.bare[1]] if self.bare else [])
        inner = tuple(marker for layout in layouts for marker in layout.markers())
        channels = self.channels.markers() if self.channels is not None else ()
        return (*(opens for opens, _ in self.sections), *self.strays, *inner, *channels)


@dataclass(frozen=True)
class ReasoningFormat:
    """How reasoning is set off.

    Attributes:
        starts, ends: Its markers.
        assumed: An answer begins with it although neither prompt nor answer says so.
        ended_by_calls: A call ends it as well.
        strays: Markers around the rest of the answer, left out of the content.
        channels, signs: As in `ToolFormat`.
    """

    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    assumed: bool = False
    ended_by_calls: bool = False
    strays: tuple[str, ...] = ()
    channels: Channels | None = None
    signs: tuple[tuple[str, ...], ...] = ()

    def markers(self) -> tuple[str, ...]:
        """All strings with a meaning in the format."""
        channels = self.channels.markers() if self.channels is not None else ()
        return (*self.starts, *self.ends, *self.strays, *channels)

    def opened_by(self, prompt: str, *, opens_turn: bool) -> bool:
        """Whether the answer to a prompt begins within reasoning.

        Args:
            prompt: As the template wrote it.
            opens_turn: The prompt ends with the head of a new turn (and not within a turn that is continued).
        """
        end = prompt.rstrip()
        return end.endswith(self.starts) or (self.assumed and opens_turn and not end.endswith(self.ends))


@dataclass(frozen=True)
class Format:
    """What one file of `formats` defines.

    Attributes:
        names: The file's name comes first; vLLM's names are among them.
        models: Whose format it is, for the documentation.
        tools, reasoning: One of them or both.
        rank: Among formats that a template gives away, the highest is taken.
    """

    names: tuple[str, ...]
    models: str
    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    rank: int = 0
