"""The sub-configs and their frozen aggregate. Every "auto" was already decided by `EngineArgs.create_engine_config()`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DenseConfig:
    """A projection of pooled vectors, in a folder beside the model (a `Dense` module of Sentence Transformers)."""

    folder: str
    in_features: int
    out_features: int
    bias: bool
    activation: str
    """`identity` or `tanh`."""


@dataclass(frozen=True, kw_only=True)
class PoolingConfig:
    """How hidden states become one vector a prompt."""

    task: str
    """`embed` or `classify`."""
    pooling_type: str
    """`LAST`: the last token's hidden state; `CLS`: the first one's; `MEAN`: their mean."""
    activation: str
    """What `use_activation` means: `normalize`, `softmax`, `sigmoid` or `identity`."""
    size: int
    """Numbers in a vector where `dimensions` does not cut it."""
    use_activation: bool = True
    """Where a request does not say."""
    dimensions: int | None = None
    """Where a request does not say; None: all."""
    is_matryoshka: bool = False
    """Whether requests may ask for fewer dimensions."""
    matryoshka_dimensions: tuple[int, ...] = ()
    """Which; empty: any."""
    dense: tuple[DenseConfig, ...] = ()
    """Projections between pooling and activation, in order."""
    labels: tuple[str, ...] = ()
    """Names of the classes."""
    max_seq_length: int | None = None
    """Tokens that the trained embedder read at most; None: not stated."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """What requests may ask for."""
        return ("classify", "score") if self.task == "classify" and self.size == 1 else (self.task,)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model, and what of it the engine may use."""

    model: str
    """Directory of a Hugging Face checkpoint, or a `.gguf` file."""
    served_model_names: tuple[str, ...]
    tokenizer: str | None
    """Where the tokenizer lies: a directory or a `.gguf` file; None: token ids go in and come out."""
    dtype: str
    """Computation and cache dtype as the checkpoint has it: `float32`, `bfloat16` or `float16`."""
    max_model_len: int
    """Tokens of prompt and answer together."""
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    hidden_size: int = 0
    """Width of the hidden states."""
    enable_prompt_embeds: bool = False
    """Whether prompts may be rows of the embedding."""
    seed: int = 0
    max_logprobs: int = 20
    """Largest `logprobs` a request may ask for; -1: the whole vocabulary."""
    logprobs_mode: str = "raw_logprobs"
    """`raw_` or `processed_` (after penalties, temperature, filters), then `logprobs` or `logits`."""
    logits_processors: tuple[str, ...] = ()
    """Import paths `package.module:Class`, those of entry points included."""
    reasoning_marks: tuple[str, str] = ("<think>", "</think>")
    """Texts that begin and end reasoning: what `thinking_token_budget` looks for."""
    enforce_eager: bool = False
    """Walk through the forward pass op by op in every step, instead of replaying a recording of it."""
    default_sampling: tuple[tuple[str, float | int], ...] = ()
    """Sampling defaults from `generation_config.json`, as (name, value) pairs."""
    runner: str = "generate"
    """`generate`, or `pooling`: a model without a language head."""
    pooling: PoolingConfig | None = None
    """Set where vectors may be asked for; a model that generates may give them too."""


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """Pages of the key-value cache."""

    block_size: int = 32
    """Tokens a page: 16, 32, 64 or 128."""
    dtype: str = "float32"
    """`float32`, `bfloat16` or `float16`."""
    num_blocks: int | None = None
    """Pages in the pool, the null page not counted; None: from `memory_bytes`, or from the memory that is free."""
    memory_bytes: int | None = None
    memory_utilization: float = 0.9
    """Share of the free memory (cgroup limits included) that weights and pages may take together."""
    target_tokens: int | None = None
    """Tokens that a pool sized from the free memory should hold and need not exceed; None: all that the share allows."""
    enable_prefix_caching: bool = True


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """Who runs when."""

    policy: str = "fcfs"
    """`fcfs` or `priority` (lower value first, then arrival)."""
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    long_prefill_token_threshold: int = 512
    """Prefill tokens one request may take in a step while others decode: bounds how long a decode waits. 0: no bound."""
    enable_chunked_prefill: bool = True
    max_decode_steps: int = 8
    """Decode steps between two looks at what has arrived, as long as they take no more than a moment; 1: look each time."""
    max_num_queued_reqs: int = 1024
    """Waiting requests beyond which new ones are refused."""
    max_num_queued_tokens: int = 0
    """Their prompt tokens from which on new ones are refused; 0: no bound."""


@dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """Where and with how many threads to compute."""

    device: str = "cpu"
    num_threads: int = 0
    """0: one for each physical core in the affinity mask, within the cgroup quota."""
    bind_threads: bool = True
    """Keep each thread on a core of its own where there are as many threads as cores."""
    isa: str = ""
    """Force a lower instruction set (`scalar`, `avx2`, ...); empty: the best the processor has."""


@dataclass(frozen=True, kw_only=True)
class LoadConfig:
    """How weights come in."""

    load_format: str = "auto"
    """`auto`, `safetensors`, `gguf` or `dummy`."""
    quantization: str | None = None
    """`int8` or `int4`: what float weights are rounded to while they load; else how the checkpoint is quantised."""


@dataclass(frozen=True, kw_only=True)
class StructuredOutputsConfig:
    """How answers are held to schemas and grammars."""

    backend: str = "auto"
    """`auto` (what can hold to it), `guidance`, `xgrammar` or `outlines`."""
    disable_any_whitespace: bool = False
    """JSON without whitespace between its parts, where a request does not say."""
    disable_additional_properties: bool = False
    """Objects without `additionalProperties` are read as forbidding them, where a request does not say."""
    enable_in_reasoning: bool = False
    """Hold to the constraint from the first token on, reasoning included."""
    reasoning_marks: tuple[str, str] | None = None
    """Texts that begin and end reasoning, which is free unless `enable_in_reasoning`; None: there is none."""
    compile_seconds: float = 10.0
    """A constraint that takes longer to compile is refused."""


@dataclass(frozen=True, kw_only=True)
class ObservabilityConfig:
    """Logs and metrics."""

    log_stats_interval: float = 10.0
    """Seconds between the periodic log lines; 0: none."""
    metrics_prefix: str = "octavo"


@dataclass(frozen=True, kw_only=True)
class OctavoConfig:
    """Everything, cross-checked once. Parts take the sub-config they need, never the whole."""

    model: ModelConfig
    cache: CacheConfig
    scheduler: SchedulerConfig
    device: DeviceConfig
    load: LoadConfig
    observability: ObservabilityConfig
    structured_outputs: StructuredOutputsConfig = StructuredOutputsConfig()
