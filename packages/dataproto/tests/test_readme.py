"""The README's example runs."""

from __future__ import annotations

import re
from pathlib import Path


def test_examples_run():
    text = (Path(__file__).parents[1] / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 1
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
