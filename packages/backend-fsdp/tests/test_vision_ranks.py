"""A vision-language model over two worker processes: text alone gives the numbers of one worker, images are refused on both."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import SGD
from rl_testing.contracts.processes import ProcessRanks
from rl_testing.contracts.ranks import ThreadRanks, run_on_all
from transformers import AutoConfig, AutoModelForImageTextToText

VOCAB = 64
ROWS = make_rows(VOCAB - 4)
LOSS = PolicyLoss(num_tokens(ROWS))
TEXT = {
    "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "intermediate_size": 64, "initializer_range": 0.2, "pad_token_id": 0, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
VISION = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16,
    "patch_size": 4,
}  # fmt: skip
TOKENS = {"image_token_index": 62, "boi_token_index": 60, "eoi_token_index": 61}


@pytest.fixture
def path(tmp_path):
    config = AutoConfig.for_model(
        "gemma3", text_config=TEXT, vision_config=VISION, mm_tokens_per_image=4, tie_word_embeddings=False, **TOKENS
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForImageTextToText.from_config(config).save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def ask(group, call, **arguments):
    return run_on_all(group, partial(call, **arguments))


@pytest.mark.heavy
def test_two_ranks_are_one_and_refuse_images_together(path):
    found = {}
    for world_size in (1, 2):
        section = SimpleNamespace(path=path, use_remove_padding=False)
        build = partial(FSDPEngine, EngineRole.POLICY, section, EngineConfig(optim=SGD, micro_batch_size=2))
        group = (ThreadRanks if world_size == 1 else ProcessRanks)(world_size, build, dispose=calls.close)
        try:
            run_on_all(group, calls.initialize)
            (first, *_) = ask(group, calls.train, batches=[as_batch(ROWS)], loss_fn=LOSS)
            found[world_size] = first[0].result.grad_norm, ask(group, calls.stream)[0].weights
            if world_size == 2:
                images = np.empty(len(ROWS), dtype=object)
                images[0] = {"pixel_values": torch.zeros(1, 3, 16, 16)}
                batch = as_batch(ROWS)
                batch.non_tensor_batch["multi_modal_inputs"] = images
                outputs = frozenset({"log_probs"})
                for outcome in group.outcomes(partial(calls.forward, batch=batch, outputs=outputs)):
                    assert type(outcome).__name__ == "ConfigError"
                    assert "2 workers share the model" in str(outcome)
        finally:
            group.close()
    assert found[2][0] == pytest.approx(found[1][0], rel=1e-4)
    for name, tensor in found[1][1].items():
        torch.testing.assert_close(found[2][1][name], tensor, rtol=1e-4, atol=1e-5)
