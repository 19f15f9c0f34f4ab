import torch
from rl_demo.model import save_model
from rl_demo.tokenizer import VOCABULARY
from transformers import AutoModelForCausalLM


def test_the_seed_decides_the_weights_and_the_global_random_state_stays(tmp_path):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    count = save_model(tmp_path / "a", seed=1)
    save_model(tmp_path / "b", seed=1)
    save_model(tmp_path / "c", seed=2)
    assert torch.equal(torch.get_rng_state(), before)

    first, again, other = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in "abc")
    assert count == sum(weight.numel() for weight in first.parameters()) == 84_416
    assert first.dtype == torch.float32
    assert first.config.vocab_size == len(VOCABULARY) == 17
    assert first.config.eos_token_id == VOCABULARY["<|end|>"]
    assert torch.equal(first.lm_head.weight, again.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
