import subprocess
import sys

import pytest
import rl_report


def test_every_public_name_is_there():
    assert all(getattr(rl_report, name) for name in rl_report.__all__)
    assert set(rl_report.__all__) <= set(dir(rl_report))


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rl_report.nothing  # noqa: B018


def test_importing_it_loads_nothing_that_draws():
    code = (
        "import sys, rl_report, rl_report.plugin; print({'matplotlib', 'jinja2', 'plotext', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
