"""Vision-language models, tiny and random, through the FSDP engine beside plain transformers: with images, and text alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.errors import ConfigError, DataError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_dataproto import DataProto
from rl_engine.checkpoint_files import tensor_names
from rl_rollout_hf.model import require_servable
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens, slow_log_probs, slow_policy_loss
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import SGD
from transformers import AutoConfig, AutoModelForImageTextToText

START, END, IMAGE = 288, 289, 290
TEXT: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "intermediate_size": 64, "max_position_embeddings": 1024, "initializer_range": 0.2, "pad_token_id": 0,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
GRID = {
    "depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "out_hidden_size": 32, "in_channels": 3, "initializer_range": 0.2,
}  # fmt: skip
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}
IDS = {"image_token_id": IMAGE, "video_token_id": 291, "vision_start_token_id": START, "vision_end_token_id": END}
TYPES: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": TEXT,
        "vision_config": {
            "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16,
            "patch_size": 4,
        },
        "mm_tokens_per_image": 4, "image_token_index": IMAGE, "boi_token_index": START, "eoi_token_index": END,
    },
    "qwen2_5_vl": {
        "text_config": TEXT | MROPE,
        "vision_config": GRID | {"window_size": 16, "fullatt_block_indexes": [0]},
        **IDS,
    },
    "qwen3_vl": {
        "text_config": TEXT | MROPE,
        "vision_config": GRID | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
        **IDS,
    },
}  # fmt: skip
PACKED = ("gemma3", "qwen3_vl")
"""Types whose packed sequences stay apart."""
WITH_IMAGES = {0: 1, 2: 2, 5: 1}
"""Row -> how many images stand in front of its prompt; an image takes four tokens."""
CONTEXT = WorkerContext(0, 1, 0, 1, "cpu", SoloCollective())

pytestmark = pytest.mark.parametrize("model_type", TYPES)


@pytest.fixture
def folder(model_type, tmp_path):
    config = AutoConfig.for_model(model_type, **TYPES[model_type])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForImageTextToText.from_config(config)
        for parameter in model.parameters():  # some are zeros, with which images would not be seen
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def start(folder):
    """``start(**model)``: an engine that trains the model in ``folder``, closed after the test."""
    built: list[FSDPEngine] = []

    def start(**model: Any) -> FSDPEngine:
        section = SimpleNamespace(path=str(folder), **model)
        built.append(FSDPEngine(EngineRole.POLICY, section, EngineConfig(optim=SGD, micro_batch_size=3), CONTEXT))
        built[-1].initialize()
        return built[-1]

    yield start
    for engine in built:
        engine.close()


def images(model_type: str, count: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if model_type == "gemma3":
        return {"pixel_values": torch.randn(count, 3, 16, 16, generator=generator)}
    pixels = torch.randn(16 * count, 3 * 2 * 4 * 4, generator=generator)
    return {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, 4, 4]] * count)}


def rows_with_images(model_type: str) -> tuple[list[Any], list[dict[str, torch.Tensor]]]:
    """Rows of which some have images, and each row's ``multi_modal_inputs``."""
    rows, inputs = [], []
    for number, row in enumerate(make_rows(280)):
        count = WITH_IMAGES.get(number, 0)
        image = torch.tensor([START, *[IMAGE] * 4, END] * count, dtype=torch.int64)
        rows.append(replace(row, prompt=torch.cat([row.prompt[:1], image, row.prompt[1:]])))
        inputs.append(images(model_type, count, number) if count else {})
    return rows, inputs


def batch_of(rows: list[Any], inputs: list[dict[str, torch.Tensor]]) -> DataProto:
    column = np.empty(len(rows), dtype=object)
    column[:] = inputs
    batch = as_batch(rows)
    batch.non_tensor_batch["multi_modal_inputs"] = column
    return batch


def plain(folder: Any) -> Any:
    return AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager").eval()


def logits_of(model: Any, rows: list[Any], inputs: list[dict[str, torch.Tensor]]) -> Any:
    """The plain model's logits of a row alone, by the row's ids."""
    name = "token_type_ids" if model.config.model_type == "gemma3" else "mm_token_type_ids"
    of_ids = {tuple(row.ids.tolist()): own for row, own in zip(rows, inputs, strict=True)}

    def logits(_: Any, ids: torch.Tensor) -> torch.Tensor:
        further = of_ids[tuple(ids.tolist())]
        types = {name: (ids == IMAGE).long()[None]} if further else {}
        return model(input_ids=ids[None], use_cache=False, **further, **types).logits[0]

    return logits


