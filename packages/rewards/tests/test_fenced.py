import time

import pytest
from rl_rewards.fenced import last_block


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```", "a\n"),
        ("```python\na\n```\n```py\nb\n```", "b\n"),
        ("```python\na\n```\noutput:\n```\n5\n```", "a\n"),  # what it prints is no program
        ("```\na\n```\n```\nb\n```", "b\n"),
        ("```python\na\n```\n```cpp\nb\n```", "a\n"),
        ("```Python3\n  a\n\n    b\n```", "  a\n\n    b\n"),
        ("  ```python\na```\n", "a\n"),
        ("```python\na\n```\n```python\ncut of", "a\n"),
        ("```python\ncut of", None),
        ("```python\n```", "\n"),
        ("no code", None),
        ("", None),
    ],
)
def test_last_block(text, code):
    assert last_block(text) == code


def test_a_degenerate_response_costs_little():
    begin = time.perf_counter()
    assert last_block("```\n" * 300_001) is not None
    assert last_block("`" * 1_000_000) is None
    assert time.perf_counter() - begin < 2
