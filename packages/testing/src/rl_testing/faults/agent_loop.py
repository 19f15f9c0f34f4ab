"""Agent loops that break one promise each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from rl_core.contracts.agent_loop import AgentLoopOutput
from rl_core.contracts.rollout import RolloutOutput, SamplingParams

from rl_testing.fakes.agent_loop import EchoTwoTurnLoop
from rl_testing.faults.fault import Fault

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102


class _ChangesOutput(EchoTwoTurnLoop):
    async def run(self, sampling_params: SamplingParams, **row: Any) -> AgentLoopOutput:
        return self.changed(await super().run(sampling_params, **row))

    def changed(self, output: AgentLoopOutput) -> AgentLoopOutput:
        raise NotImplementedError


class MaskTooShort(_ChangesOutput):
    """Masks the policy's tokens and forgets the tool's."""

    def changed(self, output: AgentLoopOutput) -> AgentLoopOutput:
        return replace(output, response_mask=tuple(mask for mask in output.response_mask if mask))


class ToolTokensTrained(_ChangesOutput):
    """Trains on everything."""

    def changed(self, output: AgentLoopOutput) -> AgentLoopOutput:
        return replace(output, response_mask=(1,) * len(output.response_ids))


class LogProbsShifted(_ChangesOutput):
    """Attaches each log-prob to the token before."""

    def changed(self, output: AgentLoopOutput) -> AgentLoopOutput:
        values = output.response_logprobs
        return output if values is None else replace(output, response_logprobs=(*values[1:], values[0]))


class ToolTokensHaveLogProbs(_ChangesOutput):
    """Fills up with a small log-prob instead of 0."""

    def changed(self, output: AgentLoopOutput) -> AgentLoopOutput:
        values = output.response_logprobs
        return output if values is None else replace(output, response_logprobs=tuple(v or -1e-3 for v in values))


class NoLogProbsAreZeros(_ChangesOutput):
    """Invents certainty for an engine without log-probs."""

    def changed(self, output: AgentLoopOutput) -> AgentLoopOutput:
        values = output.response_logprobs
        return replace(output, response_logprobs=(0.0,) * len(output.response_ids)) if values is None else output


class FirstTurnVersionsOnly(_ChangesOutput):
    """Reports the versions of the first turn."""

    def changed(self, output: AgentLoopOutput) -> AgentLoopOutput:
        return replace(output, versions=output.versions[:1])


class HistoryRenderedAnew(EchoTwoTurnLoop):
    """Decodes and encodes what was sampled before it asks again."""

    async def _turn(
        self, row: dict[str, Any], prompt_ids: tuple[int, ...], sampling: SamplingParams, turn: int
    ) -> RolloutOutput:
        text = self.tokenizer.decode(prompt_ids)
        if turn:
            text = text.replace("user:", "user: ")
        return await super()._turn(row, tuple(self.tokenizer.encode(text)), sampling, turn)


class TurnsNotNumbered(EchoTwoTurnLoop):
    """Calls every turn the first."""

    async def _turn(
        self, row: dict[str, Any], prompt_ids: tuple[int, ...], sampling: SamplingParams, turn: int
    ) -> RolloutOutput:
        return await super()._turn(row, prompt_ids, sampling, 0)


class OwnSampling(EchoTwoTurnLoop):
    """Samples at temperature 1 whatever is asked, in validation too."""

    async def run(self, sampling_params: SamplingParams, **row: Any) -> AgentLoopOutput:
        return await super().run(replace(sampling_params, temperature=1.0), **row)


class BudgetOfEachTurn(EchoTwoTurnLoop):
    """Gives every turn the whole budget."""

    async def run(self, sampling_params: SamplingParams, **row: Any) -> AgentLoopOutput:
        return await super().run(replace(sampling_params, max_tokens=sampling_params.max_tokens + 200), **row)


class SharedState(EchoTwoTurnLoop):
    """Keeps the conversation in the class."""

    prompts: ClassVar[list[tuple[int, ...]]] = []

    async def _turn(
        self, row: dict[str, Any], prompt_ids: tuple[int, ...], sampling: SamplingParams, turn: int
    ) -> RolloutOutput:
        if turn == 0:
            self.prompts.append(prompt_ids)
        return await super()._turn(row, prompt_ids, sampling, turn)

    def _output(self, row: dict[str, Any], prompt_ids: Any, turns: Any, glue: Any) -> AgentLoopOutput:
        return super()._output(row, self.prompts[-1], turns, glue)


class FailureSwallowed(EchoTwoTurnLoop):
    """Returns an empty trajectory when the engine fails."""

    async def run(self, sampling_params: SamplingParams, **row: Any) -> AgentLoopOutput:
        try:
            return await super().run(sampling_params, **row)
        except ConnectionError:
            return AgentLoopOutput(prompt_ids=(2,), response_ids=(), response_mask=())


def _fault(name: str, promise: str, caught_by: str, loop: type[EchoTwoTurnLoop]) -> Fault:
    return Fault(name=name, promise=promise, caught_by=caught_by, overrides={"loop_class": loop})


FAULTS = (
    _fault(
        "mask-too-short",
        "mask and response have one length",
        "test_everything_per_token_is_as_long_as_the_response",
        MaskTooShort,
    ),
    _fault(
        "tool-tokens-trained",
        "mask 1 marks what the policy emitted",
        "test_the_mask_marks_what_the_policy_emitted",
        ToolTokensTrained,
    ),
    _fault(
        "log-probs-shifted",
        "sampled tokens have their log-probs",
        "test_log_probs_stand_where_the_mask_is_one",
        LogProbsShifted,
    ),
    _fault(
        "tool-tokens-have-log-probs",
        "other tokens have log-prob 0.0",
        "test_log_probs_stand_where_the_mask_is_one",
        ToolTokensHaveLogProbs,
    ),
    _fault(
        "no-log-probs-are-zeros",
        "no log-probs stay none",
        "test_an_engine_without_log_probs_is_fine",
        NoLogProbsAreZeros,
    ),
    _fault("first-turn-versions-only", "versions add up", "test_versions_add_up", FirstTurnVersionsOnly),
    _fault("history-rendered-anew", "the history only grows", "test_the_history_only_grows", HistoryRenderedAnew),
    _fault("turns-not-numbered", "turns are numbered", "test_turns_are_numbered", TurnsNotNumbered),
    _fault("own-sampling", "sampling is as asked, in validation too", "test_sampling_is_as_asked", OwnSampling),
    _fault(
        "budget-of-each-turn",
        "the budget holds for the trajectory",
        "test_the_budget_holds_for_the_trajectory",
        BudgetOfEachTurn,
    ),
    _fault("shared-state", "sessions do not mix", "test_sessions_do_not_mix", SharedState),
    _fault("failure-swallowed", "a failure is raised", "test_a_failure_stays_in_its_session", FailureSwallowed),
)
"""Faults of agent loops."""
