"""The engine core: a scheduler, an executor and pages; one step is schedule -> execute -> update."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from octavo.config import ModelConfig, OctavoConfig
from octavo.engine.decode_pace import DecodePace
from octavo.engine.grammar_gate import GrammarGate
from octavo.engine.kv_sizing import MemoryFacts, memory_table, pages_for_tokens, size_pool, workspace_bytes
from octavo.engine.loading_bar import ProgressListener, silent
from octavo.engine.sleep import SleepState, check_sleep, check_tags
from octavo.lib.errors import InvalidRequestError, OctavoError
from octavo.platforms.memory import return_free_memory
from octavo.scheduling.kv.groups import plan_groups
from octavo.scheduling.scheduler import Scheduler
from octavo.types.engine import EngineOutput, EngineOutputs, EngineRequest, FinishReason
from octavo.types.kv import KVLayout
from octavo.types.sampling_params import SamplingParams
from octavo.types.step import StepPlan

if TYPE_CHECKING:
    from octavo.executor.base import Executor, LoadedModel

logger = logging.getLogger(__name__)

# A step that fails takes its requests with it; so many in a row mean that the engine itself is broken.
MAX_FAILED_STEPS = 3


class EngineCore:
    """Takes requests, brings tokens. Knows nothing of text, clients or sockets.

    Args:
        config: All settings, resolved.
        executor: Not loaded yet; the core loads it and gives it its pages.
        progress: Told about the stages of loading.

    Raises:
        ConfigError: the model and one page do not fit into memory.
        CheckpointError: the weights cannot be loaded.
    """

    def __init__(self, config: OctavoConfig, executor: Executor, progress: ProgressListener = silent) -> None:
        self.executor = executor
        progress("loading the weights")
        self.model: LoadedModel = executor.load(
            lambda done, total: progress("loading the weights", done, total)
        )
        self.layout = plan_groups(self.model.kv_layers, config.cache.block_size, config.cache.dtype)
        self.num_blocks = self._size_pool(config)
        progress("allocating the key-value cache")
        executor.allocate_kv(self.layout, self.num_blocks)
        max_model_len = config.model.max_model_len
        self.scheduler = Scheduler(
            config.scheduler, config.cache, self.layout, self.num_blocks, max_model_len
        )
        logger.info(
            "Loaded %s (%s) in %.1f s; computing with %d threads, %s.",
            config.model.served_model_names[0],
            self.model.architecture,
            self.model.load_seconds,
            self.model.num_threads,
            self.model.isa,
        )
        self._check_extra_args = _extra_args_check(config.model)
        self._unsent: list[EngineOutput] = []
        self._grammars = GrammarGate(executor.prepare_grammar)
        self._failed_steps = 0
        self._rest = SleepState()
        self._pace = DecodePace(config.scheduler.max_decode_steps)

    @property
    def kv_bytes(self) -> int:
        """Bytes of all pages."""
        return self.num_blocks * self.layout.block_bytes

    def add(self, requests: Sequence[EngineRequest]) -> None:
        """Queue requests. One that cannot be taken is answered by an output with its error, like any other failure."""
        for request in requests:
            try:
                self._check_extra_args(request.sampling)
                self._rest.check_awake()
                if self._grammars.passes(request):
                    self.scheduler.add(request)
            except Exception as error:
                self._refuse(request, error)

    def _refuse(self, request: EngineRequest, error: BaseException) -> None:
        if isinstance(error, OctavoError):
            failure = _failure(request.request_id, error.message, error.error_type)
            failure.error_param = error.param
        else:
            logger.error("Request %s could not be queued.", request.request_id, exc_info=error)
            failure = _failure(request.request_id, repr(error))
        self._unsent.append(failure)

    def _admit_compiled(self) -> None:
        """Queue requests whose grammars are there now."""
        if not self.scheduler.has_work() and not self._unsent:
            self._grammars.wait()
        for request, error in self._grammars.take():
            try:
                if error is not None:
                    raise error
                self.scheduler.add(request)
            except Exception as wrong:
                self._refuse(request, wrong)

    def abort(self, request_ids: Sequence[str]) -> None:
        """Drop requests before the next step; unknown ids are ignored."""
        dropped = self._grammars.drop(request_ids)
        self._unsent += [_ended(request_id, FinishReason.ABORT) for request_id in dropped]
        self._unsent.extend(self.scheduler.abort(list(request_ids)))

    def has_work(self) -> bool:
        """Whether `step()` would bring anything."""
        return bool(self._unsent or len(self._grammars)) or self.scheduler.has_work()

    def step(self) -> EngineOutputs:
        """Run one step and hand out what it, and refusals and aborts since the last one, brought."""
        if len(self._grammars):
            self._admit_compiled()
        outputs, self._unsent = self._unsent, []
        if self.scheduler.has_work():
            outputs += self._run(self.scheduler.schedule(self._pace.steps))
        return EngineOutputs(outputs=outputs, stats=self.scheduler.stats(), timestamp=time.monotonic())

    def reset_prefix_cache(self) -> bool:
        """Forget cached pages; False while requests hold some."""
        return self.scheduler.reset_prefix_cache()

    @property
    def is_sleeping(self) -> bool:
        """Whether `sleep` freed something that `wake_up` has not brought back."""
        return self._rest.is_sleeping

    def sleep(self, level: int = 1) -> None:
        """Free memory: level 1 that of the pages, level 2 that of the weights as well. Requests are refused then.

        Raises:
            InvalidRequestError: another level, or requests are open.
        """
        check_sleep(level)
        if self.scheduler.has_work():
            raise InvalidRequestError("The model cannot sleep while requests are open.")
        if not self._rest.deepens(level):
            return
        # A level-1 executor keeps its state of requests, which it is told to release at the next step.
        if level == 1:
            self.reset_prefix_cache()
            self.executor.discard_kv()
        else:
            self.scheduler.start_over()
            self.executor.shutdown()
        self._rest.fall(level)
        return_free_memory()
        logger.info("Asleep at level %d.", self._rest.level)

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Bring parts back (`weights`, `kv_cache`; None: all); weights are read from their files again after level 2.

        Raises:
            InvalidRequestError: an unknown tag, or pages are to come back before weights.
            OctavoError: the weights cannot be loaded any more; the model sleeps on.
        """
        waking = [tag for tag in check_tags(tags) if tag in self._rest.asleep]
        if self._rest.level == 2:
            self._reload(waking)
        self._rest.rise(waking)

    def _reload(self, waking: Sequence[str]) -> None:
        if "weights" in waking:
            self.model = self.executor.load()
        elif "weights" in self._rest.asleep:
            raise InvalidRequestError("The weights sleep still: wake them up before kv_cache.", param="tags")
        if "kv_cache" in waking:
            self.executor.allocate_kv(self.layout, self.num_blocks)

    def shutdown(self) -> None:
        """Free model and pages."""
        self.executor.shutdown()

    def _run(self, plan: StepPlan) -> list[EngineOutput]:
        begin = time.monotonic()
        try:
            outputs = self.scheduler.update(plan, self.executor.execute_model(plan))
        except Exception as error:
            return self._fail_step(plan, error)
        self._failed_steps = 0
        self._pace.note((time.monotonic() - begin) / plan.num_steps)
        return outputs

    def _fail_step(self, plan: StepPlan, error: Exception) -> list[EngineOutput]:
        """End the requests of a step that raised, and keep the others: their pages were not touched.

        Raises:
            OctavoError: it keeps happening, so that the fault is the engine's.
        """
        self._failed_steps += 1
        if self._failed_steps >= MAX_FAILED_STEPS:
            raise OctavoError(
                f"{MAX_FAILED_STEPS} steps in a row failed; the last one with: {error!r}"
            ) from error
        victims = list(plan.num_scheduled_tokens)
        logger.error("A step failed; its %d requests end with an error.", len(victims), exc_info=error)
        self.scheduler.abort(victims)
        return [
            _failure(request_id, f"The engine failed while it ran this request: {error!r}")
            for request_id in victims
        ]

    def _size_pool(self, config: OctavoConfig) -> int:
        memory = MemoryFacts(
            weight_bytes=self.model.weight_bytes,
            memory_available=self.model.memory_available,
            workspace_bytes=workspace_bytes(config.scheduler, self.model.vocab_size),
        )
        max_model_len = config.model.max_model_len
        num_blocks = size_pool(config.cache, self.layout, memory, max_model_len)
        table = memory_table(self.layout, num_blocks, memory, max_model_len)
        logger.info("Memory of %s:\n%s", config.model.served_model_names[0], "\n".join(table))
        _warn_if_small(self.layout, num_blocks, max_model_len)
        return num_blocks


