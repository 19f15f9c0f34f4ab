"""Contract suite of ``TrainingEngine``.

Subclass it in a test module of your package, and override what ``EngineSuite`` lists under "override these"::

    class TestMyEngine(TrainingEngineContract):
        engine_class = MyEngine
        vocab_size = 48

        def model_section(self, *, tied=False, other=False): ...
        def tensor_shapes(self, *, tied, role): ...
        def reference_logits(self, weights, ids): ...
        def reference_values(self, weights, ids): ...

A test says in its docstring what to look at when it fails. ``rl_testing.faults.engine`` holds the faults that this suite
was proved with.
"""

from __future__ import annotations

from rl_testing.contracts.engine_gradients import GradientsContract
from rl_testing.contracts.engine_outputs import OutputsContract
from rl_testing.contracts.engine_states import StatesContract
from rl_testing.contracts.engine_weights import WeightsContract


class TrainingEngineContract(OutputsContract, GradientsContract, WeightsContract, StatesContract):
    """Every promise of ``rl_core.contracts.engine.TrainingEngine``."""
