"""The batch under the walkthrough's path."""

from __future__ import annotations

import rl_core.protocol
import rl_dataproto


def test_names_are_those_of_rl_dataproto():
    for name in rl_core.protocol.__all__:
        assert getattr(rl_core.protocol, name) is getattr(rl_dataproto, name)
    assert {"DataProto", "DataProtoFuture", "pad_dataproto_to_divisor", "unpad_dataproto"} <= set(
        rl_core.protocol.__all__
    )
