"""The async front: one engine process behind `generate()`, for servers and other programs with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from octavo.config import OctavoConfig
from octavo.config.env import environment
from octavo.engine.args import EngineArgs
from octavo.engine.clients.process import COMMAND
from octavo.engine.clients.session import EngineState
from octavo.engine.clients.wire import Ready
from octavo.engine.clients.zmq_async import AsyncZmqClient
from octavo.engine.input import (
    GenerationRequest,
    InputProcessor,
    Prompt,
    check_text,
    default_sampling_params,
)
from octavo.engine.loading_bar import LoadingBar, ProgressListener
from octavo.engine.mailbox import AnyOutput, Mailbox
from octavo.engine.model_facts import tokenizer_of
from octavo.engine.output import OutputProcessor, ProcessedStep
from octavo.engine.sleep import SleepState, check_sleep, check_tags
from octavo.engine.stats import StatsListener, StatsListeners, ThroughputLog
from octavo.lib.errors import DrainingError, EngineDeadError, OctavoError
from octavo.lib.origin import Origin
from octavo.types.engine import EngineOutputs, SchedulerStats
from octavo.types.outputs import RequestOutput
from octavo.types.pooling_outputs import PoolingRequestOutput
from octavo.types.pooling_params import PoolingParams
from octavo.types.sampling_params import RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    from octavo.tokenizers import Tokenizer

logger = logging.getLogger(__name__)

_DRAIN_POLL_SECONDS = 0.05
_LONG_TEXT = 8192


class AsyncLLM:
    """Generates for many callers at once. All methods belong to one event loop.

    Args:
        config: Resolved settings.
        client: A client whose engine process was started already.
        tokenizer: None: only token ids go in and come out.
        listeners: Told about every step, for metrics.
    """

    def __init__(
        self,
        config: OctavoConfig,
        client: AsyncZmqClient,
        tokenizer: Tokenizer | None,
        listeners: Sequence[StatsListener] = (),
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self._client = client
        limits = config.scheduler
        self._input = InputProcessor(
            config.model,
            tokenizer,
            max_queued=limits.max_num_queued_reqs,
            max_queued_tokens=limits.max_num_queued_tokens,
        )
        self._output = OutputProcessor(tokenizer)
        self._mailboxes: dict[str, Mailbox] = {}
        self._listeners = StatsListeners(listeners)
        if config.observability.log_stats_interval:
            self._listeners.add(ThroughputLog(config.observability.log_stats_interval))
        self._rest = SleepState()
        self._rest_lock = asyncio.Lock()
        self._started = False
        self._draining = False
        self._last_progress = time.monotonic()

    @classmethod
    def from_engine_args(
        cls,
        args: EngineArgs,
        *,
        listeners: Sequence[StatsListener] = (),
        command: Sequence[str] = COMMAND,
        progress: ProgressListener | None = None,
    ) -> AsyncLLM:
        """Start the engine process and, while it loads, read the configuration and the tokenizer here.

        Needs no event loop yet. `start()`, `wait_ready()` or the first `generate()` connects to the process.

        Args:
            args: Settings.
            listeners: Told about every step.
            command: How to start the process.
            progress: Told what the engine does while it loads; default: a bar on the terminal.

        Raises:
            ConfigError, CheckpointError: see `EngineArgs.create_engine_config`; the process is ended then.
        """
        client = AsyncZmqClient(command, progress=progress or LoadingBar())
        try:
            config = args.create_engine_config()
            return cls(config, client, tokenizer_of(config.model), listeners)
        except BaseException:
            client.discard()
            raise

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the engine runs and is not being shut down; it may sleep."""
        return self._client.state is EngineState.READY and not self._draining

    @property
    def is_alive(self) -> bool:
        """Whether the engine runs, though the server may be ending."""
        return self._client.state is EngineState.READY

    @property
    def sleep_level(self) -> int:
        """How deeply the model sleeps; 0: not at all."""
        return self._rest.level

    def check_awake(self) -> None:
        """Refuse new work while the model sleeps.

        Raises:
            AsleepError: with status 503.
        """
        self._rest.check_awake()

    @property
    def is_starting(self) -> bool:
        """Whether the first engine is not ready yet and may still become so."""
        return not self._client.was_ready and self._client.failure is None

    @property
    def is_draining(self) -> bool:
        """Whether `drain()` was called."""
        return self._draining

    @property
    def num_open(self) -> int:
        """Requests that are not ended."""
        return self._output.num_open

    @property
    def stage(self) -> str:
        """What a starting engine is doing, for a progress line."""
        return self._client.stage

    @property
    def engine_facts(self) -> Ready | None:
        """What the engine said about its model and pages; None before it is ready."""
        return self._client.ready

    @property
    def engine_pid(self) -> int:
        """Process id of the engine that runs now."""
        return self._client.pid

    def default_sampling_params(self) -> SamplingParams:
        """What a request that says nothing gets."""
        return default_sampling_params(self.config.model)

    def add_listener(self, listener: StatsListener) -> None:
        """Tell one more listener about every step."""
        self._listeners.add(listener)

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the engine process; call in the event loop. Does not wait; may be called again."""
        if not self._started:
            self._started = True
            self._client.start(self.config, self)

    async def wait_ready(self) -> Ready:
        """Wait until the engine takes requests.

        Raises:
            OctavoError: why it cannot start.
        """
        self.start()
        return await self._client.wait_ready()

    async def check_health(self) -> None:
        """Return if all is well.

        Raises:
            EngineDeadError: the engine is down, or requests run and no step came for `OCTAVO_HEALTH_STALL_S`.
        """
        if self._client.failure is not None:
            raise EngineDeadError(self._client.failure.message)
        if self._client.was_ready and self._client.state is not EngineState.READY:
            raise EngineDeadError("The engine died and is being started again.")
        limit = environment().health_stall_s
        silent = time.monotonic() - self._last_progress
        if self._output.num_open and silent > limit:
            raise EngineDeadError(
                f"{self._output.num_open} requests run, but no step came for {silent:.0f} s."
            )

    async def drain(self, timeout: float | None = None) -> bool:
        """Refuse new requests and wait for the open ones; False if some were left after `timeout` seconds."""
        self._draining = True
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._output.num_open:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
        return True

    def fail_open(self, error: OctavoError) -> None:
        """End all open requests with `error`."""
        self._dispatch(self._output.fail(self._output.request_ids, error))

    def fail_call(self, origin: Origin, error: OctavoError) -> int:
        """End the open requests that came of one call with `error`; how many these were."""
        request_ids = self._output.ids_of(origin)
        self._dispatch(self._output.fail(request_ids, error))
        return len(request_ids)

    async def shutdown(self) -> None:
        """End open requests with an error and stop the engine process. May be called twice."""
        self._draining = True
        self.fail_open(EngineDeadError("The engine was shut down."))
        await self._client.shutdown()

    # -- requests -----------------------------------------------------------------------------------------------------

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        arrival_time: float | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield outputs of one request as they come; which ones, `sampling_params.output_kind` says.

        Leaving the iteration early (`aclose()`, cancellation, an exception) aborts the request in the engine.

        Args:
            prompt: Text, token ids, `{"prompt": ...}` or `{"prompt_token_ids": ...}`.
            sampling_params: With `max_tokens=None` the answer may fill the context.
            request_id: Any name that no other open request has.
            priority: Lower goes first (with `--scheduling-policy priority`).
            cache_salt: Only requests with the same salt share cached pages.
            arrival_time: Monotonic seconds; default: now.

        Raises:
            InvalidRequestError: the request can never be answered as it is.
            OverloadedError: the waiting queue is full.
            DrainingError: the server is shutting down.
            AsleepError: the model sleeps.
            EngineDeadError: the engine died, or is being started again.
        """
        mailbox = await self._submit(prompt, sampling_params, request_id, priority, cache_salt, arrival_time)
        try:
            finished = False
            while not finished:
                output = await mailbox.get()
                assert isinstance(output, RequestOutput)
                finished = output.finished
                yield output
        finally:
            # Another request may have taken the id since this one ended; it must not be the one to be aborted.
            if self._mailboxes.get(request_id) is mailbox:
                self._end([request_id])

    async def encode(
        self,
        prompt: Prompt,
        pooling_params: PoolingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        arrival_time: float | None = None,
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        """Yield one output: the vector of a prompt. Arguments and errors are those of `generate`."""
        mailbox = await self._submit(prompt, pooling_params, request_id, priority, cache_salt, arrival_time)
        try:
            output = await mailbox.get()
            assert isinstance(output, PoolingRequestOutput)
            yield output
        finally:
            if self._mailboxes.get(request_id) is mailbox:
                self._end([request_id])

    async def abort(self, request_id: str | Sequence[str]) -> None:
        """End requests; their iterations yield a last output with finish reason `abort`. Unknown ids are ignored."""
        self._end([request_id] if isinstance(request_id, str) else request_id)

    async def reset_prefix_cache(self) -> bool:
        """Forget cached pages; False while requests hold some."""
        return await self._client.reset_prefix_cache()

    async def sleep(self, level: int = 1, mode: str = "abort") -> None:
        """Take no more requests, and free the memory of the pages (level 1) and of the weights (level 2).

        Args:
            level: See `docs/sleep.md`.
            mode: What becomes of open requests: `abort` ends them, `wait` lets them finish first.

        Raises:
            InvalidRequestError: another level or mode.
            EngineDeadError: the engine died meanwhile.
        """
        check_sleep(level, mode)
        async with self._rest_lock:
            await self._ensure_running()
            was_awake = not self._rest.is_sleeping
            self._rest.fall(level)
            try:
                if mode == "abort":
                    self._end(self._output.request_ids)
                while self._output.num_open:
                    await asyncio.sleep(_DRAIN_POLL_SECONDS)
                await self._client.sleep(level)
            except BaseException:
                if was_awake:
                    self._rest.rise()
                raise

    async def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Bring parts back: `weights`, `kv_cache`; None: all. Requests are taken once all are awake.

        Raises:
            InvalidRequestError: an unknown tag, or pages are to come back before weights.
            OctavoError: the weights cannot be loaded any more.
        """
        waking = check_tags(tags)
        async with self._rest_lock:
            await self._ensure_running()
            await self._client.wake_up(waking)
            self._rest.rise(waking)

    async def is_sleeping(self) -> bool:
        """Whether requests are refused because something sleeps."""
        return self._rest.is_sleeping

    # -- what the engine sends ----------------------------------------------------------------------------------------

    def on_outputs(self, outputs: EngineOutputs) -> None:
        """See `EngineListener.on_outputs`."""
        self._last_progress = time.monotonic()
        self._dispatch(self._output.process(outputs))

    def on_death(self, error: OctavoError) -> None:
        """See `EngineListener.on_death`."""
        self._rest.rise()  # the engine that is started in its place is awake
        done = self._output.fail(self._output.request_ids, error)
        done.stats.scheduler = SchedulerStats()  # nothing runs any more
        self._dispatch(done)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _submit(
        self,
        prompt: Prompt,
        params: SamplingParams | PoolingParams,
        request_id: str,
        priority: int,
        cache_salt: str | None,
        arrival_time: float | None,
    ) -> Mailbox:
        await self._ensure_running()
        self._rest.check_awake()
        delta = False
        if isinstance(params, PoolingParams):
            check = partial(
                self._input.process_pooling,
                request_id,
                prompt,
                params,
                priority=priority,
                cache_salt=cache_salt,
                arrival_time=arrival_time,
            )
            request: GenerationRequest = await asyncio.to_thread(check) if _is_long(prompt) else check()
        else:
            delta = params.output_kind is RequestOutputKind.DELTA
            prompt = await self._encoded(prompt)
            request = self._input.process(
                request_id,
                prompt,
                params,
                priority=priority,
                cache_salt=cache_salt,
                arrival_time=arrival_time,
            )
        self._output.add(request)
        if self._output.num_open == 1:
            self._last_progress = time.monotonic()
        mailbox = Mailbox(delta=delta)
        self._mailboxes[request_id] = mailbox
        try:
            self._client.add(request.children)
        except BaseException:
            del self._mailboxes[request_id]
            self._output.abort([request_id])
            raise
        return mailbox

    async def _encoded(self, prompt: Prompt) -> Prompt:
        """Long text is encoded in a thread, so that other streams go on meanwhile."""
        if self.tokenizer is None or not isinstance(prompt, str) or not _is_long(prompt):
            return prompt
        check_text(self.tokenizer, prompt, self.config.model.max_model_len)
        return {"prompt": prompt, "prompt_token_ids": await asyncio.to_thread(self.tokenizer.encode, prompt)}

    async def _ensure_running(self) -> None:
        if self._draining:
            raise DrainingError("The server is shutting down and takes no new requests.")
        if not self._client.was_ready:
            await self.wait_ready()
        if self._client.state is not EngineState.READY:
            raise EngineDeadError("The engine died and is not running now; try again in a few seconds.")

    def _end(self, request_ids: Sequence[str]) -> None:
        done = self._output.abort(request_ids)
        with contextlib.suppress(EngineDeadError):
            self._client.abort(done.to_abort)
        done.to_abort = []
        self._dispatch(done)

    def _dispatch(self, done: ProcessedStep) -> None:
        """Carry out what the output processor decided."""
        self._client.abort(done.to_abort)
        for output in done.outputs:
            self._deliver(output, done.failures.pop(output.request_id, None))
        for request_id, error in done.failures.items():
            if (mailbox := self._mailboxes.pop(request_id, None)) is not None:
                mailbox.fail(error)
        self._listeners.on_step(done.stats)

    def _deliver(self, output: AnyOutput, error: OctavoError | None) -> None:
        mailbox = self._mailboxes.get(output.request_id)
        if mailbox is None:
            return
        if output.finished:
            del self._mailboxes[output.request_id]
        if error is not None:
            mailbox.fail(error)
        else:
            mailbox.put(output)


def _is_long(prompt: Prompt) -> bool:
    """Whether it is a text that takes long to encode."""
    return isinstance(prompt, str) and len(prompt) >= _LONG_TEXT
