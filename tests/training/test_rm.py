"""A real reward model: it learns a preference, transformers reads it, and `rl train` follows it."""

import json

import pytest
import torch
from rl_testing.models import save_tiny_model, tiny_tokenizer
from rm_runs import pairs, train_scorer
from sft_runs import untimed
from tiny_runs import train
from transformers import AutoModelForSequenceClassification, AutoTokenizer

pytestmark = pytest.mark.heavy


def options(model, *more):
    return [
        f"model.path={model}",
        "engine.strategy=fsdp",
        "optim.optimizer=AdamW",
        "optim.lr=3e-3",
        "data.train_batch_size=6",
        "data.max_token_len_per_gpu=512",
        *more,
    ]


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scorer")
    save_tiny_model(folder / "model", initializer_range=0.05)
    more = ["trainer.total_training_steps=60", "trainer.total_epochs=60", "loss.center_coef=0.01"]
    return folder, train_scorer(folder, *options(folder / "model", *more), rows=40)


def scores(exported, texts):
    """Of transformers, all texts in one padded batch."""
    tokenizer = AutoTokenizer.from_pretrained(exported)
    model = AutoModelForSequenceClassification.from_pretrained(exported)
    rendered = [tokenizer.apply_chat_template(text, tokenize=False) for text in texts]
    with torch.no_grad():
        found = model(**tokenizer(rendered, return_tensors="pt", padding=True, add_special_tokens=False))
    return found.logits[:, 0].tolist()


def test_it_learns_what_is_preferred(scorer):
    _, metrics = scorer
    assert metrics[0]["val/accuracy"] == 0.5
    assert metrics[-1]["train/loss"] < 0.1
    assert metrics[-1]["val/accuracy"] == 1.0
    assert metrics[-1]["val/margin"] > 2


def test_transformers_gives_the_same_scores(scorer):
    folder, metrics = scorer
    held_out = pairs(5, start=400)
    for side in ("chosen", "rejected"):
        found = scores(folder / "run/huggingface", [pair[side] for pair in held_out])
        assert sum(found) / 5 == pytest.approx(metrics[-1][f"val/{side}_score"], abs=1e-4)


def test_rl_train_follows_the_export(scorer, tmp_path):
    folder, _ = scorer
    model = save_tiny_model(tmp_path / "policy", initializer_range=0.05)
    more = ["reward_model.enable=true", f"reward_model.model.path={folder}/run/huggingface"]
    dumped = f"trainer.rollout_data_dir={tmp_path}/dumped"
    steps = train(model, tmp_path, *more, dumped, "trainer.total_training_steps=12", "data.max_response_length=6")
    assert all(step["reward/missing"] == 0 for step in steps)
    assert steps[-1]["critic/score/mean"] > steps[0]["critic/score/mean"] + 0.3


def test_rows_without_a_data_source_are_enough_for_it(scorer, tmp_path):
    folder, _ = scorer
    model = save_tiny_model(tmp_path / "policy", initializer_range=0.05)
    rows = ({"prompt": [{"role": "user", "content": f"{row} + 1 ="}]} for row in range(8))
    (tmp_path / "bare.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = ["reward_model.enable=true", f"reward_model.model.path={folder}/run/huggingface"]
    own = ["custom_reward_function.path=null", f"data.train_files={tmp_path}/bare.jsonl"]
    (step,) = train(model, tmp_path, *more, *own, "trainer.total_training_steps=1")
    assert step["reward/missing"] == 0


def test_a_scorer_with_other_tokens_reads_the_conversation_in_its_own(scorer, tmp_path):
    """The policy's vocabulary has a word more, so ids mean other things to the two."""
    folder, _ = scorer
    model = save_tiny_model(tmp_path / "policy", initializer_range=0.05, with_tokenizer=False)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["aaaa"])
    tokenizer.save_pretrained(model)
    more = [
        "reward_model.enable=true",
        f"reward_model.model.path={folder}/run/huggingface",
        "reward_model.max_length=30",
    ]
    (step,) = train(model, tmp_path, *more, "trainer.total_training_steps=1", "trainer.rollout_data_dir=null")
    assert step["reward/missing"] == 0
    assert 0 < step["reward_extra/rm_truncated/mean"] <= 1


def test_a_resumed_run_is_the_straight_one_to_the_bit(model, tmp_path):
    more = ["trainer.save_freq=2", "data.val_files=null", "optim.lr_scheduler_type=cosine"]
    straight = train_scorer(tmp_path / "straight", *options(model, *more))
    stop = ["optim.total_training_steps=4", "trainer.total_training_steps=2"]
    train_scorer(tmp_path / "stopped", *options(model, *more, *stop))
    resumed = train_scorer(tmp_path / "stopped", *options(model, *more))
    assert [step | {"training/total_steps": 4} for step in untimed(resumed)] == untimed(straight)
    weights = [(tmp_path / name / "run/huggingface/model.safetensors").read_bytes() for name in ("straight", "stopped")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_workers_on_ray_score_on_a_pool_of_their_own(scorer, model, tmp_path):
    folder, _ = scorer
    more = [
        "reward_model.enable=true",
        f"reward_model.model.path={folder}/run/huggingface",
        "reward_model.enable_resource_pool=true",
        "reward_model.nnodes=1",
        "reward_model.n_gpus_per_node=1",
        "trainer.runtime=ray",
        "trainer.total_training_steps=1",
    ]
    (step,) = train(model, tmp_path, *more)
    assert step["reward/missing"] == 0
    assert step["timing_s/reward"] > 0
