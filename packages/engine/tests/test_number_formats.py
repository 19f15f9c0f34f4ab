import pytest
from rl_core.errors import ConfigError
from rl_engine.models import _DTYPES
from rl_engine.number_formats import bytes_of


@pytest.mark.parametrize("name", _DTYPES)
def test_sizes_are_those_of_torch(name):
    assert bytes_of(name) == bytes_of(f"torch.{name}") == _DTYPES[name].itemsize


def test_an_unknown_format_is_refused():
    with pytest.raises(ConfigError, match="no number format 'int3'"):
        bytes_of("int3")
