import os

import pytest
import torch
from rl_engine.determinism import deterministic_kernels, prepare_determinism


def test_the_switch_is_on_inside_and_what_it_was_outside():
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic_kernels(wanted=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_it_is_put_back_after_a_failure():
    with pytest.raises(ZeroDivisionError), deterministic_kernels(wanted=True):
        1 / 0  # noqa: B018
    assert not torch.are_deterministic_algorithms_enabled()


def test_nothing_changes_where_it_is_not_wanted():
    with deterministic_kernels(wanted=False):
        assert not torch.are_deterministic_algorithms_enabled()


def test_an_own_workspace_setting_stays(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    prepare_determinism()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
