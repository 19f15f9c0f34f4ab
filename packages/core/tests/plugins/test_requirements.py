from __future__ import annotations

import shutil

import pytest
from rl_core.errors import PluginError
from rl_core.plugins.requirements import check_requirements, parse_alternatives


@pytest.fixture
def check(install):
    install("acme-cpu", None, version="1.5", entry_points={})
    install("acme-nightly", None, version="2.1.0.dev3+cu13", entry_points={})
    return lambda requirement: check_requirements([requirement])[0]


@pytest.mark.parametrize(
    ("requirement", "satisfied", "found"),
    [
        ("acme-cpu", True, "acme-cpu 1.5"),
        ("acme-cpu>=1.2,<2", True, "acme-cpu 1.5"),
        ("acme_CPU>=1.2,<2", True, "acme_CPU 1.5"),
        ("acme-cpu>=1.2,<1.5", False, "acme-cpu 1.5"),
        ("acme>=1.2", False, "nothing"),
        ("acme>=1.2 | acme-cpu>=1.1", True, "acme-cpu 1.5"),
        ("acme>=1.2 | acme-cpu>=1.6", False, "acme-cpu 1.5"),
        ("acme-nightly>=2,<3", True, "acme-nightly 2.1.0.dev3+cu13"),
        ("acme-cpu>=1.6 | acme-nightly>=2", True, "acme-cpu 1.5, acme-nightly 2.1.0.dev3+cu13"),
        ("acme>=1.2; sys_platform == 'plan9'", True, "nothing needed on this platform"),
        ("acme; sys_platform == 'plan9' | acme-cpu<1", False, "acme-cpu 1.5"),
    ],
)
def test_alternatives_and_ranges(check, requirement, satisfied, found):
    result = check(requirement)
    assert (result.satisfied, result.found, result.requirement) == (satisfied, found, requirement)


def test_no_module_is_imported(check, install):
    install("acme-loud", "raise RuntimeError('imported')", entry_points={})
    assert check("acme-loud").satisfied


def test_metadata_without_a_version_does_not_satisfy(check, install, tmp_path):
    install("acme-torn", None, entry_points={})
    (info,) = tmp_path.glob("site/acme_torn*")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-torn\n")
    assert not check("acme-torn").satisfied
    assert check("acme-torn").found == "acme-torn of unknown version"
    shutil.rmtree(info)
    assert check("acme-torn").found == "nothing"


def test_syntax_errors_name_the_part():
    with pytest.raises(PluginError, match="'b=1', which is no requirement"):
        parse_alternatives("a>=1 | b=1")
