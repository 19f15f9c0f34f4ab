"""What lies on the device, and one step of it. Everything here runs on the engine's device thread."""

from __future__ import annotations

from collections.abc import Collection

import torch
from rl_core.contracts.rollout import RolloutState
from rl_core.errors import RlError
from transformers import PreTrainedConfig

from rl_rollout_hf.cache import RowCache
from rl_rollout_hf.device_weights import DeviceWeights
from rl_rollout_hf.in_flight import InFlight
from rl_rollout_hf.model import build_empty, require_arguments
from rl_rollout_hf.runner import Runner, fill_batches
from rl_rollout_hf.sampling import BatchSampling, as_rows, draw
from rl_rollout_hf.scheduler import Drawn, Plan
from rl_rollout_hf.settings import Settings, cache_budget
from rl_rollout_hf.weights import ModelWeights


class Device:
    """Model, weights and cache of one engine."""

    def __init__(
        self,
        config: PreTrainedConfig,
        settings: Settings,
        dtype: torch.dtype,
        device: torch.device,
        *,
        trust_remote_code: bool,
    ) -> None:
        """Take memory for the weights, without values.

        Raises:
            ConfigError: the model cannot be served.
        """
        model = build_empty(config, dtype, device, trust_remote_code=trust_remote_code)
        require_arguments(model)
        self.settings = settings
        self.device = device
        self.vocab_size: int = model.get_input_embeddings().weight.shape[0]
        self.runner = Runner(model, device)
        self.weights = ModelWeights(model)
        self.memory = DeviceWeights(self.weights.tensors.values())
        self.cache = RowCache(self.runner.layer_shapes(), dtype, device)
        self.budget_tokens = 0
        self.is_cache_awake = False
        self._rows: tuple[InFlight, ...] = ()
        self._sampling: BatchSampling = ()

    def resident(self) -> frozenset[RolloutState]:
        """What has memory on the device. The cache counts from its waking on: it takes as much as the requests need."""
        states = {RolloutState.WEIGHTS: self.memory.is_resident, RolloutState.KV_CACHE: self.is_cache_awake}
        return frozenset(state for state, is_there in states.items() if is_there)

    def release(self, *, keep_weights: bool) -> None:
        """Give all device memory back."""
        self.cache.free()
        self.is_cache_awake = False
        self._rows, self._sampling = (), ()
        self.memory.release(keep=keep_weights)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def take(self, states: Collection[RolloutState]) -> None:
        """Take memory for ``states``.

        Raises:
            ConfigError: what is left for the cache does not hold one sequence.
        """
        if RolloutState.WEIGHTS in states:
            self.memory.take()
        if RolloutState.KV_CACHE in states and not self.is_cache_awake:
            self.budget_tokens = cache_budget(
                self.settings,
                weight_bytes=self.memory.num_bytes,
                bytes_per_token=self.cache.bytes_per_token,
                device=self.device,
            )
            self.is_cache_awake = True

    @torch.inference_mode()
    def step(self, plan: Plan) -> Drawn:
        """Carry out ``plan``: one token for each of its rows.

        Raises:
            RlError: the device has too little memory; says which keys to lower.
        """
        try:
            return self._step(plan)
        except torch.cuda.OutOfMemoryError as error:
            self.cache.free()
            msg = (
                f"the generator ran out of memory with {len(plan.rows)} sequences of up to {plan.need.length} tokens, "
                f"{sum(map(len, plan.contexts))} of them read in this step. Lower rollout.gpu_memory_utilization (or "
                "rollout.hf.cache_gib), rollout.max_num_seqs or rollout.max_num_batched_tokens"
            )
            raise RlError(msg) from error
        except BaseException:
            self.cache.free()  # what stands in it is unknown
            raise

    def _step(self, plan: Plan) -> Drawn:
        self.cache.move(plan.moves, plan.kept_length)
        self.cache.fit(plan.need, self.budget_tokens, kept_rows=plan.kept, kept_length=plan.kept_length)
        for batch in fill_batches(plan.contexts, plan.kept):
            self.runner.fill(self.cache, batch)
        tokens = torch.tensor([item.last_token for item in plan.rows], device=self.device)
        positions = torch.tensor([item.length - 1 for item in plan.rows], device=self.device)
        uniforms = [item.uniforms[len(item.tokens)] for item in plan.rows]
        banned = [(row, self._drawable(item.ending)) for row, item in enumerate(plan.rows) if item.is_held_back]
        logits = self.runner.step(self.cache, tokens, positions, plan.need.length)
        draws = draw(
            logits,
            self._row_sampling(plan.rows, logits.shape[-1]),
            torch.tensor(uniforms, dtype=torch.float64, device=self.device),
            banned,
            raw_log_probs=self.settings.raw_log_probs,
        )
        # One transfer; ids are far below 2**53.
        packed = torch.stack([draws.tokens.double(), draws.log_probs.double(), draws.is_sound.double()]).tolist()
        is_sound = [bool(value) for value in packed[2]]
        for row, sound in enumerate(is_sound):
            if not sound:
                self.cache.clear(row)
        return Drawn(tokens=[int(token) for token in packed[0]], log_probs=packed[1], is_sound=is_sound)

    def _drawable(self, ids: Collection[int]) -> list[int]:
        return [token for token in ids if 0 <= token < self.vocab_size]

    def _row_sampling(self, rows: tuple[InFlight, ...], vocab_size: int) -> BatchSampling:
        if rows != self._rows:
            self._rows = rows
            self._sampling = as_rows([item.request.sampling for item in rows], vocab_size, self.device)
        return self._sampling
