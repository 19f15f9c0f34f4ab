"""Process-wide settings."""

from __future__ import annotations

import pytest
from rl_dataproto import DataProtoConfig, DataProtoTypeError


def test_auto_padding_follows_the_environment_until_it_is_set(monkeypatch):
    for text, expected in (("", False), ("false", False), ("1", True), ("true", True), ("True", True)):
        monkeypatch.setenv("RL_AUTO_PADDING", text)
        assert DataProtoConfig.auto_padding is expected
    try:
        DataProtoConfig.auto_padding = False
        assert DataProtoConfig.auto_padding is False
        DataProtoConfig.auto_padding = True
        monkeypatch.delenv("RL_AUTO_PADDING")
        assert DataProtoConfig.auto_padding is True
        with pytest.raises(DataProtoTypeError, match="'yes'"):
            DataProtoConfig.auto_padding = "yes"
    finally:
        DataProtoConfig.auto_padding = None
    assert DataProtoConfig.auto_padding is False
