from __future__ import annotations

from rl_testing.contracts.columns import ColumnsContract


class TestDataProto(ColumnsContract):
    pass
