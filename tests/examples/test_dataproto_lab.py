"""The walkthrough's lab on batches runs as it stands there, with only the package's name changed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from source_tree import ROOT


@pytest.mark.heavy
def test_lab_prints_what_the_walkthrough_predicts():
    lab = [sys.executable, str(ROOT / "examples" / "dataproto_lab.py")]
    done = subprocess.run(lab, check=True, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == [
        "[torch.Size([2, 4]), torch.Size([2, 4]), torch.Size([2, 4]), torch.Size([2, 4])]",
        "torch.Size([8, 4]) ['0' '1' '2']",
        "['input_ids', 'reward']",
    ]
