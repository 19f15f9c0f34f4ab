import numpy as np
import pytest
from rl_core.data.loader import PromptLoader
from rl_core.data.mixing import Mixture
from rl_core.errors import CheckpointError, ConfigError


def loader(num_rows=6, **overrides):
    options = {"batch_size": 2, "epochs": 2, "shuffle": True, "seed": 7}
    return PromptLoader([{"id": row} for row in range(num_rows)], **(options | overrides))


def ids(batch):
    return [item["id"] for item in batch]


def draw_all(source):
    drawn = []
    while True:
        try:
            drawn.append(ids(source.next()))
        except StopIteration:
            return drawn


def test_every_epoch_sees_every_row_once_in_an_order_of_its_own():
    drawn = draw_all(loader())

    assert len(drawn) == 6
    visited = [row for batch in drawn for row in batch]
    assert sorted(visited[:6]) == sorted(visited[6:]) == list(range(6))
    assert drawn[:3] != drawn[3:]
    assert draw_all(loader()) == drawn
    assert draw_all(loader(seed=8)) != drawn


@pytest.mark.parametrize("stop_after", [2, 3, 6])
def test_b88_resume_goes_on_exactly_also_at_an_epoch_boundary(stop_after):
    straight = draw_all(loader())
    first = loader()
    for _ in range(stop_after):
        first.next()
    second = loader()
    second.load_state_dict(first.state_dict())

    assert draw_all(second) == straight[stop_after:]


def test_b88_other_data_or_batch_size_is_refused():
    state = loader().state_dict()
    with pytest.raises(CheckpointError, match="num_rows=6, this run has 8"):
        loader(num_rows=8).load_state_dict(state)
    with pytest.raises(CheckpointError, match="batch_size=2, this run has 3"):
        loader(batch_size=3).load_state_dict(state)
    with pytest.raises(CheckpointError, match="seed=3, this run has 4: the order of prompts would differ"):
        loader(seed=4).load_state_dict(loader(seed=3).state_dict())
    with pytest.raises(CheckpointError, match="shuffle=True, this run has False"):
        loader(shuffle=False).load_state_dict(loader(shuffle=True).state_dict())


def test_incomplete_last_batch_is_dropped():
    assert [len(batch) for batch in draw_all(loader(num_rows=5, epochs=3))] == [2] * 6


def test_fewer_rows_than_a_batch():
    with pytest.raises(ConfigError, match=r"train_batch_size is 2.*only 1 prompts"):
        loader(num_rows=1)


def test_a_batch_can_be_had_again_without_moving_on():
    drawn, again = draw_all(loader()), loader()
    assert [ids(again.batch(number)) for number in reversed(range(len(again)))] == drawn[::-1]
    assert again.state_dict()["num_drawn"] == 0


def test_the_fingerprint_sees_every_number_of_every_item():
    def fingerprint(*rows):
        items = [{"input_ids": np.array(row)} for row in rows]
        source = PromptLoader(items, batch_size=1, epochs=1, shuffle=False, seed=0, identity=("input_ids",))
        return source.fingerprint

    long = list(range(5000))
    changed = [*long[:2500], 0, *long[2501:]]
    assert fingerprint(long, [1]) == fingerprint(long, [1])
    assert (
        len({fingerprint(*rows) for rows in ((long, [1]), (changed, [1]), ([1], long), ([1, 2], [3]), ([1], [2, 3]))})
        == 5
    )


MIXED = {"batch_size": 3, "epochs": 3, "mixture": Mixture((6, 3), (1.0, 2.0))}


def test_a_mixture_draws_its_sources_in_proportion():
    drawn = draw_all(loader(9, **MIXED))
    assert len(drawn) == 9
    shares = [sum(row >= 6 for row in batch) for batch in drawn]
    assert shares == [2] * 9
    small = [row for batch in drawn for row in batch if row >= 6]
    assert all(sorted(small[lap : lap + 3]) == [6, 7, 8] for lap in range(0, 18, 3)), "each goes round at its own pace"
    large = [row for batch in drawn for row in batch if row < 6]
    assert sorted(large[:6]) == list(range(6))


@pytest.mark.parametrize("stop_after", [1, 3, 5, 6])
def test_b88_a_mixture_goes_on_exactly_also_at_an_epoch_boundary(stop_after):
    straight = draw_all(loader(9, **MIXED))
    first = loader(9, **MIXED)
    for _ in range(stop_after):
        first.next()
    second = loader(9, **MIXED)
    second.load_state_dict(first.state_dict())
    assert draw_all(second) == straight[stop_after:]


def test_b88_another_mixture_is_refused():
    state = loader(9, **MIXED).state_dict()
    other = loader(9, **(MIXED | {"mixture": Mixture((6, 3), (1.0, 1.0))}))
    with pytest.raises(CheckpointError, match=r"6 rows \(weight 1\), 3 rows \(weight 2\), this run has 6 rows"):
        other.load_state_dict(state)
    with pytest.raises(CheckpointError, match="this run has none"):
        loader(9, batch_size=3).load_state_dict(state)
    with pytest.raises(CheckpointError, match="over files of none"):
        other.load_state_dict(loader(9, batch_size=3).state_dict())
