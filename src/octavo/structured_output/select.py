"""Which library holds to which constraint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from octavo.config import StructuredOutputsConfig
from octavo.structured_output.backend import Backend, GrammarError, NewMatcher, UnsupportedGrammarError
from octavo.structured_output.libraries import KINDS, MODULES, is_installed
from octavo.structured_output.schema_check import PLAIN, find_fault, read_schema
from octavo.structured_output.trial import GrammarTrial
from octavo.structured_output.vocabulary import Vocabulary
from octavo.types.structured_outputs import StructuredOutputsParams

logger = logging.getLogger(__name__)

MakeBackend = Callable[[Vocabulary, StructuredOutputsConfig], Backend]


def _guidance(vocabulary: Vocabulary, config: StructuredOutputsConfig) -> Backend:
    from octavo.structured_output.guidance import GuidanceBackend

    return GuidanceBackend(vocabulary, GrammarTrial(config.compile_seconds).check)


def _xgrammar(vocabulary: Vocabulary, config: StructuredOutputsConfig) -> Backend:
    from octavo.structured_output.xgrammar import XGrammarBackend

    return XGrammarBackend(vocabulary)


def _outlines(vocabulary: Vocabulary, config: StructuredOutputsConfig) -> Backend:
    from octavo.structured_output.outlines import OutlinesBackend

    return OutlinesBackend(vocabulary)


MAKERS: Mapping[str, MakeBackend] = {"guidance": _guidance, "xgrammar": _xgrammar, "outlines": _outlines}


def _is_plain(params: StructuredOutputsParams) -> bool:
    """Whether a library that is asked second has a chance: it need not be loaded to refuse a schema."""
    if params.kind != "json":
        return True
    try:
        return find_fault(read_schema(params.text), PLAIN) is None
    except ValueError:
        return False


class ChosenBackend:
    """The backends that may be asked, in their order: the first that can hold to a constraint does.

    Args:
        config: Which ones.
        vocabulary: For all of them.
    """

    def __init__(self, config: StructuredOutputsConfig, vocabulary: Vocabulary) -> None:
        self._config = config
        self._vocabulary = vocabulary
        self._made: dict[str, Backend] = {}

    def compile(self, params: StructuredOutputsParams) -> NewMatcher:
        """See `Backend.compile`. The error is that of the first backend that was asked."""
        first: GrammarError | None = None
        for name in self._names(params):
            try:
                return self._backend(name).compile(params)
            except UnsupportedGrammarError as error:
                logger.debug("%s cannot hold to a grammar: %s", name, error.message)
                first = first or error
        asked = self._config.backend
        raise first or GrammarError(f"the backend {asked} does not support the kind {params.kind}")

    def _names(self, params: StructuredOutputsParams) -> Sequence[str]:
        names = [name for name in MODULES if is_installed(name)]
        if self._config.backend != "auto":
            names = [self._config.backend]
        return [
            name for name in names if params.kind in KINDS[name] and (name == names[0] or _is_plain(params))
        ]

    def _backend(self, name: str) -> Backend:
        if name not in self._made:
            self._made[name] = MAKERS[name](self._vocabulary, self._config)
        return self._made[name]
