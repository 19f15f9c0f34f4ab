"""Types of models, tiny and random, through the FSDP engine and the hf rollout, beside plain transformers.

``docs/models.md`` lists what is tried here; ``test_the_page_lists_what_is_tried`` keeps the two in step.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.errors import ConfigError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_engine.checkpoint_files import tensor_names
from rl_rollout_hf.cache import Need, RowCache
from rl_rollout_hf.model import build_empty, named_weights, require_arguments, require_servable
from rl_rollout_hf.runner import Runner, fill_batches
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens, slow_log_probs, slow_policy_loss
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import SGD
from rl_testing.models import save_tiny_model
from transformers import AutoModelForCausalLM

WINDOW = {"sliding_window": 4}
"""Shorter than the longest row of the batch, so a kernel that forgets it gives other numbers."""
PACKED: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen2, tied": {"tie_word_embeddings": True},
    "qwen3": {},
    "gemma2": WINDOW | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "gemma3_text": WINDOW | {"final_logit_softcapping": 3.0},
    "mistral": WINDOW,
    "smollm3": {},
    "phi": {},
    "phi3": {},
    "granite": {"logits_scaling": 4.0, "embedding_multiplier": 2.0, "residual_multiplier": 0.5},
    "cohere": {},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "qwen2_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    | {"shared_expert_intermediate_size": 24, "decoder_sparse_step": 2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
}
STATEFUL: dict[str, dict[str, Any]] = {
    "qwen3_5_text": {
        "num_layers": 4,
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    },
}
"""Layers with a state: three of linear attention and one of full attention. Such models are padded."""
UNSERVED = {
    "gemma2": "sliding_attention",
    "gemma3_text": "sliding_attention",
    "mistral": "sliding_attention",
    "qwen3_5_text": "linear_attention",
}
"""Types that the hf rollout refuses with these settings, and the layer it names."""

VOCAB = 300
ROWS = make_rows(VOCAB)
LOSS = PolicyLoss(num_tokens(ROWS))
CONTEXT = WorkerContext(0, 1, 0, 1, "cpu", SoloCollective())
TRIED = PACKED | STATEFUL
PAGE = Path(__file__).parents[2] / "docs" / "models.md"

each_type = pytest.mark.parametrize("name", PACKED | STATEFUL)


def save(name: str, directory: Path, fields: dict[str, Any]) -> str:
    model_type = name.split(",")[0]
    return str(save_tiny_model(directory, model_type=model_type, hidden_size=32, with_tokenizer=False, **fields))


@pytest.fixture
def folder(name, tmp_path):
    return save(name, tmp_path / "model", TRIED[name])


@pytest.fixture
def start():
    """An engine that trains the model in a folder, closed after the test."""
    built: list[FSDPEngine] = []

    def start(path: str, **model: Any) -> FSDPEngine:
        built.append(
            FSDPEngine(EngineRole.POLICY, SimpleNamespace(path=path, **model), EngineConfig(optim=SGD), CONTEXT)
        )
        built[-1].initialize()
        return built[-1]

    yield start
    for engine in built:
        engine.close()


def plain(path: str | Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()


def packing(name: str) -> dict[str, Any]:
    return {"use_remove_padding": name in PACKED}


def logits_of(model: Any) -> Any:
    return lambda _, ids: model(input_ids=ids[None], use_cache=False).logits[0]


@pytest.mark.parametrize(("name", "packs"), [*((name, True) for name in PACKED), *((name, False) for name in TRIED)])
def test_scores_and_gradients_are_those_of_each_row_alone(name, folder, start, packs):
    engine, model = start(folder, use_remove_padding=packs), plain(folder)
    found = engine.forward(as_batch(ROWS), {"log_probs", "entropy"})
    for number, row in enumerate(ROWS):
        with torch.no_grad():
            log_probs, entropy = slow_log_probs(logits_of(model), {}, row, 1.0)
        torch.testing.assert_close(found.batch["log_probs"][number], log_probs, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.batch["entropy"][number], entropy, rtol=1e-4, atol=1e-4)
    engine.forward_backward(as_batch(ROWS), LOSS)
    slow_policy_loss(logits_of(model), {}, ROWS, 1.0).backward()
    expected = {key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None}
    module = engine.module("test")
    grads = {module.checkpoint_name(key): parameter.grad for key, parameter in module.named_parameters()}
    assert len(expected) > 10
    for key, gradient in expected.items():
        limit = 1e-4 * max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(
            grads[key], gradient, rtol=1e-3, atol=limit, msg=lambda text, key=key: f"{key}: {text}"
        )


@each_type
def test_stream_and_export_are_the_checkpoint(name, folder, start, tmp_path):
    engine = start(folder, **packing(name))
    assert {spec.name for spec in engine.weight_manifest().sent} == tensor_names(Path(folder))
    engine.forward_backward(as_batch(ROWS), LOSS)
    engine.optimizer_step()
    engine.export_hf(tmp_path / "export")
    assert_exported(engine, tmp_path / "export")


@each_type
def test_a_low_rank_step_is_exported_merged(name, folder, start, tmp_path):
    engine = start(folder, lora_rank=4, lora_alpha=8, target_modules="all-linear", **packing(name))
    before = engine.forward(as_batch(ROWS), {"log_probs"}).batch["log_probs"].values()
    engine.forward_backward(as_batch(ROWS), LOSS)
    assert engine.optimizer_step().grad_norm > 0
    after = engine.forward(as_batch(ROWS), {"log_probs"}).batch["log_probs"].values()
    assert not torch.equal(before, after)
    engine.export_hf(tmp_path / "export")
    assert_exported(engine, tmp_path / "export")


def assert_exported(engine: FSDPEngine, directory: Path) -> None:
    found = engine.forward(as_batch(ROWS), {"log_probs"}).batch["log_probs"]
    model = plain(directory)
    for number, row in enumerate(ROWS):
        with torch.no_grad():
            expected, _ = slow_log_probs(logits_of(model), {}, row, 1.0)
        torch.testing.assert_close(found[number], expected, rtol=1e-4, atol=1e-4)


@each_type
def test_greedy_tokens_are_those_of_transformers(name, folder):
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    prompt, count = [5, 17, 3, 99, 42], 12
    length = len(prompt) + count
    if name in UNSERVED:
        with pytest.raises(ConfigError, match=UNSERVED[name]):
            require_servable(model.config, length)
        return
    require_servable(model.config, length)
    served = build_empty(model.config, torch.float32, torch.device("cpu"), trust_remote_code=False)
    require_arguments(served)
    weights = dict(named_weights(model))
    with torch.no_grad():
        for key, tensor in named_weights(served):
            tensor.copy_(weights[key])
    settings = {"do_sample": False, "max_new_tokens": count, "min_new_tokens": count, "eos_token_id": None}
    expected = model.generate(torch.tensor([prompt]), pad_token_id=0, **settings)[0, len(prompt) :].tolist()
    assert greedy(Runner(served, torch.device("cpu")), prompt, count) == expected


@torch.inference_mode()
def greedy(runner: Runner, prompt: list[int], count: int) -> list[int]:
    runner.require_faithful_cache()
    length = len(prompt) + count
    cache = RowCache(runner.layer_shapes(), runner.dtype, runner.device)
    cache.fit(Need(rows=1, length=length, likely_rows=1, likely_length=length), length, kept_rows=0, kept_length=0)
    for batch in fill_batches([tuple(prompt[:-1])], 0):
        runner.fill(cache, batch)
    tokens, last = [], prompt[-1]
    for place in range(len(prompt) - 1, length - 1):
        last = int(runner.step(cache, torch.tensor([last]), torch.tensor([place]), place + 1)[0].argmax())
        tokens.append(last)
    return tokens


@pytest.mark.parametrize("model_type", STATEFUL)
def test_a_state_that_crosses_packed_sequences_is_refused_by_name(model_type, tmp_path, start):
    path = save(model_type, tmp_path, STATEFUL[model_type])
    with pytest.raises(ConfigError, match=rf"'{model_type}' cannot keep .*use_remove_padding=False"):
        start(path)


def test_the_page_lists_what_is_tried():
    table = [line.split("|") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    rows = {cells[1].strip().replace("`", ""): [cell.strip() for cell in cells[2:-1]] for cells in table}
    assert list(rows) == [*PACKED, *STATEFUL]
    for name, (_, packed, padded, lora, export, served, _) in rows.items():
        assert (padded, lora, export) == ("yes", "yes", "yes")
        assert packed == ("yes" if name in PACKED else "no")
        assert served == ("refused" if name in UNSERVED else "yes")
