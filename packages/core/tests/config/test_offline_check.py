from __future__ import annotations

import pytest
from rl_core.config import compose_sft
from rl_core.config.check import BATCH, ENGINES, INERT, STEPS, check_config

MODEL = "model.path=m"
LOCAL = "trainer.runtime=local"


@pytest.fixture
def report(registry):
    def report(*overrides, rows=None):
        config = compose_sft([MODEL, LOCAL, *overrides], registry=registry)
        return check_config(config, None, registry, rows)

    return report


def test_batches_in_words(report):
    (line,) = report("data.train_batch_size=8").lines(BATCH)
    assert line == (
        "data.train_batch_size: 8 conversations per optimizer step, 8 on the worker, packed into passes of at most 8,192 "
        "tokens."
    )
    (line,) = report("data.train_batch_size=8", "data.micro_batch_size_per_gpu=2").lines(BATCH)
    assert line.endswith("in passes of 2.")
    uneven = report("data.train_batch_size=8", "trainer.n_gpus_per_node=3", "trainer.runtime=ray").lines(BATCH)
    assert "up to 3 on each of 3 data-parallel workers" in uneven[0]


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            ["data.train_batch_size=1", "trainer.n_gpus_per_node=2", "trainer.runtime=ray"],
            "less than the 2 data-parallel",
        ),
        (["data.use_dynamic_bsz=false"], "no micro-batch size is given"),
        (["trainer.resume_mode=resume_path"], "resume_from_path is not set"),
        (["engine.strategy=megatron", "trainer.device=cpu"], "trainer.device is cpu, which needs 'cpu'"),
        (["engine.strategy=plain", "model.lora_rank=8"], "model.lora_rank is 8, which needs 'lora'"),
        (["model.lora_adapter_path=a"], "model.lora_adapter_path is a, but model.lora_rank is 0"),
        (
            ["engine.strategy=megatron", "engine.megatron.tensor_model_parallel_size=2"],
            "1 workers cannot be cut into groups of 2",
        ),
        (["trainer.n_gpus_per_node=2"], "backend 'fsdp' needs a process for each worker"),
    ],
)
def test_what_cannot_run_is_refused(report, overrides, text):
    assert text in "\n".join(error.text for error in report(*overrides).errors)


def test_steps(report):
    steps = "\n".join(report("data.train_batch_size=10", "trainer.total_epochs=2", rows=25).lines(STEPS))
    assert "25 rows / 10 = 2 steps per epoch, 5 rows left over per epoch; x 2 epochs, 4 steps in all." in steps
    (error,) = report("data.train_batch_size=10", rows=5).errors
    assert error.text.startswith("data.train_batch_size (10) exceeds the 5 training rows")


def test_engines_and_warnings(report, registry):
    assert report().lines(ENGINES) == ["backend 'fsdp', capabilities: cpu, lora, sequence_parallel."]
    (warning,) = report("data.max_token_len_per_gpu=64").warnings
    assert "such a conversation runs alone" in warning.text
    (warning,) = check_config(compose_sft([LOCAL], registry=registry), None, registry).warnings
    assert warning.text.startswith("model.path is not set")


def test_keys_without_effect(report):
    lines = report(
        "data.max_token_len_per_gpu=4096",
        "data.micro_batch_size_per_gpu=2",
        "data.shuffle=false",
        "data.seed=3",
        "trainer.test_freq=5",
        "model.lora_alpha=2",
        "engine.fsdp_config.fsdp_size=2",
    ).lines(INERT)
    assert [line.partition(" has no effect: ")[0] for line in lines] == [
        "data.max_token_len_per_gpu",
        "data.seed",
        "trainer.test_freq",
        "model.lora_alpha",
        "engine.fsdp_config.fsdp_size",
    ]
    assert report("data.val_files=v.jsonl", "trainer.test_freq=5").lines(INERT) == []
