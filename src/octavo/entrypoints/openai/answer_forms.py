"""How the answers to a chat request are to be read, from the request, the server's flags and the chat template."""

from __future__ import annotations

from octavo.entrypoints.openai.args import ServerArgs
from octavo.entrypoints.openai.forced_calls import forced_format
from octavo.entrypoints.openai.protocol.chat import ChatCompletionRequest
from octavo.entrypoints.openai.protocol.tools import schemas_of
from octavo.entrypoints.parsers.answers import AnswerForm
from octavo.entrypoints.parsers.format import ToolFormat
from octavo.entrypoints.parsers.selection import Selection
from octavo.lib.errors import InvalidRequestError


class AnswerForms:
    """Makes the form of each request's answers.

    Raises:
        ConfigError: a flag names no format, or a plugin that cannot be loaded.
    """

    def __init__(self, args: ServerArgs) -> None:
        plugins = (args.tool_parser_plugin, args.reasoning_parser_plugin)
        self._selection = Selection(args.tool_call_parser, args.reasoning_parser, *plugins)
        self._auto = args.enable_auto_tool_choice

    def of(self, body: ChatCompletionRequest, template: str) -> AnswerForm:
        """The form of answers to `body`.

        Args:
            template: The chat template that its prompt is written by.

        Raises:
            InvalidRequestError: calls are asked for that could not be told from text.
        """
        return AnswerForm(
            tools=self._tools(body, template),
            reasoning=self._selection.reasoning(template),
            schemas=schemas_of(body.tools or ()),
            max_calls=body.max_calls,
            include_reasoning=body.include_reasoning,
            hides_special_tokens=body.skip_special_tokens,
        )

    def _tools(self, body: ChatCompletionRequest, template: str) -> ToolFormat | None:
        choice = body.choice
        if choice.mode == "none":
            return None
        if choice.mode == "required":
            return forced_format(choice)
        found = self._selection.tools(template) if self._auto else None
        if found is None:
            why = (
                "the format of this model's calls is not known: start the server with --tool-call-parser"
                if self._auto
                else "this server was started with --no-enable-auto-tool-choice"
            )
            raise InvalidRequestError(f"tool_choice auto cannot be served, as {why}", param="tool_choice")
        return found
