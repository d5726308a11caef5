"""`LLM.generate` and `LLM.chat`: many prompts in, their answers out in the same order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from octavo.engine.input import Prompt, default_sampling_params
from octavo.engine.llm_engine import LLMEngine
from octavo.entrypoints.offline.collector import Collector
from octavo.lib.errors import ConfigError, InvalidRequestError
from octavo.tokenizers.chat import choose_template, render_chat
from octavo.tokenizers.chat_format import prepare_messages
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    from octavo.tokenizers import Tokenizer

Prompts = Prompt | Sequence[Prompt]
Message = Mapping[str, Any]
Conversations = Sequence[Message] | Sequence[Sequence[Message]]


class OfflineInferenceMixin:
    """Generation from prompts and from conversations."""

    llm_engine: LLMEngine
    _turn: threading.Lock
    _request_numbers: itertools.count[int]
    _collector: Collector

    def generate(
        self,
        prompts: Prompts,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
        cache_salt: str | None = None,
    ) -> list[RequestOutput]:
        """Generate answers, as many at a time as the engine can run.

        Args:
            prompts: One prompt or a list. A prompt is text, a list of token ids, `{"prompt": text}` or
                `{"prompt_token_ids": ids}`.
            sampling_params: For all prompts, or one for each. Default: `get_default_sampling_params()`.
            use_tqdm: Show a progress bar.
            priority: One for each prompt, lower first (with `scheduling_policy="priority"`).
            cache_salt: Only requests with the same salt share cached pages.

        Returns:
            One output per prompt, in the order of the prompts. One that failed in the engine has `error` set.

        Raises:
            InvalidRequestError: a prompt or its parameters cannot be used. Nothing is generated then.

        Threads may call it; they take turns.
        """
        with self._turn:
            ids = self._add(prompts, sampling_params, priority, cache_salt)
            try:
                return self._run(ids, use_tqdm)
            except BaseException:
                self.llm_engine.abort_request(ids)
                raise

    def enqueue(
        self,
        prompts: Prompts,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: Sequence[int] | None = None,
        cache_salt: str | None = None,
    ) -> list[str]:
        """Hand prompts over without waiting for their answers; `wait_for_completion` brings them.

        An engine in a process of its own (`own_process=True`) begins at once, one in this process when it is waited for.
        Arguments and errors are those of `generate`.

        Returns:
            One request id per prompt.
        """
        with self._turn:
            ids = self._add(prompts, sampling_params, priority, cache_salt)
            self._collector.enqueued.update(dict.fromkeys(ids))
            return ids

    def enqueue_chat(
        self,
        messages: Conversations,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """`enqueue` for conversations. Arguments and errors are those of `chat`."""
        prompts = self._chat_prompts(
            messages,
            chat_template,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **(chat_template_kwargs or {}),
        )
        return self.enqueue(prompts, self._chat_params(sampling_params))

    def wait_for_completion(self, *, use_tqdm: bool = True) -> list[RequestOutput]:
        """The answers of everything that was enqueued and not waited for, in the order in which it was enqueued.

        Raises:
            EngineDeadError: the engine process died; what was enqueued is lost.

        Ctrl-C loses nothing: what is not answered yet can be waited for again.
        """
        with self._turn:
            outputs = self._run(list(self._collector.enqueued), use_tqdm)
            self._collector.enqueued.clear()
            return outputs

    def chat(
        self,
        messages: Conversations,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        chat_template: str | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation (a list of messages) or several (a list of such lists).

        Args:
            messages: Each message is `{"role": ..., "content": ...}`.
            sampling_params: As for `generate`. Default: the model's own, to the end of the answer.
            use_tqdm: Show a progress bar.
            chat_template: A Jinja template instead of the model's own.
            add_generation_prompt: Open a new turn of the assistant. Default: yes, unless the last message is continued.
            continue_final_message: Go on with the last message instead of answering it.
            tools: JSON descriptions of functions, for templates that know tools.
            chat_template_kwargs: Further variables for the template.

        Raises:
            InvalidRequestError: the template refuses the conversation, or the model has none.
        """
        prompts = self._chat_prompts(
            messages,
            chat_template,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **(chat_template_kwargs or {}),
        )
        return self.generate(prompts, self._chat_params(sampling_params), use_tqdm=use_tqdm)

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            ConfigError: there is none (`skip_tokenizer_init`).
        """
        if self.llm_engine.tokenizer is None:
            raise ConfigError(
                "There is no tokenizer: the engine was made with skip_tokenizer_init.",
                param="skip_tokenizer_init",
            )
        return self.llm_engine.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What `generate` uses without `sampling_params`: the model's `generation_config.json` over `SamplingParams()`.

        So its `max_tokens` is 16, as vLLM's, unless the generation config has `max_new_tokens`.
        """
        model = self.llm_engine.config.model
        limit = dict(model.default_sampling).get("max_tokens", SamplingParams().max_tokens)
        return default_sampling_params(model, max_tokens=limit)

    def _chat_prompts(
        self,
        messages: Conversations,
        chat_template: str | None,
        *,
        tools: Sequence[Mapping[str, Any]] | None,
        **variables: Any,
    ) -> list[Prompt]:
        """Each conversation as the template writes it."""
        tokenizer = self.get_tokenizer()
        template = chat_template or choose_template(tokenizer.chat_templates, tools=bool(tools))
        prompts: list[Prompt] = []
        for conversation in _as_conversations(messages):
            text = render_chat(
                template,
                prepare_messages(conversation, template),
                tools=tools,
                special_tokens=tokenizer.special_tokens,
                **variables,
            )
            # What the model expects before a text, the template has written.
            ids = tokenizer.encode(text, add_special_tokens=False)
            prompts.append({"prompt": text, "prompt_token_ids": ids})
        return prompts

    def _chat_params(
        self, given: SamplingParams | Sequence[SamplingParams] | None
    ) -> SamplingParams | Sequence[SamplingParams]:
        """An answer ends by itself, a continuation need not."""
        return default_sampling_params(self.llm_engine.config.model) if given is None else given

    def _add(
        self,
        prompts: Prompts,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        priority: Sequence[int] | None,
        cache_salt: str | None,
    ) -> list[str]:
        """Send all prompts to the engine, or none if one cannot be used; returns their request ids."""
        listed = as_list(prompts)
        params = self._params_for(sampling_params, len(listed))
        ranks = one_each("priority", priority, len(listed)) if priority is not None else [0] * len(listed)
        ids: list[str] = []
        try:
            for prompt, one, rank in zip(listed, params, ranks, strict=True):
                ids.append(str(next(self._request_numbers)))
                self.llm_engine.add_request(ids[-1], prompt, one, priority=rank, cache_salt=cache_salt)
        except BaseException:
            # A mistake in one prompt, or Ctrl-C: nothing of this call may go on in the next one.
            self.llm_engine.abort_request(ids)
            raise
        return ids

    def _params_for(
        self, given: SamplingParams | Sequence[SamplingParams] | None, count: int
    ) -> list[SamplingParams]:
        if given is None:
            given = self.get_default_sampling_params()
        each = (
            [given] * count
            if isinstance(given, SamplingParams)
            else one_each("sampling_params", given, count)
        )
        return [msgspec.structs.replace(one, output_kind=RequestOutputKind.FINAL_ONLY) for one in each]

    def _run(self, ids: Sequence[str], use_tqdm: bool) -> list[RequestOutput]:
        outputs: dict[str, RequestOutput] = {}
        with _Progress(len(ids), shown=use_tqdm) as progress:
            for output in self._collector.finished(ids):
                assert isinstance(output, RequestOutput)
                outputs[output.request_id] = output
                progress.add(output)
        return [outputs[request_id] for request_id in ids]


