"""Every planted fault of a training engine; run them on ``rl_testing.fakes.engine_sections.TinyEngineContract``."""

from __future__ import annotations

from rl_testing.faults import engine_numbers, engine_states, engine_weights
from rl_testing.faults.fault import Fault

FAULTS: dict[str, Fault] = {
    fault.name: fault for fault in (*engine_numbers.FAULTS, *engine_weights.FAULTS, *engine_states.FAULTS)
}
"""By name."""
