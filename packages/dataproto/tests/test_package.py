"""What importing the package loads, and what its errors are."""

from __future__ import annotations

import subprocess
import sys

import pytest
import rl_dataproto
from rl_dataproto import errors


def test_importing_the_package_loads_no_torch():
    code = "import sys, rl_dataproto; print({'torch', 'tensordict', 'numpy', 'ray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_every_public_name_is_found_and_listed():
    for name in rl_dataproto.__all__:
        assert getattr(rl_dataproto, name) is not None
    assert set(rl_dataproto.__all__) <= set(dir(rl_dataproto))
    assert set(rl_dataproto.__all__) == {*rl_dataproto._HOME_OF, "__version__"}
    with pytest.raises(AttributeError, match="'DataProtos'"):
        rl_dataproto.DataProtos  # noqa: B018


def test_one_except_clause_covers_every_error():
    found = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, Exception)]
    assert len(found) == 11
    assert all(issubclass(item, rl_dataproto.DataProtoError) for item in found)
    assert issubclass(rl_dataproto.MissingColumnError, KeyError)
    assert issubclass(rl_dataproto.RowIndexError, IndexError)
    assert issubclass(rl_dataproto.FutureTimeoutError, TimeoutError)
    assert issubclass(rl_dataproto.DataProtoTypeError, TypeError)
    assert str(rl_dataproto.MissingColumnError("No column 'x'.")) == "No column 'x'."
