import pytest
from rl_core.plugins import reset_registry


@pytest.fixture(scope="module")
def installed_fakes():
    """The fakes and core's own parts, whatever else is installed beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_PLUGINS", "rl-testing")
        reset_registry()
        yield
    reset_registry()
