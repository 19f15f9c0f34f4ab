"""What training holds on a device at its peaks, in closed form; ``docs/memory.md`` derives each term and compares.

::

    update    states + the largest of
                output layer    kept activations, logits of one chunk, the output layer's gradient
                last block      kept activations, the block's own, the root's gradient
                first block     gradients of the other blocks, the block's own, the root's gradient
                root            all gradients, the root's once more in the type they are added up in
                step            all gradients, a copy of the weights where the optimizer is not fused
    forward   weights + the larger of one block's and the output layer's

No torch is loaded. Bytes throughout; attention is computed by a kernel that keeps no table of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rl_engine.model_shape import ModelShape

EAGER_CHUNK: Final = 1024
COMPILED_CHUNK: Final = 4096
"""Tokens whose logits exist at a time: ``DEFAULT_CHUNK_SIZE`` of rl-core and ``COMPILED_CHUNK_SIZE`` of ``token_model``."""

_FLOAT: Final = 4


@dataclass(frozen=True, kw_only=True)
class TrainingShape:
    """How a role is trained or asked, as far as memory depends on it.

    Attributes:
        model: the model.
        shards: workers that share one copy of it.
        weight_bytes: of a number of the weights that the optimizer changes.
        compute_bytes: of a number of the computation.
        reduce_bytes: of a number of the gradients while workers add them up.
        gathers: whether blocks are gathered or converted while they compute; False for one worker in one format.
        kept_share: of the gathered blocks that stay until the backward pass; 0 gathers each again.
        keeps_gradients_whole: whether gradients are added up over passes before workers share them.
        is_offloaded: whether the states are in host memory, always.
        scores_tokens: whether there is an output layer over the vocabulary; False for a head of one number.
        optimizer_numbers: numbers of optimizer state for each trained one.
        is_fused: whether the optimizer's step needs no copies.
        adapter_parameters: trained numbers where the model itself is frozen; 0 trains the model.
        update_tokens: of a pass with gradient on this worker; 0 for a frozen role.
        forward_tokens: of a pass without.
        recomputes: whether activations are recomputed.
        compiled: whether blocks are compiled.
        accumulates: whether gradients of an earlier pass exist already.
        with_entropy: whether the entropy has a gradient.
        chunk: tokens whose logits exist at a time; None takes that of ``compiled``.
    """

    model: ModelShape
    shards: int = 1
    weight_bytes: int = 4
    compute_bytes: int = 2
    reduce_bytes: int = 4
    gathers: bool = True
    kept_share: float = 0.0
    keeps_gradients_whole: bool = False
    is_offloaded: bool = False
    scores_tokens: bool = True
    optimizer_numbers: int = 2
    is_fused: bool = True
    adapter_parameters: int = 0
    update_tokens: int = 0
    forward_tokens: int = 0
    recomputes: bool = True
    compiled: bool = True
    accumulates: bool = True
    with_entropy: bool = False
    chunk: int | None = None

    @property
    def chunk_tokens(self) -> int:
        """Tokens whose logits exist at a time."""
        return self.chunk or (COMPILED_CHUNK if self.compiled else EAGER_CHUNK)


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes on one device.

    Attributes:
        parameters: weights.
        gradients: of all of them, where they exist.
        optimizer: state.
        update: beside these three at the peak of an update.
        forward: beside the weights at the peak of a pass without gradient.
    """

    parameters: int
    gradients: int
    optimizer: int
    update: int
    forward: int


def training_memory(shape: TrainingShape) -> TrainingMemory:
    """Predict the peaks of one role on one device."""
    parameters, gradients, optimizer = _states(shape)
    update = max(0, _update_peak(shape, gradients) - gradients) if shape.update_tokens else 0
    if shape.is_offloaded:
        parameters = optimizer = gradients = 0
    return TrainingMemory(parameters, gradients, optimizer, update, _forward_peak(shape))


