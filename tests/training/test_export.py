"""``rl export``: what a run has learned, from a checkpoint of any number of workers, as plain transformers and PEFT read it."""

import json
import shutil

import pytest
import torch
from rl_core.errors import CheckpointError, ConfigError
from rl_core.plugins import get_registry
from rl_core.trainer.export_source import find_checkpoint, run_config, saved_model
from rl_core.trainer.main_export import loaded, main
from rl_testing.contracts.engine_batch import as_batch, make_rows
from rl_testing.models import save_tiny_model
from safetensors.torch import load_file
from sft_runs import fine_tune
from tiny_runs import train
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer, GenerationConfig

pytestmark = pytest.mark.heavy

RAY = ["trainer.runtime=ray", "trainer.device=cpu", "trainer.n_gpus_per_node=2"]
ROWS = make_rows(64)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Its own folder: a test moves it."""
    return save_tiny_model(tmp_path_factory.mktemp("export") / "model", initializer_range=0.05)


@pytest.fixture(scope="module")
def ppo(model, tmp_path_factory):
    """Policy with adapters and critic of two workers, after two steps."""
    folder = tmp_path_factory.mktemp("ppo")
    train(
        model,
        folder,
        *RAY,
        "algorithm.adv_estimator=gae",
        "actor_rollout_ref.model.lora_rank=4",
        "actor_rollout_ref.actor.fsdp_config.fsdp_size=2",
        "critic.fsdp_config.fsdp_size=1",
        "trainer.total_training_steps=2",
        "trainer.save_freq=1",
    )
    return folder / "run"


@pytest.fixture(scope="module")
def sft(model, tmp_path_factory):
    """All weights, of two workers; the run itself exports after its last step."""
    folder = tmp_path_factory.mktemp("sft")
    fine_tune(folder, f"model.path={model}", "engine.strategy=fsdp", "optim.lr=0.1", *RAY, "trainer.save_freq=2")
    return folder / "run"


def engine_outputs(run, name, output):
    """What the engine says of the responses of ROWS with the newest checkpoint's weights."""
    registry = get_registry()
    checkpoint = find_checkpoint(str(run))
    engine = loaded(saved_model(checkpoint, run_config(checkpoint, [], registry), name, registry), None, registry)
    engine.config = type(engine.config)(**{**vars(engine.config), "forward_micro_batch_size": 2})
    try:
        return list(engine.forward(as_batch(ROWS), {output}).batch[output].unbind())
    finally:
        engine.close()


def logits(model, row):
    ids = torch.cat([row.prompt, row.response])
    with torch.no_grad():
        found = model.eval()(ids[None]).logits[0]
    return found[len(row.prompt) - 1 : -1]


def assert_policy(model, run):
    for row, expected in zip(ROWS, engine_outputs(run, "actor", "log_probs"), strict=True):
        found = logits(model, row).log_softmax(-1).gather(1, row.response[:, None])[:, 0]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_all_weights_are_those_that_the_run_itself_exported(sft, tmp_path):
    assert main([str(sft), str(tmp_path / "out")]) == 0
    mine, its = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out", sft / "huggingface"))
    assert mine.keys() == its.keys()
    assert all(torch.equal(mine[name], its[name]) for name in its)
    assert_policy(AutoModelForCausalLM.from_pretrained(tmp_path / "out"), sft)


def test_an_older_checkpoint_is_another_model(sft, tmp_path):
    main([str(sft / "global_step_2"), str(tmp_path / "out")])
    older, newest = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out", sft / "huggingface"))
    assert not all(torch.equal(older[name], newest[name]) for name in newest)
    assert json.loads((tmp_path / "out/rl_export.json").read_text()) == {"run": str(sft), "step": 2, "role": "actor"}


def test_tokenizer_and_generation_settings_come_along(sft, model, tmp_path):
    main([str(sft), str(tmp_path / "out")])
    turn = [{"role": "user", "content": "1+1="}]
    texts = [
        AutoTokenizer.from_pretrained(f).apply_chat_template(turn, tokenize=False) for f in (model, tmp_path / "out")
    ]
    assert texts[0] == texts[1]
    eos = [GenerationConfig.from_pretrained(folder).eos_token_id for folder in (model, tmp_path / "out")]
    assert eos[0] == eos[1] is not None


def test_dtype(sft, tmp_path):
    main([str(sft), str(tmp_path / "out"), "--dtype", "bf16"])
    half, whole = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out", sft / "huggingface"))
    assert all(torch.equal(half[name], whole[name].bfloat16()) for name in whole)
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "bfloat16"


def test_adapters_merged_and_alone_are_the_policy(ppo, model, tmp_path):
    from peft import PeftModel

    main([str(ppo), str(tmp_path / "merged"), "--merge-lora"])
    assert_policy(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"), ppo)
    main([str(ppo), str(tmp_path / "adapter"), "--adapter"])
    base = AutoModelForCausalLM.from_pretrained(model)
    with pytest.raises(AssertionError, match="not close"):
        assert_policy(base, ppo)
    assert_policy(PeftModel.from_pretrained(base, tmp_path / "adapter"), ppo)
    assert not (tmp_path / "adapter/model.safetensors").exists()


def test_the_critics_values_are_those_of_a_token_classifier(ppo, tmp_path):
    main([str(ppo), str(tmp_path / "out"), "--role", "critic"])
    critic = AutoModelForTokenClassification.from_pretrained(tmp_path / "out")
    expected = engine_outputs(ppo, "critic", "values")
    assert torch.cat(expected).abs().max() > 0
    for row, values in zip(ROWS, expected, strict=True):
        torch.testing.assert_close(logits(critic, row)[:, 0], values, rtol=1e-5, atol=1e-5)


def test_a_base_that_has_moved_is_named(ppo, model, tmp_path):
    moved = shutil.copytree(model, tmp_path / "moved")
    main([str(ppo), str(tmp_path / "out"), "--adapter", f"actor_rollout_ref.model.path={moved}"])
    config = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(moved)


def test_refusals(ppo, sft, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("")
    with pytest.raises(ConfigError, match="overwrites nothing"):
        main([str(sft), str(tmp_path / "mine")])
    main([str(sft), str(tmp_path / "out")])
    with pytest.raises(ConfigError, match="overwrites nothing"):
        main([str(sft), str(tmp_path / "out")])
    with pytest.raises(ConfigError, match="--adapter was given, but the actor of this run has no adapters"):
        main([str(sft), str(tmp_path / "new"), "--adapter"])
    with pytest.raises(CheckpointError, match=r"--role is critic, but .* holds actor"):
        main([str(sft), str(tmp_path / "new"), "--role", "critic"])
    with pytest.raises(CheckpointError, match="holds no complete checkpoint"):
        main([str(tmp_path), str(tmp_path / "new")])
    with pytest.raises(ConfigError, match="lora_rnk"):
        main([str(ppo), str(tmp_path / "new"), "actor_rollout_ref.model.lora_rnk=8"])
    with pytest.raises(ConfigError, match="needs a CHECKPOINT and an OUT"):
        main([str(sft)])
    assert not (tmp_path / "new").exists()
