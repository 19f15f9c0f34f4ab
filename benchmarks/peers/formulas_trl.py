"""TRL's side of `benchmarks/formulas_trl.py`: runs TRL's own trainers on given numbers. Imports nothing of ours.

    python benchmarks/peers/formulas_trl.py CASES.pt ANSWERS.pt

Advantages come out of `_generate_and_score_completions` of a real trainer with a tiny random model, whose reward functions
return the given rewards; losses out of `_compute_loss`, whose log-probs are replaced by the given ones.
"""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.experimental.gmpo import GMPOTrainer
from trl.trainer.utils import entropy_from_logits, selective_log_softmax

WORDS = ["<pad>", "<eos>", "<unk>", "one", "two", "three", "four"]


def tiny() -> tuple[Any, Any]:
    """A model and a tokenizer that generate something."""
    vocabulary = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    vocabulary.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=vocabulary, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(WORDS), num_key_value_heads=2, pad_token_id=0, eos_token_id=1, **sizes)
    return Qwen2ForCausalLM(config), tokenizer


def make_trainer(trainer_class: Any, config_class: Any, rewards: torch.Tensor, **keys: Any) -> Any:
    """A trainer whose k-th reward function returns column k of ``rewards`` [B, K]."""
    model, tokenizer = tiny()
    functions = []
    for number, column in enumerate(rewards.T.tolist()):

        def reward(completions: list[str], column: list[float] = column, **_: Any) -> list[float | None]:
            return [None if value != value else value for value in column[: len(completions)]]

        reward.__name__ = f"reward_{number}"
        functions.append(reward)
    config = config_class(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=len(rewards),
        num_generations=4,
        max_completion_length=4,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        **keys,
    )
    dataset = Dataset.from_list([{"prompt": "one two"}] * len(rewards))
    return trainer_class(
        model=model, reward_funcs=functions, args=config, train_dataset=dataset, processing_class=tokenizer
    )


def advantages(case: dict[str, Any]) -> torch.Tensor:
    """[B] what the trainer of ``case`` makes of its rewards."""
    classes = {"grpo": (GRPOTrainer, GRPOConfig), "rloo": (RLOOTrainer, RLOOConfig)}[case["trainer"]]
    trainer = make_trainer(*classes, case["rewards"], **case["keys"])
    trainer.model.train()
    inputs = [{"prompt": "one two"} for _ in range(len(case["rewards"]))]
    result: torch.Tensor = trainer._generate_and_score_completions(inputs)["advantages"]
    return result


def loss(case: dict[str, Any], trainer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and its gradient by the log-probs [B, T]."""
    keys = {"loss_type": "grpo", "importance_sampling_level": "token", "beta": 0.0, "delta": None} | case["keys"]
    for name in ("loss_type", "importance_sampling_level", "beta", "epsilon_low", "epsilon_high"):
        setattr(trainer, name, keys[name])
    trainer.args.delta = keys["delta"]
    trainer.args.use_bias_correction_kl = False
    trainer.args.sapo_temperature_pos, trainer.args.sapo_temperature_neg = keys.get("tau", (1.0, 1.05))
    trainer.max_completion_length = keys.get("max_completion_length", 1)
    trainer.use_vllm = "weights" in case
    trainer.vllm_importance_sampling_correction = True
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = 1
    trainer.model.train()
    log_prob = case["log_prob"].clone().requires_grad_()
    mask = case["mask"].to(log_prob.dtype)
    entropy = torch.zeros_like(log_prob)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (log_prob, entropy, None)
    inputs = {
        "prompt_ids": torch.zeros(len(mask), 1, dtype=torch.int64),
        "prompt_mask": torch.ones(len(mask), 1),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.int64),
        "completion_mask": mask,
        "advantages": case["advantages"],
        "old_per_token_logps": case["old_log_prob"],
        "ref_per_token_logps": case["ref_log_prob"],
        "num_items_in_batch": mask.sum(),
        "importance_sampling_ratio": case.get("weights"),
    }
    trainer_class = GMPOTrainer if case["trainer"] == "gmpo" else GRPOTrainer
    value = trainer_class._compute_loss(trainer, trainer.model, inputs)
    (gradient,) = torch.autograd.grad(value, log_prob)
    return value.detach(), gradient


def main() -> None:
    """Answer every case."""
    torch.manual_seed(0)
    cases: dict[str, dict[str, Any]] = torch.load(sys.argv[1])
    shared = make_trainer(GRPOTrainer, GRPOConfig, torch.zeros(8, 1))
    answers: dict[str, Any] = {"version": importlib.metadata.version("trl")}
    for name, case in cases.items():
        if case["kind"] == "advantage":
            answers[name] = advantages(case)
        elif case["kind"] == "loss":
            answers[name] = loss(case, shared)
        else:
            logits = case["logits"]
            answers[name] = selective_log_softmax(logits, case["tokens"]), entropy_from_logits(logits)
    torch.save(answers, sys.argv[2])


if __name__ == "__main__":
    main()
