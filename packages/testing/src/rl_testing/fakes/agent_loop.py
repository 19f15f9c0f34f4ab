"""A conversation of two turns, and a client that needs no engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rl_core.contracts.agent_loop import AgentLoop, AgentLoopOutput
from rl_core.contracts.rollout import RolloutOutput, SamplingParams


@dataclass(frozen=True, slots=True)
class ClientCall:
    """What a loop asked for."""

    session: str
    turn: int
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams


@dataclass
class ScriptedClient:
    """Answers from a script; remembers what was asked, and what it answered.

    Turn t of any session is answered with ``turns[t]`` (the last one from there on), cut to ``max_tokens``, its k-th token
    with the log-prob ``-(t + 1) - k / 100`` and policy version ``t // 2``.
    """

    turns: Sequence[tuple[int, ...]] = ((4, 5, 6), (7, 8), (9,))
    broken_sessions: frozenset[str] = frozenset()
    with_log_probs: bool = True
    calls: list[ClientCall] = field(default_factory=list)
    answers: list[RolloutOutput] = field(default_factory=list)

    async def generate(
        self, *, session: str, prompt_ids: tuple[int, ...], sampling: SamplingParams, turn: int
    ) -> RolloutOutput:
        """See ``RolloutClient.generate``.

        Raises:
            ConnectionError: the session is one of ``broken_sessions``.
        """
        self.calls.append(ClientCall(session, turn, tuple(prompt_ids), sampling))
        await asyncio.sleep(0)  # other sessions get their turn
        if session in self.broken_sessions:
            msg = f"the replica of session {session} is gone"
            raise ConnectionError(msg)
        script = self.turns[min(turn, len(self.turns) - 1)]
        token_ids = script[: sampling.max_tokens]
        output = RolloutOutput(
            request_id=f"{session}/{turn}",
            token_ids=token_ids,
            log_probs=tuple(-(turn + 1) - place / 100 for place in range(len(token_ids)))
            if self.with_log_probs
            else None,
            finish_reason="stop" if len(token_ids) == len(script) else "length",
            versions=((turn // 2, len(token_ids)),),
        )
        self.answers.append(output)
        return output


class EchoTwoTurnLoop(AgentLoop):
    """Asks, answers with what the policy said, asks again.

    ``max_tokens`` is the budget of the whole trajectory: the second turn is left out when the first and the tool's words
    leave no room. Ids are only ever appended, so every token that was sampled is trained on as it was sampled.
    """

    async def run(self, sampling_params: SamplingParams, **row: Any) -> AgentLoopOutput:
        """See ``AgentLoop.run``; uses the columns ``raw_prompt`` and ``session``."""
        prompt_ids = self._prompt_ids(row["raw_prompt"])
        first = await self._turn(row, prompt_ids, sampling_params, turn=0)
        glue = self._tool_ids(first)
        room = sampling_params.max_tokens - len(first.token_ids) - len(glue)
        if room < 1 or first.finish_reason != "stop":
            return self._output(row, prompt_ids, [first], ())
        second = await self._turn(
            row, (*prompt_ids, *first.token_ids, *glue), replace(sampling_params, max_tokens=room), turn=1
        )
        return self._output(row, prompt_ids, [first, second], glue)

    def _prompt_ids(self, raw_prompt: Any) -> tuple[int, ...]:
        if isinstance(raw_prompt, str):
            return tuple(self.tokenizer.encode(raw_prompt))
        return tuple(self.tokenizer.apply_chat_template(list(raw_prompt), tokenize=True, add_generation_prompt=True))

    async def _turn(
        self, row: dict[str, Any], prompt_ids: tuple[int, ...], sampling: SamplingParams, turn: int
    ) -> RolloutOutput:
        return await self.client.generate(session=row["session"], prompt_ids=prompt_ids, sampling=sampling, turn=turn)

    def _tool_ids(self, first: RolloutOutput) -> tuple[int, ...]:
        said = self.tokenizer.decode(first.token_ids, skip_special_tokens=True)
        return tuple(self.tokenizer.encode(f"\ntool:{said}\nassistant:"))

    def _output(
        self, row: dict[str, Any], prompt_ids: tuple[int, ...], turns: list[RolloutOutput], glue: tuple[int, ...]
    ) -> AgentLoopOutput:
        first, *rest = turns
        last = rest[0] if rest else None
        later_ids = () if last is None else (*glue, *last.token_ids)
        later_mask = () if last is None else (*(0 for _ in glue), *(1 for _ in last.token_ids))
        log_probs: tuple[float, ...] | None = None
        if all(turn.log_probs is not None for turn in turns):
            later = () if last is None else (*(0.0 for _ in glue), *(last.log_probs or ()))
            log_probs = (*(first.log_probs or ()), *later)
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=(*first.token_ids, *later_ids),
            response_mask=(*(1 for _ in first.token_ids), *later_mask),
            response_logprobs=log_probs,
            num_turns=1 if last is None else 3,
            versions=tuple(span for turn in turns for span in turn.versions),
            extra_fields={"validate": bool(row.get("validate", False))},
        )
