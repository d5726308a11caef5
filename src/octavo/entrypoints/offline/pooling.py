"""`LLM.encode`, `embed`, `classify` and `score`: vectors of prompts, in the order of the prompts."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from octavo.engine.input import Prompt
from octavo.engine.llm_engine import LLMEngine
from octavo.engine.pairs import cosines, pair_prompt, paired
from octavo.engine.pooling_input import pooling_of
from octavo.entrypoints.offline.collector import Collector
from octavo.entrypoints.offline.generate import Prompts, as_list, one_each
from octavo.lib.errors import OctavoError
from octavo.types.pooling_outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from octavo.types.pooling_params import PoolingParams

Params = PoolingParams | Sequence[PoolingParams] | None


class PoolingOfflineMixin:
    """Vectors instead of answers, of models that are set up for it."""

    llm_engine: LLMEngine
    _turn: threading.Lock
    _request_numbers: itertools.count[int]
    _collector: Collector

    def encode(
        self,
        prompts: Prompts,
        pooling_params: Params = None,
        *,
        pooling_task: str | None = None,
        use_tqdm: bool = True,
        truncate_prompt_tokens: int | None = None,
        cache_salt: str | None = None,
    ) -> list[PoolingRequestOutput]:
        """The model's vector of each prompt.

        Args:
            prompts: One prompt or a list, as for `generate`.
            pooling_params: For all prompts, or one for each.
            pooling_task: `embed`, `classify` or `score`; default: what the model is for.
            use_tqdm: Show a progress bar.
            truncate_prompt_tokens: Cut longer prompts to their first so many tokens; -1: to the context.
            cache_salt: Only requests with the same salt share cached pages.

        Returns:
            One output per prompt, in the order of the prompts; `outputs.data` is float32.

        Raises:
            InvalidRequestError: a prompt or its parameters cannot be used, or the model does not do this task.
            OctavoError: the engine could not finish one of them.

        Threads may call it; they take turns.
        """
        listed = as_list(prompts)
        each = _params_each(
            pooling_params, len(listed), task=pooling_task, truncate_prompt_tokens=truncate_prompt_tokens
        )
        ids: list[str] = []
        with self._turn:
            try:
                for prompt, params in zip(listed, each, strict=True):
                    ids.append(str(next(self._request_numbers)))
                    self.llm_engine.add_request(ids[-1], prompt, params, cache_salt=cache_salt)
                return self._vectors(ids, use_tqdm)
            except BaseException:
                self.llm_engine.abort_request(ids)
                raise

    def embed(
        self,
        prompts: Prompts,
        pooling_params: Params = None,
        *,
        use_tqdm: bool = True,
        truncate_prompt_tokens: int | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """An embedding of each prompt. Arguments and errors are those of `encode`."""
        outputs = self.encode(
            prompts,
            pooling_params,
            pooling_task="embed",
            use_tqdm=use_tqdm,
            truncate_prompt_tokens=truncate_prompt_tokens,
        )
        return [
            EmbeddingRequestOutput(
                output.request_id,
                EmbeddingOutput(output.outputs.data.tolist()),
                output.prompt_token_ids,
                output.num_cached_tokens,
            )
            for output in outputs
        ]

    def classify(
        self,
        prompts: Prompts,
        pooling_params: Params = None,
        *,
        use_tqdm: bool = True,
        truncate_prompt_tokens: int | None = None,
    ) -> list[ClassificationRequestOutput]:
        """The classes' probabilities of each prompt. Arguments and errors are those of `encode`."""
        outputs = self.encode(
            prompts,
            pooling_params,
            pooling_task="classify",
            use_tqdm=use_tqdm,
            truncate_prompt_tokens=truncate_prompt_tokens,
        )
        return [
            ClassificationRequestOutput(
                output.request_id,
                ClassificationOutput(output.outputs.data.tolist()),
                output.prompt_token_ids,
                output.num_cached_tokens,
            )
            for output in outputs
        ]

    def score(
        self,
        data_1: str | Sequence[str],
        data_2: str | Sequence[str],
        pooling_params: PoolingParams | None = None,
        *,
        use_tqdm: bool = True,
        truncate_prompt_tokens: int | None = None,
    ) -> list[ScoringRequestOutput]:
        """How well texts go together: one with each of many, or two lists pair by pair.

        An embedding model gives the cosine of the two embeddings; a classifier with one class reads both as one text.

        Args:
            data_1: One text, or as many as in `data_2`.
            data_2: Texts.

        Raises:
            InvalidRequestError: the lists do not go together, or the model does neither.
        """
        model = self.llm_engine.config.model
        pairs = paired(_texts(data_1), _texts(data_2), ("data_1", "data_2"))
        params = _params_each(pooling_params, 1, truncate_prompt_tokens=truncate_prompt_tokens)[0]
        if pooling_of(model, None).task == "embed":
            return self._bi_encoder(pairs, params, use_tqdm)
        pooling_of(model, "score")
        prompts: list[Prompt] = [pair_prompt(self.llm_engine.tokenizer, *pair) for pair in pairs]
        outputs = self.encode(prompts, params, pooling_task="score", use_tqdm=use_tqdm)
        return [
            ScoringRequestOutput(
                output.request_id,
                ScoringOutput(output.outputs.data[0]),
                output.prompt_token_ids,
                output.num_cached_tokens,
            )
            for output in outputs
        ]

    def _bi_encoder(
        self, pairs: Sequence[tuple[str, str]], params: PoolingParams, use_tqdm: bool
    ) -> list[ScoringRequestOutput]:
        """Each different text is computed once."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        found = dict(
            zip(texts, self.encode(texts, params, pooling_task="embed", use_tqdm=use_tqdm), strict=True)
        )
        scores = cosines({text: output.outputs.data for text, output in found.items()}, pairs)
        return [
            ScoringRequestOutput(
                f"{found[one].request_id}-{found[two].request_id}",
                ScoringOutput(score),
                found[one].prompt_token_ids + found[two].prompt_token_ids,
                found[one].num_cached_tokens + found[two].num_cached_tokens,
            )
            for (one, two), score in zip(pairs, scores, strict=True)
        ]

    def _vectors(self, ids: Sequence[str], use_tqdm: bool) -> list[PoolingRequestOutput]:
        outputs: dict[str, PoolingRequestOutput] = {}
        with _bar(len(ids), shown=use_tqdm) as bar:
            for output in self._collector.finished(ids):
                assert isinstance(output, PoolingRequestOutput)
                if output.error is not None:
                    raise OctavoError(output.error)
                outputs[output.request_id] = output
                if bar is not None:
                    bar.update()
        return [outputs[request_id] for request_id in ids]


@contextmanager
def _bar(total: int, *, shown: bool) -> Iterator[Any]:
    """A progress bar, or None."""
    if not shown:
        yield None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc="Prompts", unit="req", dynamic_ncols=True) as bar:
        yield bar


def _texts(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _params_each(given: Params, count: int, **changes: Any) -> list[PoolingParams]:
    """One for each prompt, with what the call itself says."""
    each = (
        one_each("pooling_params", given, count)
        if isinstance(given, Sequence)
        else [given or PoolingParams()] * count
    )
    said = {name: value for name, value in changes.items() if value is not None}
    return [msgspec.structs.replace(one, **said) for one in each]
