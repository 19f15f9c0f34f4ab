import pytest
from rl_rewards.sandbox import SandboxError, SandboxSupport, probe

ALL = {"namespaces": True, "landlock": True, "seccomp": True}


def support(**changes):
    layers = ALL | changes
    reasons = {name: "the kernel says no" for name, works in layers.items() if not works}
    return SandboxSupport(layers, reasons, counts_memory=True, limits_processes=True)


@pytest.mark.parametrize(
    ("without", "missing"),
    [
        ([], ()),
        (["landlock"], ()),  # a second wall for files, whose first one is the namespace
        (["seccomp"], ("using rarely needed system calls",)),
        (["namespaces"], ("filling the disk", "reaching other processes", "leaving processes behind")),
        (
            ["namespaces", "landlock"],
            ("reading and changing files", "filling the disk", "reaching other processes", "leaving processes behind"),
        ),
    ],
)
def test_what_is_missing_without_a_layer(without, missing):
    found = support(**dict.fromkeys(without, False))
    assert found.missing == missing
    found.require(allow_weaker=True)
    if missing:
        with pytest.raises(SandboxError, match=f"would not keep code from {missing[0]}.*the kernel says no"):
            found.require()
    else:
        found.require()


def test_nothing_works():
    with pytest.raises(SandboxError, match=r"does not work here: .*namespaces: the kernel says no"):
        support(**dict.fromkeys(ALL, False)).require(allow_weaker=True)


def test_limits_that_do_not_bind_are_missing():
    found = SandboxSupport(ALL, {}, counts_memory=False, limits_processes=False)
    assert found.missing == ("starting processes without end", "taking memory with many processes")


@pytest.mark.heavy
@pytest.mark.sandbox
def test_probe_looks_once():
    assert probe() is probe()
    assert probe().missing == ()
