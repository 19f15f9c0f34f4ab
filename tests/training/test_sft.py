"""Supervised fine-tuning of a real model: it learns, it stops, and what it leaves is what `rl train` starts from."""

import pytest
import torch
from rl_testing.models import TURN_END_ID
from sft_runs import conversations, fine_tune, untimed
from tiny_runs import train
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = pytest.mark.heavy


def options(model, *more):
    return [
        f"model.path={model}",
        "engine.strategy=fsdp",
        "optim.optimizer=AdamW",
        "optim.lr=5e-3",
        "data.train_batch_size=6",
        "data.max_token_len_per_gpu=256",
        *more,
    ]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    from rl_testing.models import save_tiny_model

    folder = tmp_path_factory.mktemp("tuned")
    save_tiny_model(folder / "model", initializer_range=0.05)
    metrics = fine_tune(
        folder, *options(folder / "model"), "trainer.total_training_steps=150", "trainer.total_epochs=75"
    )
    return folder, metrics


def test_the_loss_falls(tuned):
    _, metrics = tuned
    assert metrics[0]["step"] == 0
    assert metrics[0]["val/loss"] > 4
    assert metrics[-1]["train/loss"] < 0.05
    assert metrics[-1]["val/loss"] < metrics[0]["val/loss"] - 1


def test_the_export_answers_and_ends_its_turn(tuned):
    folder, _ = tuned
    exported = folder / "run" / "huggingface"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(exported), AutoTokenizer.from_pretrained(exported)
    for conversation in conversations(2, start=1):
        question, answer = conversation["messages"][:2]
        prompt = tokenizer.apply_chat_template(
            [question], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.no_grad():
            ids = model.generate(**prompt, do_sample=False, max_new_tokens=8)[0, prompt["input_ids"].shape[1] :]
        assert tokenizer.decode(ids, skip_special_tokens=True) == answer["content"]
        assert ids[-1] == TURN_END_ID


def test_rl_train_takes_the_export(tuned, tmp_path):
    folder, _ = tuned
    (step,) = train(folder / "run" / "huggingface", tmp_path, "trainer.total_training_steps=1")
    assert step["training/logprob_gap/mean"] < 1e-4


def test_a_resumed_run_is_the_straight_one_to_the_bit(model, tmp_path):
    more = ["trainer.save_freq=2", "data.val_files=null", "optim.lr_scheduler_type=cosine"]
    straight = fine_tune(tmp_path / "straight", *options(model, *more))
    fine_tune(
        tmp_path / "stopped", *options(model, *more, "optim.total_training_steps=4"), "trainer.total_training_steps=2"
    )
    resumed = fine_tune(tmp_path / "stopped", *options(model, *more))
    assert [step | {"training/total_steps": 4} for step in untimed(resumed)] == untimed(straight)
    weights = [(tmp_path / name / "run/huggingface/model.safetensors").read_bytes() for name in ("straight", "stopped")]
    assert weights[0] == weights[1]
