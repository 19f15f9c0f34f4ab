import pytest
from rl_core.errors import ConfigError
from rl_core.single_controller.base.device import physical_device


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("6,7", [(0, "6"), (1, "7")]),
        ("3,1", [(0, "3"), (1, "1")]),
        (" 3 , 1 ", [(0, "3"), (1, "1")]),
        ("GPU-aaaa,GPU-bbbb", [(0, "GPU-aaaa"), (1, "GPU-bbbb")]),
        (None, [(0, "0"), (1, "1")]),
    ],
)
def test_logical_index_and_physical_id(visible, expected):
    assert [tuple(physical_device(visible, rank)) for rank in range(2)] == expected


def test_a_scheduler_that_leaves_the_variable_alone():
    assert [tuple(physical_device(None, rank, [2, 3])) for rank in range(2)] == [(2, "2"), (3, "3")]


def test_a_scheduler_that_assigns_from_what_is_visible():
    assert tuple(physical_device("4,5,6,7", 1, ["5", "7"])) == (3, "7")


@pytest.mark.parametrize("visible", ["", "-1", " "])
def test_no_device_is_an_error_when_one_is_needed(visible):
    with pytest.raises(ConfigError, match=r"local rank 0 needs a device, but .* lists none"):
        physical_device(visible, 0)


def test_a_negative_entry_hides_what_follows():
    assert physical_device("2,-1,3", 0).physical == "2"
    with pytest.raises(ConfigError, match=r"local rank 1 .* lists 1 \(2\)"):
        physical_device("2,-1,3", 1)


def test_more_workers_than_devices():
    with pytest.raises(ConfigError, match=r"local rank 2 needs a device, but .*'6,7' lists 2 \(6, 7\)"):
        physical_device("6,7", 2)
    with pytest.raises(ConfigError, match=r"the scheduler assigned 1 \(2\)"):
        physical_device(None, 1, [2])


def test_an_assignment_outside_of_what_is_visible():
    with pytest.raises(ConfigError, match=r"device 0 was assigned .* only 2 \(6, 7\)"):
        physical_device("6,7", 0, [0])


def test_a_uuid_without_the_variable_has_no_index():
    with pytest.raises(ConfigError, match="GPU-aaaa was assigned by its UUID"):
        physical_device(None, 0, ["GPU-aaaa"])
