"""`LLM.beam_search`: the most likely answers instead of drawn ones."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.engine.beam_search import BeamSearch, open_beam_search
from octavo.engine.input import Prompt
from octavo.entrypoints.offline.generate import OfflineInferenceMixin, Prompts, as_list
from octavo.lib.errors import InvalidRequestError, OctavoError
from octavo.types.beam_outputs import BeamSearchOutput
from octavo.types.sampling_params import BeamSearchParams


class BeamSearchOfflineMixin(OfflineInferenceMixin):
    """Beam search over what `generate` can do."""

    def beam_search(
        self,
        prompts: Prompts,
        params: BeamSearchParams,
        *,
        use_tqdm: bool = False,
        concurrency_limit: int | None = None,
    ) -> list[BeamSearchOutput]:
        """The most likely answers to each prompt.

        Args:
            prompts: As for `generate`.
            params: For all prompts.
            use_tqdm: Show a progress bar of prompts.
            concurrency_limit: Prompts that are searched at a time; None: all.

        Returns:
            For each prompt its best sequences, best first.

        Raises:
            InvalidRequestError: a prompt or the parameters cannot be used. Nothing is searched then.
            OctavoError: the engine failed.
        """
        if concurrency_limit is not None and concurrency_limit < 1:
            raise InvalidRequestError("concurrency_limit must be at least 1.", param="concurrency_limit")
        engine = self.llm_engine
        listed: list[Prompt] = as_list(prompts)
        searches = [open_beam_search(engine.config, engine.tokenizer, one, params) for one in listed]
        limit = concurrency_limit or max(1, len(searches))
        for start in _counted(range(0, len(searches), limit), use_tqdm):
            self._search(searches[start : start + limit])
        return [self._output(search) for search in searches]

    def _search(self, searches: Sequence[BeamSearch]) -> None:
        while running := [search for search in searches if not search.finished]:
            beams = [(search, beam) for search in running for beam in search.live]
            answers = self.generate(
                [{"prompt_token_ids": beam.tokens} for _, beam in beams],
                [search.step_params for search, _ in beams],
                use_tqdm=False,
            )
            for answer in answers:
                if answer.error is not None:
                    raise OctavoError(answer.error)
            steps = iter(answer.outputs[0] for answer in answers)
            for search in running:
                search.advance([next(steps) for _ in search.live])

    def _output(self, search: BeamSearch) -> BeamSearchOutput:
        sequences, tokenizer = search.best(), self.llm_engine.tokenizer
        if tokenizer is not None:
            for sequence in sequences:
                sequence.text = tokenizer.decode(sequence.tokens)
        return BeamSearchOutput(sequences)


def _counted(starts: range, shown: bool) -> Sequence[int]:
    if not shown:
        return starts
    from tqdm import tqdm

    bar: Sequence[int] = tqdm(starts, desc="Beam search", dynamic_ncols=True)
    return bar
