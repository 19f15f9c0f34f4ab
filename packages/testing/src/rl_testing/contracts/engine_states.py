"""The part of the engine suite about what an engine holds: lifetime, offloading, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_core.contracts.engine import EngineRole, EngineState
from rl_core.errors import CheckpointError, RlError
from rl_dataproto import DataProto
from torch import Tensor

from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import Row, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import ADAM, EngineSuite, same_bits

ALL_STATES = frozenset(EngineState)
RESUMED = replace(ADAM, lr_scheduler_type="cosine", lr_warmup_steps=1, min_lr_ratio=0.1)


class StatesContract(EngineSuite):
    """What an engine holds survives moves and restarts."""

    def test_use_outside_its_life_is_refused(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """Before ``initialize`` and after ``close`` every use is an ``RlError``; ``close`` is fine at any time.

        If this fails: the engine allocates in its constructor, fails with an error that names no cause, or keeps
        serving after its memory was given back.
        """
        ranks = self.build(world_size)
        uses: list[tuple[Any, dict[str, Any]]] = [
            (calls.forward, {"batch": batch, "outputs": frozenset({"log_probs"})}),
            (calls.accumulate, {"batch": batch, "loss_fn": PolicyLoss(num_tokens(rows))}),
            (calls.step, {}),
            (calls.stream, {}),
        ]
        for call, arguments in uses:
            for outcome in self.refusals(ranks, call, **arguments):
                assert isinstance(outcome, RlError), f"{call.__name__} before initialize gave {outcome!r}"
        assert self.ask(ranks, calls.resident) == [frozenset()] * world_size
        self.ask(ranks, calls.close)
        used = self.start(world_size)
        self.ask(used, calls.close)
        for call, arguments in uses:
            for outcome in self.refusals(used, call, **arguments):
                assert isinstance(outcome, RlError), f"{call.__name__} after close gave {outcome!r}"

    def test_states_leave_and_come_back(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """Each state can leave alone; ``resident`` and the device's memory say so; doing it twice changes nothing.

        If this fails: ``resident`` is a flag while the tensors stay, or states move that were not named.
        """
        ranks = self.start(world_size, optim=ADAM)
        self.ask(ranks, calls.train, batches=[batch], loss_fn=PolicyLoss(num_tokens(rows)))
        self.ask(ranks, calls.accumulate, batch=batch, loss_fn=PolicyLoss(num_tokens(rows)))
        assert self.ask(ranks, calls.resident) == [ALL_STATES] * world_size
        full = self._bytes(ranks)
        left = set(ALL_STATES)
        for state in (EngineState.OPTIMIZER, EngineState.GRADIENTS, EngineState.PARAMETERS):
            before = self._bytes(ranks)
            left.discard(state)
            for _ in range(2):
                assert self.ask(ranks, calls.offload, states=frozenset({state})) == [frozenset(left)] * world_size
            assert all(now < then for now, then in zip(self._bytes(ranks), before, strict=True)), state
        for state in EngineState:
            left.add(state)
            for _ in range(2):
                assert self.ask(ranks, calls.onload, states=frozenset({state})) == [frozenset(left)] * world_size
        assert self._bytes(ranks) == full

    def _bytes(self, ranks: Any) -> Sequence[int]:
        """Device bytes of each rank; empty where nobody can tell, so that comparisons hold."""
        found = self.ask(ranks, calls.measure, probe=self.device_bytes)
        return [size for size in found if size is not None]

    def test_offloading_keeps_every_value(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """Weights, accumulated gradients and optimizer state are, bit for bit, what they were.

        If this fails: a state is rebuilt instead of moved (an optimizer that starts anew), or rounded on its way.
        """
        loss_fn = PolicyLoss(num_tokens(rows))
        weights: list[dict[str, Tensor]] = []
        for moves in (False, True):
            ranks = self.start(world_size, optim=ADAM)
            for _ in range(2):
                self.ask(ranks, calls.train, batches=[batch], loss_fn=loss_fn)
                self._round_trip(ranks, moves)
                self.ask(ranks, calls.accumulate, batch=batch, loss_fn=loss_fn)
                self._round_trip(ranks, moves)
                self.ask(ranks, calls.step)
            weights.append(self.weights(ranks))
        assert same_bits(weights[1], weights[0]) == []

    def _round_trip(self, ranks: Any, moves: bool) -> None:
        if moves:
            self.ask(ranks, calls.offload, states=ALL_STATES)
            self.ask(ranks, calls.onload, states=ALL_STATES)

    def test_what_is_offloaded_cannot_be_used(self, world_size: int, batch: DataProto, rows: list[Row]) -> None:
        """Computing without parameters, and stepping without optimizer state, are errors that name the state.

        If this fails: the engine computes with stale or empty tensors, or brings states back by itself, so that the
        phase table is wrong about the device.
        """
        ranks = self.start(world_size, optim=ADAM)
        self.ask(ranks, calls.offload, states=frozenset({EngineState.OPTIMIZER}))
        for outcome in self.refusals(ranks, calls.step):
            assert isinstance(outcome, RlError), outcome
            assert "optimizer" in str(outcome)
        self.ask(ranks, calls.offload, states=frozenset({EngineState.PARAMETERS}))
        for call, arguments in (
            (calls.forward, {"batch": batch, "outputs": frozenset({"log_probs"})}),
            (calls.accumulate, {"batch": batch, "loss_fn": PolicyLoss(num_tokens(rows))}),
            (calls.stream, {}),
        ):
            for outcome in self.refusals(ranks, call, **arguments):
                assert isinstance(outcome, RlError), f"{call.__name__} gave {outcome!r}"
                assert "parameters" in str(outcome)

    def test_resume_is_exact(self, world_size: int, rows: list[Row], batch: DataProto, tmp_path: Path) -> None:
        """Two updates, a checkpoint, and two more in fresh engines give the bits of four updates straight.

        If this fails: optimizer state, the schedule's position or the random state are not saved, not loaded, or
        loaded and then overwritten.
        """
        sections = {"plain": self.plugin_section()}
        if self.random_section() is not None:
            sections["random"] = self.random_section()
        for name, section in sections.items():
            options = {"optim": RESUMED, "total_training_steps": 4, "plugin": section}
            loss_fn = PolicyLoss(num_tokens(rows))
            straight = self.start(world_size, **options)
            first = self.ask(straight, calls.train, batches=[batch] * 2, loss_fn=loss_fn)
            self.ask(straight, calls.save, directory=tmp_path / name)
            expected = self.ask(straight, calls.train, batches=[batch] * 2, loss_fn=loss_fn)
            resumed = self.start(world_size, **options)
            self.ask(resumed, calls.load, directory=tmp_path / name)
            found = self.ask(resumed, calls.train, batches=[batch] * 2, loss_fn=loss_fn)
            assert found == expected
            assert first != expected
            assert same_bits(self.weights(resumed), self.weights(straight)) == []

    def test_a_checkpoint_fits_any_number_of_ranks(self, rows: list[Row], batch: DataProto, tmp_path: Path) -> None:
        """What one world size saved, every other goes on with, within rounding.

        If this fails: files hold shards whose number is that of the ranks, or optimizer state is cut differently than
        the weights it belongs to.
        """
        options = {"optim": RESUMED, "total_training_steps": 4}
        loss_fn = PolicyLoss(num_tokens(rows))
        for tied in [False, True] if self.supports_tied_weights else [False]:
            model = self.model_section(tied=tied)
            for saving in self.world_sizes:
                saved = self.start(saving, model=model, **options)
                self.ask(saved, calls.train, batches=[batch] * 2, loss_fn=loss_fn)
                directory = tmp_path / f"{tied}_{saving}"
                self.ask(saved, calls.save, directory=directory)
                expected = self.ask(saved, calls.train, batches=[batch], loss_fn=loss_fn)[0][0]
                for loading in self.world_sizes:
                    resumed = self.start(loading, model=model, **options)
                    self.ask(resumed, calls.load, directory=directory)
                    (found,) = self.ask(resumed, calls.train, batches=[batch], loss_fn=loss_fn)[0]
                    self.assert_close(found.result.grad_norm, expected.result.grad_norm, "grad_norm")
                    assert found.result.learning_rate == expected.result.learning_rate
                    self.assert_close(self.weights(resumed), self.weights(saved), f"{saving} ranks to {loading}")

    def test_a_foreign_checkpoint_is_refused(self, world_size: int, tmp_path: Path) -> None:
        """Files of another model, or none, are a ``CheckpointError``; the engine stays as it was.

        If this fails: tensors are loaded by whatever names fit, or some are overwritten before the check.
        """
        other = self.start(world_size, model=self.model_section(other=True))
        self.ask(other, calls.save, directory=tmp_path / "other")
        ranks = self.start(world_size)
        before = self.weights(ranks)
        for directory in (tmp_path / "other", tmp_path / "nothing"):
            for outcome in self.refusals(ranks, calls.load, directory=directory):
                assert isinstance(outcome, CheckpointError), f"loading {directory.name} gave {outcome!r}"
        assert same_bits(self.weights(ranks), before) == []

    def test_roles_share_the_trunk(self, world_size: int) -> None:
        """Policy and reference start from equal weights; so do those of a value model that both have.

        If this fails: initialisation draws from a generator that other engines advance, or depends on the rank.
        """
        weights = self.weights(self.start(world_size))
        assert same_bits(self.weights(self.start(world_size, role=EngineRole.REFERENCE, optim=None)), weights) == []
        assert same_bits(self.weights(self.start(self.world_sizes[0])), weights) == []
        if self.supports_value_role:
            value = self.weights(self.start(world_size, role=EngineRole.VALUE))
            shared = set(value) & set(weights)
            assert shared
            assert same_bits({n: value[n] for n in shared}, {n: weights[n] for n in shared}) == []
