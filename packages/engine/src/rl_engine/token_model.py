"""A model as an engine calls it: hidden states in, numbers for response tokens out.

An engine shards and calls the wrapper; names in checkpoints and weight streams are those of the Hugging Face model
inside it (``checkpoint_name``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

import torch
from rl_core.algorithms.logprobs import DEFAULT_CHUNK_SIZE
from rl_core.errors import ConfigError
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from rl_engine.attention import NEEDS_LAYOUT
from rl_engine.file_form import FileForm
from rl_engine.images import image_arguments
from rl_engine.outputs import LogitTransform, find_transform, identity, score_tokens
from rl_engine.packed_attention import Layout, packed_as
from rl_engine.packing import ModelInputs
from rl_engine.sequence_parallel import SequenceParallel, computing
from rl_engine.sequence_parallel_attention import implementation_within

if TYPE_CHECKING:
    from rl_engine.lora.adapter import Adapter

RECOMPILE_LIMIT: Final = 64
"""Variants of a block in one process; beyond torch's own 8 it would silently be computed without compilation."""

COMPILED_CHUNK_SIZE: Final = 4096
"""Tokens whose logits exist at a time where no float32 table of them does; each chunk adds to the output layer's gradient,
which is as large as a thousand tokens' logits."""


class TokenModel(nn.Module):
    """Base of what engines call."""

    prefix = ""
    """What this wrapper puts in front of the names of the Hugging Face model."""

    outputs: frozenset[str] = frozenset()
    """Outputs it can give."""

    adapter: Adapter | None = None
    """Low-rank adapters on the model; None where all weights are trained, or none."""

    sequence_parallel: SequenceParallel | None = None
    """The ranks that share each packed pass; None for a rank on its own."""

    compiled = False
    """Whether what happens to logits is compiled."""

    chunk_size = DEFAULT_CHUNK_SIZE
    """Tokens whose logits exist at a time."""

    file_form = FileForm()
    """How its tensors lie in files."""

    @property
    @abstractmethod
    def backbone(self) -> PreTrainedModel:
        """The decoder that gives hidden states."""

    @property
    def hf_config(self) -> PreTrainedConfig:
        """Configuration of the model."""
        return self.backbone.config

    @abstractmethod
    def heads(self, hidden: Tensor, tokens: Tensor, wanted: Collection[str]) -> dict[str, Tensor]:
        """[N, H] hidden states and the tokens [N] that belong to them -> outputs [N]."""

    def forward(self, inputs: ModelInputs, wanted: Collection[str]) -> dict[str, Tensor]:
        """Outputs ``wanted`` of the response tokens of one pass, [N] each; collective where ranks share it."""
        parallel = self.sequence_parallel
        if parallel is None:
            hidden = self.hidden_states(inputs)
            return self.heads(hidden.flatten(0, 1)[inputs.select], inputs.tokens, wanted)
        share = parallel.cut(inputs)
        with computing(parallel, share):
            hidden = self.hidden_states(share.inputs)
        own = self.heads(hidden[0, share.inputs.select], share.inputs.tokens, wanted)
        return {name: parallel.join(values, share) for name, values in own.items()}

    def all_hidden_states(self, inputs: ModelInputs) -> Tensor:
        """``hidden_states``; of the whole pass also where ranks share it."""
        parallel = self.sequence_parallel
        if parallel is None:
            return self.hidden_states(inputs)
        share = parallel.cut(inputs)
        with computing(parallel, share):
            return parallel.join_tokens(self.hidden_states(share.inputs), inputs.input_ids.shape[1])

    def hidden_states(self, inputs: ModelInputs) -> Tensor:
        """[1, total, H] or [B, L, H], after the last norm."""
        layout = None
        if inputs.lengths is not None and implementation_within(self.hf_config._attn_implementation) in NEEDS_LAYOUT:
            layout = Layout(inputs.lengths, inputs.input_ids.device)
        with packed_as(layout):
            further = image_arguments(self.backbone, inputs.images, inputs.input_ids)
            hidden: Tensor = self.backbone(**(inputs.arguments() | further)).last_hidden_state
        return hidden

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter and saved buffer under the name that transformers has for it, tied ones under each of their names.

        ``file_form`` says what they are in files. Without those of ``adapter``: they are in no such checkpoint.
        """
        for name, parameter in self.named_parameters(remove_duplicate=False):
            if self.adapter is None or not self.adapter.owns(name):
                yield self.checkpoint_name(name), parameter
        saved = self.state_dict(keep_vars=True)
        for name, buffer in self.named_buffers(remove_duplicate=False):
            if name in saved:
                yield self.checkpoint_name(name), buffer

    def compile_kernels(self) -> None:
        """Compile each block by itself, and what happens to logits; the first passes are slow, later ones faster."""
        self.compiled = True
        # Torch counts per function, whatever model it belongs to: roles, passes with and without gradient, lengths.
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILE_LIMIT)
        self.chunk_size = COMPILED_CHUNK_SIZE
        for block in self.layers():
            block.compile()

    def checkpoint_name(self, name: str) -> str:
        """A name within this wrapper as the Hugging Face checkpoint has it."""
        name = name.removeprefix(self.prefix)
        return name if self.adapter is None else self.adapter.base_name(name)

    def layers(self) -> list[nn.Module]:
        """The blocks that the model must not be cut inside of, in order, none within another; some models name none."""
        classes = set(self.backbone._no_split_modules or ())
        found: dict[str, nn.Module] = {}
        for name, module in self.backbone.named_modules():
            inside = any(name.startswith(f"{outer}.") for outer in found)
            # Sharding gives a block a class of its own, below that of the model.
            if not inside and any(cls.__name__ in classes for cls in type(module).__mro__):
                found[name] = module
        return list(found.values())


class PolicyModel(TokenModel):
    """A causal language model that scores tokens."""

    prefix = "causal_lm."
    outputs = frozenset({"log_probs", "entropy", "sum_pi_squared"})

    def __init__(
        self, causal_lm: PreTrainedModel, *, temperature: float = 1.0, chunk_size: int = DEFAULT_CHUNK_SIZE
    ) -> None:
        """Wrap ``causal_lm``.

        Args:
            causal_lm: the model.
            temperature: divides its logits.
            chunk_size: tokens whose logits exist at a time.

        Raises:
            ConfigError: its output layer is not a plain linear one, or the temperature is not above 0.
        """
        super().__init__()
        head = causal_lm.get_output_embeddings()
        if not isinstance(head, nn.Linear):
            msg = f"the output layer of {type(causal_lm).__name__} is a {type(head).__name__}; only a linear one is supported"
            raise ConfigError(msg)
        if not temperature > 0:
            msg = f"the sampling temperature is {temperature}; log-probs to train on need rollout.temperature above 0"
            raise ConfigError(msg)
        self.causal_lm = causal_lm
        self.temperature = temperature
        self.chunk_size = chunk_size
        self.transform: LogitTransform = identity

    @property
    def backbone(self) -> PreTrainedModel:
        """See ``TokenModel``."""
        model: PreTrainedModel = self.causal_lm.base_model
        return model

    @property
    def head(self) -> nn.Linear:
        """The output layer."""
        layer: nn.Linear = self.causal_lm.get_output_embeddings()
        return layer

    def heads(self, hidden: Tensor, tokens: Tensor, wanted: Collection[str]) -> dict[str, Tensor]:
        """See ``TokenModel``."""
        scores = score_tokens(
            hidden,
            self.head,
            tokens,
            transform=self.transform,
            temperature=self.temperature,
            chunk_size=self.chunk_size,
            with_entropy="entropy" in wanted,
            with_sum_pi_squared="sum_pi_squared" in wanted,
            compiled=self.compiled,
        )
        return {name: values for name, values in scores._asdict().items() if name in wanted and values is not None}

    def forward(self, inputs: ModelInputs, wanted: Collection[str]) -> dict[str, Tensor]:
        """See ``TokenModel``; asked for ``"hidden"``, the hidden states of the whole pass, for ``"transform"``, nothing."""
        if "transform" in wanted:
            self._learn_transform(inputs)
            return {}
        if "hidden" in wanted:
            return {"hidden": self.all_hidden_states(inputs)}
        return super().forward(inputs, wanted)

    def _learn_transform(self, inputs: ModelInputs) -> None:
        """Find out from the model itself what it does to its logits."""
        raw: list[Tensor] = []

        def keep(module: nn.Module, args: Any, output: Tensor) -> None:
            raw.append(output)

        handle = self.head.register_forward_hook(keep)
        try:
            logits = self.causal_lm(**inputs.arguments()).logits
        finally:
            handle.remove()
        if len(raw) != 1:
            msg = f"{type(self.causal_lm).__name__} calls its output layer {len(raw)} times a pass; one is supported"
            raise ConfigError(msg)
        self.transform = find_transform(self.hf_config, raw[0], logits)
