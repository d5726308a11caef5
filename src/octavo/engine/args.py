"""`EngineArgs`: what a user may set. `create_engine_config()` is the only place that decides what "auto" means."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass

from octavo.config import (
    CacheConfig,
    DeviceConfig,
    LoadConfig,
    ObservabilityConfig,
    OctavoConfig,
    SchedulerConfig,
)
from octavo.config.env import environment
from octavo.engine.flags import add_flags, check_choices, flag, values_from
from octavo.engine.model_facts import (
    DTYPE_SYNONYMS,
    cache_dtype,
    read_model_facts,
    resolve_model_config,
    resolve_model_path,
)
from octavo.engine.sampling_settings import processor_paths
from octavo.engine.structured_settings import structured_outputs_config
from octavo.lib.errors import ConfigError
from octavo.lib.human_numbers import parse_human_int
from octavo.models.pooling_config import CONVERTS, RUNNERS
from octavo.models.quantization_config import METHODS, check_asked
from octavo.platforms import MAX_THREADS
from octavo.types.kv import KV_DTYPES

BLOCK_SIZES = (16, 32, 64, 128)
DTYPES = ("auto", "float32", "bfloat16", "float16", *DTYPE_SYNONYMS)
LOGPROBS_MODES = ("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits")
CACHE_DTYPES = ("auto", *KV_DTYPES, "fp8")
# An automatic pool holds this many sequences of full length, and at least so many tokens, if memory allows.
AUTO_SEQUENCES = 2
AUTO_TOKENS = 16384


def _length(text: str) -> int | None:
    """`auto` and -1 mean: what the model allows."""
    return None if text.strip().lower() in ("auto", "-1") else parse_human_int(text)


def _seed(text: str) -> int:
    return int(text)


@dataclass(kw_only=True)
class EngineArgs:
    """Settings of an engine, as flags (`--max-model-len 8k`) or keyword arguments (`LLM(max_model_len=8192)`)."""

    model: str | None = flag(None, aliases=("-m",))
    """Model to run: a folder in Hugging Face's layout or a .gguf file. Without one the embedded default model runs."""
    served_model_name: tuple[str, ...] | list[str] | str | None = flag(None)
    """Names under which the API offers the model; the first one is used in answers. Default: the model's name."""
    tokenizer: str | None = None
    """Folder or .gguf file of the tokenizer. Default: the model's own."""
    skip_tokenizer_init: bool = False
    """Load no tokenizer: prompts are token ids and so are answers. For scripts (`LLM`) and `octavo bench latency`."""
    dtype: str = flag("auto", choices=DTYPES)
    """Type of computation and cache as the checkpoint has it."""
    max_model_len: int | None = flag(None, parse=_length)
    """Tokens of prompt and answer together (8k, 8K, auto). Default: what the model was trained for."""
    seed: int = flag(0, parse=_seed)
    """Seed for requests that bring none."""
    max_logprobs: int = 20
    """Largest `logprobs` that a request may ask for; -1: the whole vocabulary."""
    logprobs_mode: str = flag("raw_logprobs", choices=LOGPROBS_MODES)
    """What log probabilities are of: the model's own logits (raw), or those that tokens are drawn from (processed); or
    those logits themselves."""
    logits_processors: tuple[str, ...] | list[str] | None = flag(None)
    """Import paths (package.module:Class) of logits processors, beside those of the entry points octavo.logits_processors."""
    reasoning_config: str | None = None
    """JSON with reasoning_start_str and reasoning_end_str, which thinking_token_budget looks for. Default: <think>, </think>."""
    enforce_eager: bool = False
    """Walk through the forward pass op by op in every step instead of replaying a recording: slower, for debugging."""
    generation_config: str = "auto"
    """Where sampling defaults come from: `auto` (generation_config.json beside the model), `vllm` (none), or a folder."""
    load_format: str = flag("auto", choices=("auto", "safetensors", "gguf", "dummy"))
    """How weights come in; `dummy`: random ones, for measurements."""
    quantization: str | None = flag(None, aliases=("-q",), choices=("int8", "int4", *METHODS))
    """int8, int4: round float weights to 8 or 4 bits while they load (8.5 and 4.5 bits a weight with scales; embedding
    and head always 8). awq, gptq, compressed-tensors, fp8: how the checkpoint is quantised, which its configuration says
    itself. Default: weights stay as they are stored, quantised ones too."""

    runner: str = flag("auto", choices=RUNNERS)
    """What the model is for: generate answers, or pooling (embeddings, classes). auto: what its files say."""
    convert: str = flag("auto", choices=CONVERTS)
    """What pooling makes of it: embed, or classify (needs a classifier's weights). auto: what its files say."""
    pooler_config: str | None = flag(None, aliases=("--override-pooler-config",))
    """JSON over what the model says of pooling: pooling_type (LAST, MEAN, CLS), use_activation, dimensions, is_matryoshka,
    matryoshka_dimensions. Of a model that generates, embeddings are given beside answers then."""

    structured_outputs_config: str | None = None
    """JSON: backend (auto, guidance, xgrammar, outlines), disable_any_whitespace, disable_additional_properties,
    enable_in_reasoning, compile_seconds, and reasoning_marks: what begins and ends reasoning, which is free."""

    enable_prompt_embeds: bool = False
    """Take prompts as rows of the embedding (`prompt_embeds`), which can make the model see what no text does."""

    block_size: int = 32
    """Tokens a page of the key-value cache: 16, 32, 64 or 128."""
    kv_cache_dtype: str = flag("auto", choices=CACHE_DTYPES)
    """Type of keys and values in the cache. auto: the checkpoint's type, float16 for quantised weights. fp8 is
    fp8_e4m3; int8 has a scale for each token and head and loses least of the 8-bit types."""
    kv_cache_memory_bytes: int | None = flag(None, parse=parse_human_int)
    """Memory for the key-value cache (2G, 512Mi). Default: from the memory that is free."""
    memory_utilization: float | None = flag(
        None, aliases=("--gpu-memory-utilization", "--device-memory-utilization")
    )
    """Share (0 to 1) of the free memory that weights and cache may take together. Default: at most 0.9, and no more
    than two requests of full length need."""
    num_blocks_override: int | None = flag(None, aliases=("--num-gpu-blocks-override",))
    """Number of pages in the cache, whatever memory says."""
    enable_prefix_caching: bool = True
    """Keep pages of finished requests and reuse them for prompts that start the same."""

    max_num_batched_tokens: int = flag(2048, parse=parse_human_int)
    """Tokens computed in one step, over all requests."""
    max_num_seqs: int = flag(256, parse=parse_human_int)
    """Requests that run at the same time."""
    scheduling_policy: str = flag("fcfs", choices=("fcfs", "priority"))
    """Who goes first: the one who came first, or the lower `priority`."""
    max_decode_steps: int = 8
    """Decode steps between two looks at what has arrived, as far as they fit into 20 ms; 1: look after each."""
    long_prefill_token_threshold: int = flag(512, parse=parse_human_int)
    """Tokens of a prompt computed in one step while others generate; bounds how long those wait. 0: no bound."""
    enable_chunked_prefill: bool = True
    """Let a long prompt be computed over several steps."""
    max_num_queued_reqs: int = flag(1024, parse=parse_human_int)
    """Waiting requests beyond which new ones are refused with status 429."""
    max_num_queued_tokens: int = flag(0, parse=parse_human_int)
    """Prompt tokens of the waiting requests from which on new ones are refused with status 429; 0: no bound."""

    threads: int = 0
    """Threads to compute with; 0: one for each physical core that the affinity mask and the cgroup allow."""
    disable_log_stats: bool = False
    """No periodic log line of throughput."""
    metrics_prefix: str = "octavo"
    """Prefix of metric names; `vllm` keeps dashboards made for it working."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Add one flag per field."""
        add_flags(parser, EngineArgs, group="engine")
        return parser

    @classmethod
    def from_cli_args(cls, namespace: argparse.Namespace) -> EngineArgs:
        """The arguments that `parser.parse_args()` found."""
        return cls(**values_from(namespace, cls))

    def create_engine_config(self) -> OctavoConfig:
        """Resolve every "auto", check the settings against each other and against the model's own files.

        Reads the model's configuration (no weights) and loads neither torch nor a tokenizer.

        Raises:
            ConfigError: settings that cannot work; `param` names the flag.
            CheckpointError: the model's files are damaged; UnsupportedModelError: of a kind not known here.
        """
        check_choices(self)
        self._check_numbers()
        if self.skip_tokenizer_init and self.tokenizer is not None:
            raise ConfigError(
                "--skip-tokenizer-init loads no tokenizer, so --tokenizer cannot be given beside it.",
                param="skip_tokenizer_init",
            )
        facts = read_model_facts(resolve_model_path(self.model))
        check_asked(self.quantization, facts.hf)
        model = resolve_model_config(self, facts)
        return OctavoConfig(
            model=model,
            cache=self._cache_config(facts.path, model.dtype, model.max_model_len),
            scheduler=self._scheduler_config(model.max_model_len),
            device=self._device_config(),
            load=LoadConfig(load_format=self.load_format, quantization=self.quantization),
            observability=self._observability_config(),
            structured_outputs=structured_outputs_config(self.structured_outputs_config),
        )

    def _check_numbers(self) -> None:
        if self.block_size not in BLOCK_SIZES:
            sizes = ", ".join(map(str, BLOCK_SIZES))
            raise ConfigError(
                f"--block-size must be one of {sizes}, got {self.block_size}.", param="block_size"
            )
        if self.kv_cache_dtype not in CACHE_DTYPES:
            types = ", ".join(CACHE_DTYPES)
            raise ConfigError(
                f"--kv-cache-dtype must be one of {types}, got {self.kv_cache_dtype}.", param="kv_cache_dtype"
            )
        share = self.memory_utilization
        if share is not None and not 0.0 < share <= 1.0:
            raise ConfigError(
                f"--memory-utilization must lie in (0, 1], got {share}.", param="memory_utilization"
            )
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ConfigError(
                    f"--{name.replace('_', '-')} must be at least {lowest}, got {value}.", param=name
                )

    def _cache_config(self, path: str, dtype: str, max_model_len: int) -> CacheConfig:
        sized = self.memory_utilization is not None
        return CacheConfig(
            block_size=self.block_size,
            dtype=self._cache_dtype(path, dtype),
            num_blocks=self.num_blocks_override,
            memory_bytes=self.kv_cache_memory_bytes,
            memory_utilization=0.9 if self.memory_utilization is None else self.memory_utilization,
            target_tokens=None if sized else max(AUTO_SEQUENCES * max_model_len, AUTO_TOKENS),
            enable_prefix_caching=self.enable_prefix_caching,
        )

    def _cache_dtype(self, path: str, dtype: str) -> str:
        if self.kv_cache_dtype == "auto":
            return cache_dtype(path, dtype)
        return "fp8_e4m3" if self.kv_cache_dtype == "fp8" else self.kv_cache_dtype

    def _scheduler_config(self, max_model_len: int) -> SchedulerConfig:
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < max_model_len:
            raise ConfigError(
                f"Without chunked prefill --max-num-batched-tokens ({self.max_num_batched_tokens}) must be at least "
                f"--max-model-len ({max_model_len}).",
                param="max_num_batched_tokens",
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"--max-num-batched-tokens ({self.max_num_batched_tokens}) must be at least --max-num-seqs "
                f"({self.max_num_seqs}): each running request needs one token a step.",
                param="max_num_batched_tokens",
            )
        return SchedulerConfig(
            policy=self.scheduling_policy,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_seqs=self.max_num_seqs,
            max_decode_steps=1 if processor_paths(self.logits_processors) else self.max_decode_steps,
            long_prefill_token_threshold=self.long_prefill_token_threshold,
            enable_chunked_prefill=self.enable_chunked_prefill,
            max_num_queued_reqs=self.max_num_queued_reqs,
            max_num_queued_tokens=self.max_num_queued_tokens,
        )

    def _device_config(self) -> DeviceConfig:
        env = environment()
        threads = self.threads or env.num_threads
        if threads > MAX_THREADS:
            asked = "--threads" if self.threads else "OCTAVO_NUM_THREADS"
            raise ConfigError(f"{asked} must be at most {MAX_THREADS}, got {threads}.", param="threads")
        return DeviceConfig(num_threads=threads, bind_threads=env.cpu_bind == "auto", isa=env.isa)

    def _observability_config(self) -> ObservabilityConfig:
        interval = 0.0 if self.disable_log_stats else environment().log_stats_interval_s
        return ObservabilityConfig(log_stats_interval=interval, metrics_prefix=self.metrics_prefix)


_LOWEST = {
    "max_model_len": 1,
    "max_logprobs": -1,
    "kv_cache_memory_bytes": 1,
    "num_blocks_override": 1,
    "max_num_batched_tokens": 1,
    "max_num_seqs": 1,
    "max_decode_steps": 1,
    "long_prefill_token_threshold": 0,
    "max_num_queued_reqs": 0,
    "max_num_queued_tokens": 0,
    "threads": 0,
}

ENGINE_FIELDS = frozenset(field.name for field in dataclasses.fields(EngineArgs))
