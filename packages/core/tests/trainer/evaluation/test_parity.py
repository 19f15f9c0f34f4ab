from types import SimpleNamespace

import torch
from rl_core.trainer.evaluation.parity import common_length, kernel_cause, own_prompts
from rl_core.trainer.ppo.parity_stats import Part
from rl_testing.fakes.tokenizer import TinyTokenizer


def test_built_in_prompts_differ_fit_and_are_as_many_as_asked():
    config = SimpleNamespace(data=SimpleNamespace(max_prompt_length=20))
    items = own_prompts(config, TinyTokenizer(), 30)
    assert len({item["raw_prompt"] for item in items}) == 30
    assert len({len(item["prompt_ids"]) for item in items}) > 1
    assert all(0 < len(item["prompt_ids"]) <= 20 for item in items)


def test_how_far_two_responses_are_the_same():
    def common(one, other):
        return common_length(torch.tensor(one, dtype=torch.int64), torch.tensor(other, dtype=torch.int64))

    assert common([1, 2, 3], [1, 2, 3]) == 3
    assert common([1, 2, 3], [1, 5, 3]) == 1
    assert common([1, 2, 3], [1, 2]) == 2
    assert common([7], [1]) == common([], [1]) == 0


def test_a_side_that_disagrees_with_itself_is_the_cause():
    own = [Part("trainer again, rows alone", 9, 0.03, 0.2), Part("generator again, rows alone", 9, 0.001, 0.2)]
    cause = kernel_cause(0.04, own)
    assert cause.name == "kernels"
    assert cause.evidence.startswith("trainer again, rows alone")
    assert kernel_cause(0.07, own) is None  # most of the gap is something else
    assert kernel_cause(1e-7, [Part("trainer again, rows alone", 9, 1e-7, 1e-6)]) is None
    assert kernel_cause(0.04, []) is None
