"""The suite for agent loops.

::

    class TestMyLoop(AgentLoopContract):
        loop_class = MyLoop
        options = {"url": ...}

        def make_row(self, session):
            return {"raw_prompt": ..., "env_id": ...}
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from rl_core.contracts.agent_loop import AgentLoop, AgentLoopOutput
from rl_core.contracts.rollout import RolloutOutput, SamplingParams

from rl_testing.contracts.suite import ContractSuite
from rl_testing.fakes.agent_loop import ScriptedClient
from rl_testing.fakes.tokenizer import TinyTokenizer


class AgentLoopContract(ContractSuite):
    """Override ``loop_class`` and ``make_row``; the rest where the loop is different."""

    loop_class: type[AgentLoop]

    options: Mapping[str, Any] = {}
    """Further keys of the loop's entry in ``agent_loop_config_path``."""

    sampling = SamplingParams(temperature=0.7, max_tokens=200)
    """How turns are drawn; ``max_tokens`` is the budget of the trajectory."""

    appends_only = True
    """False for a loop that rewrites its history (summaries, retries) and returns several trajectories."""

    timeout_s = 20.0
    """How long a session may take."""

    def make_row(self, session: str) -> dict[str, Any]:
        """Columns of a row that the loop can play with scripted answers of a few letters."""
        return {"raw_prompt": [{"role": "user", "content": f"say it, {session}"}]}

    def make_client(self, **changes: Any) -> ScriptedClient:
        """The client; override to script answers that the loop understands (tool calls, say)."""
        return ScriptedClient(**changes)

    def make_loop(self, client: ScriptedClient) -> AgentLoop:
        """A loop for one session."""
        config = SimpleNamespace(response_length=self.sampling.max_tokens, multi_turn=SimpleNamespace(enable=True))
        return self.loop_class(client, TinyTokenizer(), config, **self.options)

    async def play(
        self, client: ScriptedClient, session: str = "s", *, validate: bool = False, **sampling: Any
    ) -> list[AgentLoopOutput]:
        """One session, as its trajectories."""
        row = self.make_row(session) | {"uid": f"uid-{session}", "session": session, "step": 1, "validate": validate}
        run = self.make_loop(client).run(replace(self.sampling, **sampling), **row)
        result = await asyncio.wait_for(run, self.timeout_s)
        return result if isinstance(result, list) else [result]

    def played(self, client: ScriptedClient, **options: Any) -> list[AgentLoopOutput]:
        """``play`` to the end."""
        outputs = asyncio.run(self.play(client, **options))
        assert outputs, "a session ends in at least one trajectory, or raises"
        return outputs

    def test_everything_per_token_is_as_long_as_the_response(self) -> None:
        """Mask, log-probs and extras have one entry for each response token.

        If this fails: tool results or chat glue were added to the ids and forgotten in the mask (or the other way round);
        training would shift every later token.
        """
        for output in self.played(self.make_client()):
            length = len(output.response_ids)
            assert output.prompt_ids
            assert length > 0
            assert len(output.response_mask) == length
            assert set(output.response_mask) <= {0, 1}
            assert output.response_logprobs is None or len(output.response_logprobs) == length
            assert {len(values) for values in output.extras.values()} <= {length}
            assert output.num_turns >= 1

    def test_the_mask_marks_what_the_policy_emitted(self) -> None:
        """Tokens under mask 1 are the sampled tokens, all of them, in order and unchanged.

        If this fails: text was decoded and tokenised again, an end-of-turn token was dropped, or a tool's words are
        trained on.
        """
        client = self.make_client()
        outputs = self.played(client)
        for output in outputs:
            emitted = _where_mask(output, output.response_ids)
            assert emitted
            assert _is_made_of(emitted, [answer.token_ids for answer in client.answers])
        if self.appends_only:
            assert len(outputs) == 1
            assert _where_mask(outputs[0], outputs[0].response_ids) == _chain(client.answers, "token_ids")

    def test_log_probs_stand_where_the_mask_is_one(self) -> None:
        """Sampled tokens have the client's log-probs; all others have 0.0.

        If this fails: log-probs of a turn were attached to other tokens, or tool results have some.
        """
        client = self.make_client()
        for output in self.played(client):
            assert output.response_logprobs is not None
            known = [answer.log_probs for answer in client.answers if answer.log_probs is not None]
            assert _is_made_of(_where_mask(output, output.response_logprobs), known)
            rest = [
                value for value, mask in zip(output.response_logprobs, output.response_mask, strict=True) if not mask
            ]
            assert rest == [0.0] * len(rest)

    def test_an_engine_without_log_probs_is_fine(self) -> None:
        """Without log-probs of the engine the trajectory has none.

        If this fails: None is replaced by zeros, which looks like certainty.
        """
        for output in self.played(self.make_client(with_log_probs=False)):
            assert output.response_logprobs is None

    def test_versions_add_up(self) -> None:
        """Version spans count the policy's tokens, no more and no less, in order.

        If this fails: spans of later turns are lost, or tool tokens are counted; staleness would be wrong.
        """
        client = self.make_client()
        for output in self.played(client):
            assert sum(count for _, count in output.versions) == sum(output.response_mask)
            versions = [version for version, count in output.versions for _ in range(count)]
            known = [[version for version, count in answer.versions for _ in range(count)] for answer in client.answers]
            assert _is_made_of(versions, known)

    def test_the_history_only_grows(self) -> None:
        """Each turn is asked with everything before it, id for id.

        If this fails: history is rendered anew and differs from what was sampled, so later turns are trained in a context
        that never was (and the engine's prefix cache is of no use). Set ``appends_only`` to False if that is meant.
        """
        client = self.make_client()
        outputs = self.played(client)
        if self.appends_only:
            for (before, after), answer in zip(pairwise(client.calls), client.answers, strict=False):
                expected = (*before.prompt_ids, *answer.token_ids)
                assert after.prompt_ids[: len(expected)] == expected
            last = (*client.calls[-1].prompt_ids, *client.answers[-1].token_ids)
            everything = (*outputs[0].prompt_ids, *outputs[0].response_ids)
            assert everything[: len(last)] == last
        assert outputs[0].prompt_ids == client.calls[0].prompt_ids

    def test_turns_are_numbered(self) -> None:
        """Every call of a session has a turn of its own, counted from 0.

        If this fails: two turns of a session share a seed, and the policy repeats itself.
        """
        client = self.make_client()
        self.played(client, session="numbered")
        assert {call.session for call in client.calls} == {"numbered"}
        assert [call.turn for call in client.calls] == list(range(len(client.calls)))

    @pytest.mark.parametrize("validate", [False, True])
    def test_sampling_is_as_asked(self, validate: bool) -> None:
        """Every turn is drawn as the caller says, in validation too; only the length limit may shrink.

        If this fails: the loop has sampling parameters of its own, so validation is not greedy, or training is.
        """
        client = self.make_client()
        self.played(client, validate=validate, temperature=0.0 if validate else 0.7, top_p=0.9)
        assert client.calls
        for call in client.calls:
            assert call.sampling.temperature == (0.0 if validate else 0.7)
            assert call.sampling.top_p == 0.9
            assert 1 <= call.sampling.max_tokens <= self.sampling.max_tokens

    @pytest.mark.parametrize("budget", [1, 2, 5, 40])
    def test_the_budget_holds_for_the_trajectory(self, budget: int) -> None:
        """A response, tool results included, never has more tokens than ``max_tokens``.

        If this fails: each turn gets the whole budget, or a tool result overflows it.
        """
        for output in self.played(self.make_client(), max_tokens=budget):
            assert 1 <= len(output.response_ids) <= budget

    def test_sessions_do_not_mix(self) -> None:
        """Sessions that run in one event loop end as they would alone.

        If this fails: instances share state (a class attribute, a module's list).
        """
        names = [f"s{number}" for number in range(6)]

        async def together() -> list[Any]:
            return await asyncio.gather(*(self.play(client, name) for name, client in clients.items()))

        clients = {name: self.make_client() for name in names}
        outputs = asyncio.run(together())
        assert outputs == [self.played(self.make_client(), session=name) for name in names]

    def test_a_failure_stays_in_its_session(self) -> None:
        """An error of the engine is raised by its own session alone.

        If this fails: the error is swallowed and an empty or partial trajectory is trained on, or it takes others along.
        """
        client = self.make_client(broken_sessions=frozenset({"broken"}))

        async def together() -> list[Any]:
            names = ("fine", "broken", "well")
            return await asyncio.gather(*(self.play(client, name) for name in names), return_exceptions=True)

        fine, broken, well = asyncio.run(together())
        assert isinstance(broken, Exception)
        assert "broken" in f"{broken} {broken.__cause__}"
        for outputs in (fine, well):
            assert isinstance(outputs, list)
            assert all(isinstance(output, AgentLoopOutput) for output in outputs)


def _where_mask(output: AgentLoopOutput, values: Any) -> list[Any]:
    return [value for value, mask in zip(values, output.response_mask, strict=True) if mask]


def _chain(answers: list[RolloutOutput], field: str) -> list[Any]:
    return [value for answer in answers for value in getattr(answer, field)]


def _is_made_of(values: list[Any], pieces: list[Any]) -> bool:
    """Whether ``values`` is some of ``pieces`` one after the other, in their order."""
    if not values:
        return True
    for number, piece in enumerate(pieces):
        head = list(piece)
        if values[: len(head)] == head and head and _is_made_of(values[len(head) :], pieces[number + 1 :]):
            return True
    return False
