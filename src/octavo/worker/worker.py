"""One rank: its device, its model, its pages. An executor drives one or more of these."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from octavo import ops
from octavo.config.octavo_config import (
    DeviceConfig,
    LoadConfig,
    ModelConfig,
    SchedulerConfig,
    StructuredOutputsConfig,
)
from octavo.layers.parts import Classifier, NoHead
from octavo.lib.errors import NotSupportedError, OctavoError
from octavo.models.decoder import Decoder
from octavo.models.hf_config import HFConfig
from octavo.models.loading import Progress, load_model
from octavo.models.pooling import Projection, VectorHead
from octavo.models.registry import build_spec
from octavo.models.spec import DecoderSpec
from octavo.platforms import UNBOUND, memory_available, process_rss, select_platform, thread_places
from octavo.sampling import Sampler
from octavo.sampling.processors import make_processors
from octavo.structured_output.backend import NewMatcher
from octavo.structured_output.engine import GrammarEngine
from octavo.structured_output.vocabulary import Vocabulary, vocabulary_of
from octavo.tokenizers import load_tokenizer
from octavo.types.kv import KVLayer, KVLayout
from octavo.types.step import StepOutput, StepPlan
from octavo.types.structured_outputs import StructuredOutputsParams
from octavo.worker.grammars import GrammarTable
from octavo.worker.model_runner import ModelRunner
from octavo.worker.pooler import Pooler
from octavo.worker.warmup import WARM_UP_TOKENS, warm_up


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """Facts learned by loading, for sizing the cache and for the start-up table."""

    architecture: str
    vocab_size: int
    kv_layers: tuple[KVLayer, ...]
    weight_bytes: int
    """Bytes that the packed weights take."""
    load_seconds: float
    memory_available: int
    """Bytes free after loading, container limits included."""
    process_rss: int
    """Bytes of this process in memory after loading."""
    num_threads: int
    isa: str


class Worker:
    """Loads a model and runs plans on it.

    Args:
        model: Which model, and the longest sequence it must hold.
        load: How weights come in.
        device: Where to compute and with how many threads.
        scheduler: How many requests run at a time.
        structured: How answers are held to grammars.
    """

    def __init__(
        self,
        model: ModelConfig,
        load: LoadConfig,
        device: DeviceConfig,
        scheduler: SchedulerConfig,
        structured: StructuredOutputsConfig = StructuredOutputsConfig(),  # noqa: B008 - frozen
    ) -> None:
        self._grammars = GrammarEngine(structured, self._read_vocabulary)
        self._model_config = model
        self._load_config = load
        self._device_config = device
        self._scheduler_config = scheduler
        self._decoder: Decoder | None = None
        self._vocab_size = 0
        self._runner: ModelRunner | None = None

    def load(self, progress: Progress | None = None) -> LoadedModel:
        """Set the device up and load the weights.

        Args:
            progress: Called with (bytes done, bytes in all) after each tensor.

        Raises:
            ConfigError: the device is not usable.
            CheckpointError: the files are damaged or not supported.
        """
        begin = time.monotonic()
        self._set_up_device()
        path = self._model_config.model
        hf = HFConfig.from_path(path)
        spec = self._with_head(build_spec(hf).limited_to(self._model_config.max_model_len))
        self._decoder = load_model(
            path,
            hf,
            spec,
            load_format=self._load_config.load_format,
            quantization=self._load_config.quantization,
            progress=progress,
        )
        self._vocab_size = spec.vocab_size
        return LoadedModel(
            architecture=hf.architecture,
            vocab_size=spec.vocab_size,
            kv_layers=tuple(spec.kv_layers()),
            weight_bytes=self._decoder.weight_bytes,
            load_seconds=time.monotonic() - begin,
            memory_available=memory_available(),
            process_rss=process_rss(),
            num_threads=ops.num_threads(),
            isa=ops.isa(),
        )

    def allocate_kv(self, layout: KVLayout, num_blocks: int) -> None:
        """Reserve the pages and run the model once. `num_blocks` does not count the null page."""
        if self._decoder is None:
            raise OctavoError("allocate_kv was called before load")
        self._runner = ModelRunner(
            self._decoder,
            layout,
            num_blocks,
            vocab_size=self._vocab_size,
            max_num_seqs=self._scheduler_config.max_num_seqs,
            pooler=self._pooler(self._decoder.spec.hidden_size),
            sampler=Sampler(self._model_config.logprobs_mode, make_processors(self._model_config)),
            grammars=GrammarTable(self._grammars, self._vocab_size),
        )
        if not self._model_config.enforce_eager and ops.native_available():
            self._runner.record(self._decoder, self._scheduler_config.max_num_batched_tokens)
        warm_up(self._runner, min(WARM_UP_TOKENS, self._scheduler_config.max_num_batched_tokens))

    def execute_model(self, plan: StepPlan) -> StepOutput:
        """Run one step."""
        if self._runner is None:
            raise OctavoError("execute_model was called before allocate_kv")
        return self._runner.execute(plan)

    def discard_kv(self) -> None:
        """Give back the memory of the pages, which read as zero then."""
        if self._runner is not None:
            self._runner.kv.discard()

    def prepare_grammar(self, params: StructuredOutputsParams) -> Future[NewMatcher]:
        """Begin to compile a grammar, unless that was done before."""
        return self._grammars.prepare(params)

    def release(self) -> None:
        """Drop the model and the pages."""
        self._grammars.close()
        self._runner = self._decoder = None

    def _read_vocabulary(self) -> Vocabulary:
        model = self._model_config
        if model.tokenizer is None:
            raise NotSupportedError("structured outputs need a tokenizer", param="structured_outputs")
        return vocabulary_of(load_tokenizer(model.tokenizer), self._vocab_size, model.eos_token_ids)

    def _with_head(self, spec: DecoderSpec) -> DecoderSpec:
        """The model with the head that its runner needs: a pooled one computes no logits of tokens."""
        pooling = self._model_config.pooling
        if pooling is None or self._model_config.runner == "generate":
            return spec
        return spec.with_head(Classifier(pooling.size) if pooling.task == "classify" else NoHead())

    def _pooler(self, hidden_size: int) -> Pooler | None:
        config = self._model_config.pooling
        if config is None:
            return None
        head = VectorHead(config, [Projection.load(dense) for dense in config.dense])
        return Pooler(config, head, self._scheduler_config.max_num_seqs, hidden_size)

    def _set_up_device(self) -> None:
        platform = select_platform(self._device_config.device)
        if self._device_config.isa:
            ops.set_isa(self._device_config.isa)
        threads = self._device_config.num_threads or min(platform.default_num_threads(), ops.MAX_THREADS)
        ops.set_num_threads(threads, thread_places(threads) if self._device_config.bind_threads else UNBOUND)
        # The kernels have their own threads; torch's would only fight with them for the processors.
        torch.set_num_threads(1)
