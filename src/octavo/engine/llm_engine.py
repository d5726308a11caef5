"""The sync front: add requests, call `step()` until nothing is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.config import OctavoConfig
from octavo.engine.args import EngineArgs
from octavo.engine.clients.inproc import EngineClient, InprocClient
from octavo.engine.clients.process import COMMAND
from octavo.engine.clients.zmq_sync import SyncZmqClient
from octavo.engine.core import EngineCore
from octavo.engine.input import GenerationRequest, InputProcessor, Prompt
from octavo.engine.loading_bar import LoadingBar
from octavo.engine.model_facts import tokenizer_of
from octavo.engine.output import OutputProcessor, ProcessedStep
from octavo.engine.sleep import SleepState, check_sleep, check_tags
from octavo.engine.stats import StatsListener, StatsListeners, ThroughputLog
from octavo.lib.errors import EngineDeadError, InvalidRequestError
from octavo.types.outputs import RequestOutput
from octavo.types.pooling_outputs import PoolingRequestOutput
from octavo.types.pooling_params import PoolingParams
from octavo.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.tokenizers import Tokenizer


class LLMEngine:
    """Runs requests for one caller.

    Args:
        config: Resolved settings.
        client: A core, here or in another process.
        tokenizer: None: only token ids go in and come out.
        listeners: Told about every step.
    """

    def __init__(
        self,
        config: OctavoConfig,
        client: EngineClient,
        tokenizer: Tokenizer | None,
        listeners: Sequence[StatsListener] = (),
    ) -> None:
        self.config = config
        self.client = client
        self.tokenizer = tokenizer
        limits = config.scheduler
        self._input = InputProcessor(
            config.model,
            tokenizer,
            max_queued=limits.max_num_queued_reqs,
            max_queued_tokens=limits.max_num_queued_tokens,
        )
        self._output = OutputProcessor(tokenizer)
        self._listeners = StatsListeners(listeners)
        if config.observability.log_stats_interval:
            self._listeners.add(ThroughputLog(config.observability.log_stats_interval))
        self._unsent: list[RequestOutput | PoolingRequestOutput] = []
        self._rest = SleepState()

    @classmethod
    def from_engine_args(
        cls, args: EngineArgs, *, own_process: bool = False, command: Sequence[str] = COMMAND
    ) -> LLMEngine:
        """Load a model, in this process (the default) or in its own.

        Raises:
            ConfigError, CheckpointError: see `EngineArgs.create_engine_config` and `EngineCore`.
        """
        if not own_process:
            config = args.create_engine_config()
            return cls(config, _inproc(config), tokenizer_of(config.model))
        client = SyncZmqClient(command, LoadingBar())
        try:
            config = args.create_engine_config()
            tokenizer = tokenizer_of(config.model)
            client.start(config)
        except BaseException:
            client.shutdown()
            raise
        return cls(config, client, tokenizer)

    def add_listener(self, listener: StatsListener) -> None:
        """Tell one more listener about every step."""
        self._listeners.add(listener)

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | PoolingParams,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> None:
        """Check a request and queue it. With `PoolingParams` it asks for a vector.

        Raises:
            InvalidRequestError: it can never be answered as it is.
            AsleepError: the model sleeps.
        """
        self._rest.check_awake()
        if isinstance(params, PoolingParams):
            request: GenerationRequest = self._input.process_pooling(
                request_id, prompt, params, priority=priority, cache_salt=cache_salt
            )
        else:
            request = self._input.process(
                request_id, prompt, params, priority=priority, cache_salt=cache_salt
            )
        self._output.add(request)
        try:
            self.client.add(request.children)
        except BaseException:
            self._output.abort([request_id])
            raise

    def step(self) -> list[RequestOutput | PoolingRequestOutput]:
        """Run one step and return what it brought, by each request's output kind.

        A request that failed comes back with `error` set and finish reason `error`.

        Raises:
            EngineDeadError: the engine process died.
        """
        done, self._unsent = self._unsent, []
        if not self._output.num_open:
            return done
        try:
            processed = self._output.process(self.client.get_outputs())
        except EngineDeadError as error:
            self._output.fail(self._output.request_ids, error)
            raise
        return done + self._carry_out(processed)

    def abort_request(self, request_ids: str | Sequence[str]) -> None:
        """End requests; the next `step()` returns their last output. Unknown ids are ignored."""
        ids = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        self._unsent += self._carry_out(self._output.abort(ids))

    def has_unfinished_requests(self) -> bool:
        """Whether `step()` has more to bring."""
        return bool(self._unsent) or self._output.num_open > 0

    def get_num_unfinished_requests(self) -> int:
        """Requests that are not ended."""
        return self._output.num_open

    def reset_prefix_cache(self) -> bool:
        """Forget cached pages; False while requests hold some."""
        return self.client.reset_prefix_cache()

    @property
    def sleep_level(self) -> int:
        """How deeply the model sleeps; 0: not at all."""
        return self._rest.level

    @property
    def is_sleeping(self) -> bool:
        """Whether requests are refused because something sleeps."""
        return self._rest.is_sleeping

    def sleep(self, level: int = 1) -> None:
        """Free the memory of the pages (level 1) and of the weights (level 2); see `docs/sleep.md`.

        Raises:
            InvalidRequestError: another level, or requests are open.
        """
        check_sleep(level)
        if self._output.num_open:
            raise InvalidRequestError(f"The model cannot sleep: {self._output.num_open} requests are open.")
        self.client.sleep(level)
        self._rest.fall(level)

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Bring parts back: `weights`, `kv_cache`; None: all. Requests are taken once all are awake.

        Raises:
            InvalidRequestError: an unknown tag, or pages are to come back before weights.
            OctavoError: the weights cannot be loaded any more.
        """
        waking = check_tags(tags)
        self.client.wake_up(waking)
        self._rest.rise(waking)

    def shutdown(self) -> None:
        """Stop the engine. May be called twice."""
        self.client.shutdown()

    def _carry_out(self, done: ProcessedStep) -> list[RequestOutput | PoolingRequestOutput]:
        if done.to_abort:
            self.client.abort(done.to_abort)
        self._listeners.on_step(done.stats)
        return done.outputs


def _inproc(config: OctavoConfig) -> InprocClient:
    from octavo.executor.uniproc import UniprocExecutor

    return InprocClient(EngineCore(config, UniprocExecutor(config), LoadingBar()))
