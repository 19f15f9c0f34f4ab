import pytest
from rl_core.plugins import reset_registry


@pytest.fixture(scope="module", autouse=True)
def installed():
    """Core, the fakes and these recipes, whatever else is installed beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_PLUGINS", "rl-testing,rl-recipes")
        reset_registry()
        yield
    reset_registry()
