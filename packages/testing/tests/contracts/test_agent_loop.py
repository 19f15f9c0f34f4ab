from __future__ import annotations

from rl_testing.contracts.agent_loop import AgentLoopContract
from rl_testing.fakes.agent_loop import EchoTwoTurnLoop


class TestEchoTwoTurn(AgentLoopContract):
    loop_class = EchoTwoTurnLoop