class _Progress:
    """A bar that counts prompts and shows tokens per second."""

    def __init__(self, total: int, *, shown: bool) -> None:
        self._prompt_tokens = self._generated = 0
        self._bar: Any = None
        if shown:
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc="Prompts", unit="req", dynamic_ncols=True)

    def add(self, output: RequestOutput) -> None:
        """One more is finished."""
        if self._bar is None:
            return
        self._prompt_tokens += len(output.prompt_token_ids)
        self._generated += sum(len(answer.token_ids) for answer in output.outputs)
        seconds = max(self._bar.format_dict["elapsed"], 1e-6)
        self._bar.set_postfix_str(
            f"in {self._prompt_tokens / seconds:.1f} tok/s, out {self._generated / seconds:.1f} tok/s",
            refresh=False,
        )
        self._bar.update()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()


def as_list(prompts: Prompts) -> list[Prompt]:
    """A list of prompts, whether one or several were given. A list of integers is one prompt."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise InvalidRequestError(
            f"prompts must be a prompt or a list of prompts, got {type(prompts).__name__}.", param="prompts"
        )
    if all(isinstance(item, int) for item in prompts) and len(prompts) > 0:
        return [cast("Sequence[int]", prompts)]
    return list(cast("Sequence[Prompt]", prompts))


def _as_conversations(messages: Conversations) -> list[Sequence[Message]]:
    if messages and isinstance(messages[0], Mapping):
        return [cast("Sequence[Message]", messages)]
    return list(cast("Sequence[Sequence[Message]]", messages))


def one_each(name: str, values: Iterable[Any], count: int) -> list[Any]:
    listed = list(values)
    if len(listed) != count:
        raise InvalidRequestError(f"{name} has {len(listed)} entries for {count} prompts.", param=name)
    return listed
