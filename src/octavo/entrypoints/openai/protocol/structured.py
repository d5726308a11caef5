"""What shape an answer must have: `response_format` as OpenAI writes it, `structured_outputs` as vLLM does."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from octavo.lib.errors import InvalidRequestError, NotSupportedError
from octavo.types.structured_outputs import StructuredOutputsParams

_FIELDS = StructuredOutputsParams.__struct_fields__


class JsonSchemaFormat(BaseModel):
    """A schema with its name. `strict` or not, the answer is held to it."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str = "answer"
    description: str | None = None
    json_schema: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """`text`, `json_object`, `json_schema`, or a `structural_tag` in either of its forms (which bring fields of their own)."""

    model_config = ConfigDict(extra="allow")

    type: str = "text"
    json_schema: JsonSchemaFormat | None = None

    def constraint(self) -> dict[str, Any]:
        """As fields of `StructuredOutputsParams`; empty for text.

        Raises:
            InvalidRequestError: the schema is missing.
            NotSupportedError: the type is not known.
        """
        if self.type == "text":
            return {}
        if self.type == "json_object":
            return {"json_object": True}
        if self.type == "structural_tag":
            return {"structural_tag": self.model_dump(exclude_none=True)}
        if self.type != "json_schema":
            message = f"response_format {self.type[:64]!r} is not supported; it takes text, json_object, json_schema or structural_tag"
            raise NotSupportedError(message, param="response_format.type")
        if self.json_schema is None or self.json_schema.json_schema is None:
            where = "response_format.json_schema"
            raise InvalidRequestError(f"{where}.schema is missing", param=where)
        schema = self.json_schema.json_schema
        return {"json": schema if isinstance(schema, dict) else ("true" if schema else "false")}


def structured_params(
    asked: dict[str, Any] | None, response_format: ResponseFormat | None
) -> StructuredOutputsParams | None:
    """The one constraint of a request; None: there is none.

    Raises:
        InvalidRequestError: there are two, or one that is not understood; names the field.
    """
    form = {} if response_format is None else response_format.constraint()
    if asked is None:
        return StructuredOutputsParams(**form) if form else None
    if form:
        message = "structured_outputs and response_format exclude each other"
        raise InvalidRequestError(message, param="structured_outputs")
    unknown = sorted(set(asked) - set(_FIELDS))
    if unknown:
        message = f"structured_outputs has no field {unknown[0][:64]!r}; it takes {', '.join(_FIELDS)}"
        raise InvalidRequestError(message, param="structured_outputs")
    return StructuredOutputsParams(**asked)
