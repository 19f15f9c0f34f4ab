from rl_core.plugins import get_registry


def test_the_command_is_found_and_loads():
    assert callable(get_registry().load("command", "report"))
