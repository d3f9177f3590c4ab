"""The engine's loop as a plain object: schedule → run → commit, one step at a time.

No process, no clock and no I/O: whoever owns it calls `step` and carries the outputs away.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from backends.llm.errors import DeviceLost
from backends.llm.grammar.spec import Grammar, GrammarSpec
from backends.llm.runner import Runner
from backends.llm.sampling.sampler import ForwardResult, SamplingRow
from backends.llm.tokens.tokeniser import Tokeniser
from schedulers.llm.engine.running_request import RunningRequest
from schedulers.llm.generation import Finish, GenerateRequest, GenerationOutput
from schedulers.llm.policy.scheduler import SchedulerCounts, SequenceScheduler
from schedulers.llm.policy.step import Chunk

Compile = Callable[[GrammarSpec], "Future[Grammar]"]
"""Begin to compile a grammar elsewhere, and return at once."""
Computed = Sequence[tuple[Chunk, ForwardResult]]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """How tokens read: the tokeniser, how many the model knows, and which end an answer."""

    tokeniser: Tokeniser
    size: int
    end_ids: tuple[int, ...] = ()


class Engine:
    """Requests from `submit` to the Output that has a `finish`; used by one thread."""

    def __init__(
        self,
        scheduler: SequenceScheduler,
        runner: Runner,
        vocabulary: Vocabulary,
        compile: Compile | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._vocabulary = vocabulary
        self._compile = compile
        self._compiling: dict[str, Future[Grammar]] = {}
        self._answers: dict[str, RunningRequest] = {}
        self._started: list[str] = []
        self._given_back = 0
        self.steps = 0

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to compute, or a compiled grammar to take in."""
        return self._scheduler.busy or any(one.done() for one in self._compiling.values())

    @property
    def compiling(self) -> bool:
        """Whether requests wait for their grammars; `step` looks after their deadlines."""
        return bool(self._compiling)

    def take_started(self) -> tuple[str, ...]:
        """The requests that were computed for the first time since this was last asked."""
        started, self._started = tuple(self._started), []
        return started

    def counts(self) -> SchedulerCounts:
        return self._scheduler.counts()

    def forget_cached(self) -> int:
        """Drop the prefix cache; how many blocks that were."""
        return self._scheduler.forget_cached()

    def shrink(self, blocks: int) -> int:
        """Give the memory of about so many blocks back that hold nothing or are only cached, and
        do without them until `grow`; bytes that went, which is what whole pages there were. None
        go, and nothing changes, where the device cannot give them back."""
        if not self._runner.gives_back:
            return 0
        return self._give_back(self._scheduler.withdraw(blocks))

    def grow(self, blocks: int) -> int:
        """Use at most so many of the blocks again that were given back; their bytes."""
        return -self._give_back(self._scheduler.restore(blocks))

    def _give_back(self, withdrawn: Sequence[int]) -> int:
        """Bytes by which what these blocks give back is more than what was given back before."""
        before, self._given_back = self._given_back, self._runner.discard(withdrawn)
        return self._given_back - before

    def submit(self, request: GenerateRequest, now_s: float) -> None:
        """Take a request in; a certain Output with a `finish` will end it.

        Raises ValueError (a field is senseless), PromptTooLong or TooMuchWaiting; then it is still
        the caller's.
        """
        self._refuse_unknown_tokens(request)
        answer = RunningRequest(request, self._vocabulary.tokeniser, self._vocabulary.end_ids)
        if request.grammar is not None and self._compile is None:
            raise ValueError("grammar is set, but this engine follows no grammars")
        held = request.grammar is not None
        self._scheduler.submit(request, now_s, held=held, stop_ids=answer.stop_ids)
        self._answers[request.id] = answer
        if request.grammar is not None and self._compile is not None:
            self._compiling[request.id] = self._compile(request.grammar)

    def cancel(self, id: str) -> bool:
        """Forget a request and free its blocks at once; no Output comes. False if it is over."""
        self._answers.pop(id, None)
        if (compiling := self._compiling.pop(id, None)) is not None:
            compiling.cancel()
        return self._scheduler.finish(id)

    def step(self, now_s: float) -> list[GenerationOutput]:
        """Compute one step. What fails ends the requests concerned, and is not raised, unless it
        is the device: DeviceLost ends the process, and the next one is asked again."""
        outputs = self._take_grammars()
        step = self._scheduler.schedule(now_s)
        outputs += [self._end(one.id, one.reason, one.message) for one in step.ended]
        chunks, rows = self._sampling_rows(step.chunks, outputs)
        if not chunks:
            return outputs
        try:
            results = self._runner.run(chunks, rows)
        except DeviceLost:
            raise
        except Exception as error:  # noqa: BLE001 (every request of the step gets it)
            message = f"the model could not compute: {error}"
            return outputs + [self._end(chunk.id, Finish.FAILED, message) for chunk in chunks]
        self.steps += 1
        computed = [*zip(chunks, results, strict=True)]
        for chunk, result in computed:
            if chunk.samples and result.token is None:
                message = "the model's logits are not numbers"
                self._runner.clear(self._scheduler.discard(chunk.id))
                outputs.append(self._end(chunk.id, Finish.FAILED, message))
        self._report(computed, self._scheduler.commit(step, _tokens(computed)), outputs)
        return outputs

    def took(self, seconds: float) -> None:
        """The last step took so long; the next ones are planned by that."""
        self._scheduler.took(seconds)

    def _take_grammars(self) -> list[GenerationOutput]:
        """Let those go whose grammars have been compiled; the ends of those whose cannot be."""
        ended = []
        for id in [id for id, future in self._compiling.items() if future.done()]:
            future = self._compiling.pop(id)
            error = future.exception()
            if error is None:
                self._answers[id].grammar = future.result()
                self._scheduler.let_go(id)
            else:
                ended.append(self._end(id, Finish.INVALID, str(error)))
        return ended

    def _sampling_rows(
        self, planned: Sequence[Chunk], outputs: list[GenerationOutput]
    ) -> tuple[list[Chunk], list[SamplingRow | None]]:
        """The chunks to compute, and how their tokens are chosen; a request whose grammar fails is
        ended and left out."""
        chunks: list[Chunk] = []
        rows: list[SamplingRow | None] = []
        for chunk in planned:
            answer = self._answers[chunk.id]
            if not answer.begun:
                self._started.append(chunk.id)
            try:
                row = answer.sampling_row(chunk)
            except Exception as error:  # noqa: BLE001 (a grammar may raise anything)
                outputs.append(self._end(chunk.id, Finish.FAILED, f"the grammar failed: {error}"))
                continue
            chunks.append(chunk)
            rows.append(row)
        return chunks, rows

    def _report(
        self,
        computed: Computed,
        finishes: Mapping[str, Finish | None],
        outputs: list[GenerationOutput],
    ) -> None:
        for chunk, result in computed:
            answer = self._answers.get(chunk.id)
            if answer is None:
                continue
            try:
                output = answer.record(chunk, result, finishes)
            except Exception as error:  # noqa: BLE001 (a grammar may raise anything)
                outputs.append(self._end(chunk.id, Finish.FAILED, f"the answer failed: {error}"))
                continue
            if output is not None:
                outputs.append(output)
                if output.finish is not None:
                    self.cancel(chunk.id)

    def _end(self, id: str, finish: Finish, message: str) -> GenerationOutput:
        output = self._answers[id].ended(finish, message)
        self.cancel(id)
        return output

    def _refuse_unknown_tokens(self, request: GenerateRequest) -> None:
        biased = [token for token, _ in request.sampling.logit_bias]
        size = self._vocabulary.size
        for name, tokens in (
            ("prompt", request.prompt),
            ("stop_ids", request.stop_ids),
            ("logit_bias", biased),
        ):
            for token in tokens:
                if not 0 <= token < size:
                    raise ValueError(
                        f"{name} has the token {token}; the model's tokens are 0 to {size - 1}"
                    )


def _tokens(computed: Computed) -> dict[str, int]:
    return {chunk.id: result.token for chunk, result in computed if result.token is not None}
