import sys

import pytest
from rl_core.config import device_size
from rl_core.config.device_size import local_device_bytes, smallest


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("143771\n81559\n", 81559 * 2**20),
        ("", None),
        ("No devices were found\n", None),
        ("[N/A]\n24576\n", 24576 * 2**20),
    ],
)
def test_the_smallest_counts(listed, expected):
    assert smallest(listed) == expected


@pytest.mark.parametrize(("code", "expected"), [("print(100); print(200)", 100 * 2**20), ("print(7); exit(9)", None)])
def test_the_drivers_tool_is_asked(code, expected, tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!{sys.executable}\n{code}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(device_size.shutil, "which", lambda name: str(tool))
    assert local_device_bytes() == expected


def test_a_machine_without_the_tool(monkeypatch):
    monkeypatch.setattr(device_size.shutil, "which", lambda name: None)
    assert local_device_bytes() is None
