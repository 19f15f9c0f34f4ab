import logging

import pytest
import torch
from rl_demo.quiet import one_quiet_thread
from transformers.utils import logging as transformers_logging


def state():
    level = logging.getLogger("torch.fx._symbolic_trace").level
    return torch.get_num_threads(), transformers_logging.is_progress_bar_enabled(), level


def test_everything_is_as_before_also_after_a_failure():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        before = state()
        with pytest.raises(KeyError), one_quiet_thread():
            assert state() == (1, False, logging.ERROR)
            raise KeyError
        assert state() == before
    finally:
        torch.set_num_threads(threads)