def _extra_args_check(model: ModelConfig) -> Callable[[SamplingParams], None]:
    """What logits processors say of a request's parameters. Their classes may need torch, so the front cannot ask them."""
    if not model.logits_processors:
        return lambda params: None
    from octavo.sampling.processors import check_extra_args, load_processor_classes

    return partial(check_extra_args, load_processor_classes(model.logits_processors))


def _warn_if_small(layout: KVLayout, num_blocks: int, max_model_len: int) -> None:
    needed = pages_for_tokens(layout, max_model_len)
    if num_blocks < needed and all(group.window == 0 for group in layout.groups):
        logger.warning(
            "The cache (%d pages) is smaller than one request of full length (%d tokens need %d pages): longer "
            "requests will be refused. Lower --max-model-len or give more memory with --kv-cache-memory-bytes.",
            num_blocks,
            max_model_len,
            needed,
        )


def _ended(request_id: str, reason: FinishReason) -> EngineOutput:
    return EngineOutput(request_id=request_id, new_token_ids=[], finish_reason=reason)


def _failure(request_id: str, message: str, error_type: str | None = None) -> EngineOutput:
    return EngineOutput(
        request_id=request_id,
        new_token_ids=[],
        finish_reason=FinishReason.ERROR,
        error=message,
        error_type=error_type,
    )