def assert_scores(engine: FSDPEngine, batch: DataProto, rows: list[Any], logits: Any) -> None:
    found = engine.forward(batch, {"log_probs", "entropy"})
    for number, row in enumerate(rows):
        with torch.no_grad():
            log_probs, entropy = slow_log_probs(logits, {}, row, 1.0)
        torch.testing.assert_close(found.batch["log_probs"][number], log_probs, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.batch["entropy"][number], entropy, rtol=1e-4, atol=1e-4)


def test_scores_and_gradients_of_text_with_images(model_type, folder, start):
    rows, inputs = rows_with_images(model_type)
    engine, model, batch = start(use_remove_padding=False), plain(folder), batch_of(rows, inputs)
    logits = logits_of(model, rows, inputs)
    assert_scores(engine, batch, rows, logits)
    engine.forward_backward(batch, PolicyLoss(num_tokens(rows)))
    slow_policy_loss(logits, {}, rows, 1.0).backward()
    module = engine.module("test")
    grads = {module.checkpoint_name(key): parameter.grad for key, parameter in module.named_parameters()}
    expected = {key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None}
    assert sum("vis" in key and bool(gradient.abs().max() > 0) for key, gradient in expected.items()) > 5
    for key, gradient in expected.items():
        limit = 1e-4 * max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(grads[key], gradient, rtol=1e-3, atol=limit, msg=lambda t, key=key: f"{key}: {t}")


def test_other_images_give_other_scores(model_type, start):
    rows, inputs = rows_with_images(model_type)
    engine = start(use_remove_padding=False)
    first = engine.forward(batch_of(rows, inputs), {"log_probs"}).batch["log_probs"]
    inputs[5] = images(model_type, 1, 99)
    second = engine.forward(batch_of(rows, inputs), {"log_probs"}).batch["log_probs"]
    changed = [number for number in range(len(rows)) if not torch.equal(first[number], second[number])]
    assert changed == [5]


@pytest.mark.parametrize("model", [{}, {"lora_rank": 2, "lora_alpha": 4}], ids=["all weights", "adapters"])
def test_text_alone_is_trained_and_exported(model_type, folder, start, tmp_path, model):
    rows = make_rows(280)
    engine = start(use_remove_padding=False, **model)
    assert {spec.name for spec in engine.weight_manifest().sent} == tensor_names(folder)
    before = plain(folder)
    assert_scores(engine, as_batch(rows), rows, logits_of(before, rows, [{}] * len(rows)))
    engine.forward_backward(as_batch(rows), PolicyLoss(num_tokens(rows)))
    assert engine.optimizer_step().grad_norm > 0
    engine.export_hf(tmp_path / "export")
    assert tensor_names(tmp_path / "export") == tensor_names(folder)
    after = plain(tmp_path / "export")
    assert_scores(engine, as_batch(rows), rows, logits_of(after, rows, [{}] * len(rows)))
    changed = [name for name, tensor in after.named_parameters() if not torch.equal(tensor, before.get_parameter(name))]
    assert changed
    assert not any("vis" in name for name in changed)


def test_packed_text_alone_is_that_of_each_row(model_type, folder, start):
    rows = make_rows(280)
    if model_type not in PACKED:
        with pytest.raises(
            ConfigError, match=f"'{model_type}' cannot keep packed sequences apart.*use_remove_padding=False"
        ):
            start()
        return
    assert_scores(start(), as_batch(rows), rows, logits_of(plain(folder), rows, [{}] * len(rows)))


def test_what_images_cannot_have_is_refused_by_name(model_type, folder, start):
    rows, inputs = rows_with_images(model_type)
    if model_type in PACKED:
        with pytest.raises(
            ConfigError, match=r"images \(multi_modal_inputs\), and rows are packed.*use_remove_padding=False"
        ):
            start().forward(batch_of(rows, inputs), {"log_probs"})
    engine = start(use_remove_padding=False)
    with pytest.raises(DataError, match=r"image tokens \(290\) in rows without images"):
        engine.forward(as_batch(rows), {"log_probs"})
    inputs[5] = {"sounds": torch.zeros(2, 3)}
    with pytest.raises(ConfigError, match=f"has sounds, which model type '{model_type}' does not take"):
        engine.forward(batch_of(rows, inputs), {"log_probs"})
    with pytest.raises(ConfigError, match=f"cannot serve model type '{model_type}': it reads images"):
        require_servable(plain(folder).config, 64)


def test_the_page_lists_what_is_tried(model_type):
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    row = next(line for line in page.splitlines() if f"(`{model_type}`) |" in line)
    packed = "yes" if model_type in PACKED else "refused"
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["padded", packed, "yes", "yes", "yes", "refused"]