def _states(shape: TrainingShape) -> tuple[int, int, int]:
    model, shards = shape.model, shape.shards
    total = model.parameters
    if not shape.scores_tokens:  # the output layer gives way to one row
        total += model.hidden - (0 if model.is_tied else model.head)
    trained, frozen = (shape.adapter_parameters, total) if shape.adapter_parameters else (total, 0)
    if not shape.update_tokens:
        return -(-total * shape.weight_bytes // shards), 0, 0
    parameters = frozen * shape.compute_bytes + trained * shape.weight_bytes
    gradients = trained * shape.weight_bytes
    return tuple(-(-size // shards) for size in (parameters, gradients, gradients * shape.optimizer_numbers))  # type: ignore[return-value]


def activation_bytes(shape: TrainingShape) -> int:
    """What one block keeps of one token for its backward pass.

    Without compilation, in the types of transformers' blocks: each of the two norms a float32 copy, the normalised numbers and
    its output; queries, keys, values, attention's output and its float32 log-sum; gate, activation, second projection and
    product. A compiled block keeps its input, the two norms' outputs, the sum before the second norm and three of the four.
    """
    model, c = shape.model, shape.compute_bytes
    attention = c * 2 * (model.query_width + model.key_width) + _FLOAT * model.heads
    if model.has_head_norms:
        attention += (c if shape.compiled else _FLOAT + c) * (model.query_width + model.key_width)
    inner = model.inner * ((3 if shape.compiled else 4) if model.has_gate else 2)
    norms = 4 * c if shape.compiled else 2 * (_FLOAT + 2 * c)
    dispatched = 2 * model.experts_per_token * model.hidden * c
    return norms * model.hidden + attention + inner * c + dispatched


def _gathered(shape: TrainingShape) -> tuple[int, int]:
    """Gathered weights of the root, and of a block with the next one on its way."""
    if not shape.gathers:
        return 0, 0
    return shape.compute_bytes * _root(shape), 2 * shape.compute_bytes * shape.model.block


def _root(shape: TrainingShape) -> int:
    has_own_head = not shape.model.is_tied
    return shape.model.root - (shape.model.head if has_own_head and not shape.scores_tokens else 0)


def _update_peak(shape: TrainingShape, gradients: int) -> int:
    """Beside weights and optimizer state."""
    model, c, tokens = shape.model, shape.compute_bytes, shape.update_tokens
    is_whole = not shape.adapter_parameters
    root, block = _gathered(shape)
    held = root + c * int(model.block * model.layers * shape.kept_share if shape.gathers else 0)
    root_gradient = c * _root(shape) if is_whole and shape.gathers else 0
    shared_root = _root(shape) * shape.weight_bytes // shape.shards if is_whole else 0
    whole = (
        model.parameters * shape.reduce_bytes if shape.keeps_gradients_whole and shape.accumulates and is_whole else 0
    )
    before = (0 if shape.is_offloaded else gradients) if shape.accumulates else 0
    after = 0 if shape.is_offloaded else max(0, gradients - (0 if shape.accumulates else shared_root))

    own = activation_bytes(shape) * tokens
    inputs = c * model.hidden * tokens
    ends = (_FLOAT + 3 * c) * model.hidden * tokens
    kept = ends + model.layers * (inputs if shape.recomputes else own)
    spare = 2 * c * model.inner * tokens
    live = own + inputs if shape.recomputes else own
    reduced = shape.reduce_bytes * model.block if shape.gathers and is_whole else 0

    peaks = (
        before + kept + held + _head_update(shape),
        before + kept + held + block + root_gradient + (own if shape.recomputes else 0) + spare,
        after + live + held + block + root_gradient + spare + reduced,
        after + root + root_gradient + (shape.reduce_bytes * _root(shape) if shape.gathers and is_whole else 0),
        after + (0 if shape.is_fused or shape.is_offloaded else gradients),
    )
    return max(peaks) + whole


def _head_update(shape: TrainingShape) -> int:
    """Logits of a chunk and what becomes of them, beside the output layer's float32 gradient."""
    if not shape.scores_tokens:
        return 0
    model, c = shape.model, shape.compute_bytes
    # Compiled: logits, the last chunk's gradient, a float32 gradient and what it is rounded to. Otherwise: both, and two
    # float32 tables; with entropy four.
    each = 3 * c + _FLOAT if shape.compiled else 2 * c + (4 if shape.with_entropy else 2) * _FLOAT
    gradient = 0 if shape.adapter_parameters else _FLOAT * model.head
    return each * min(shape.chunk_tokens, shape.update_tokens) * model.vocabulary + gradient


def _forward_peak(shape: TrainingShape) -> int:
    model, c, tokens = shape.model, shape.compute_bytes, shape.forward_tokens
    root, block = _gathered(shape)
    one_block = (_FLOAT + 2 * c) * model.hidden * tokens + c * 3 * model.inner * tokens
    head = 0
    if shape.scores_tokens:
        each = 2 * c if shape.compiled else 2 * c + 2 * _FLOAT
        head = each * min(shape.chunk_tokens, tokens) * model.vocabulary
    return root + max(block + one_block, head + (_FLOAT + 3 * c) * model.hidden * tokens)


def adapter_parameters(model: ModelShape, rank: int) -> int:
    """Numbers of adapters of ``rank`` on every linear layer of the blocks; 0 for rank 0."""
    attention = 2 * (model.hidden + model.query_width) + 2 * (model.hidden + model.key_width)
    mlp = (3 if model.has_gate else 2) * (model.hidden + model.inner)
    return rank * model.layers * (attention + mlp)


def optimizer_numbers(optim: Any) -> int:
    """Numbers that the optimizer of an ``optim`` section keeps for each weight: Adam and its kin two, SGD its momentum."""
    if str(getattr(optim, "optimizer", "AdamW")) != "SGD":
        return 2
    overrides = getattr(optim, "override_optimizer_config", None) or {}
    return 1 if overrides.get("momentum") else 0
