import json

from rl_rewards import (
    countdown,
    exact,
    format,
    geometry3k,
    gsm8k,
    math,
    multiple_choice,
    numeric,
    reasoning_gym,
    search_qa,
)
from rl_testing.contracts.reward import RewardCase, RewardContract


class TestGsm8k(RewardContract):
    compute_score = staticmethod(gsm8k.compute_score)
    cases = (RewardCase("#### 4", "4", 1.0), RewardCase("#### 5", 4, 0.0))


class TestGsm8kFlexible(RewardContract):
    compute_score = staticmethod(gsm8k.flexible_score)
    cases = (RewardCase("it is 4", "4", 1.0), RewardCase("it is 5", "4", 0.0))


class TestMath(RewardContract):
    compute_score = staticmethod(math.compute_score)
    cases = (RewardCase(r"\boxed{\frac{2}{4}}", "1/2", 1.0), RewardCase(r"\boxed{2}", "1/2", 0.0))


class TestGeometry3k(RewardContract):
    compute_score = staticmethod(geometry3k.compute_score)
    cases = (RewardCase(r"<think>a</think> \boxed{4}", "4", 1.0), RewardCase(r"\boxed{5}", "4", 0.0))


class TestCountdown(RewardContract):
    compute_score = staticmethod(countdown.compute_score)
    cases = (
        RewardCase("<answer>3*5</answer>", {"target": 15, "numbers": [3, 5]}, 1.0),
        RewardCase("<answer>15</answer>", {"target": 15, "numbers": [3, 5]}, 0.0),
    )


class TestNumeric(RewardContract):
    compute_score = staticmethod(numeric.compute_score)
    cases = (RewardCase("it is 4", 4.0, 1.0), RewardCase("it is 5", "4", 0.0))


class TestExact(RewardContract):
    compute_score = staticmethod(exact.compute_score)
    cases = (RewardCase("Paris", "Paris", 1.0), RewardCase("Lyon", ["Paris"], 0.0))


class TestMultipleChoice(RewardContract):
    compute_score = staticmethod(multiple_choice.compute_score)
    cases = (RewardCase("Answer: B", "B", 1.0), RewardCase("Answer: C", 1, 0.0))


class TestFormat(RewardContract):
    compute_score = staticmethod(format.compute_score)
    cases = (
        RewardCase("<think>a</think><answer>b</answer>", None, 1.0),
        RewardCase("<answer>b</answer>", None, 0.0),
    )


class TestSearchQA(RewardContract):
    compute_score = staticmethod(search_qa.compute_score)
    cases = (
        RewardCase("<answer>the Nile</answer>", {"target": ["Nile"]}, 1.0),
        RewardCase("<answer>Rhine</answer>", {"target": ["Nile"]}, 0.0),
    )


ENTRY = json.dumps({"question": "1 + 2 = ?", "answer": "3", "metadata": {"source_dataset": "chain_sum"}})


class TestReasoningGym(RewardContract):
    compute_score = staticmethod(reasoning_gym.compute_score)
    cases = (
        RewardCase("<answer>3</answer>", ENTRY, 1.0, data_source="reasoning_gym/chain_sum"),
        RewardCase("it is 3", ENTRY, 0.0, data_source="reasoning_gym/chain_sum"),
    )
