import torch
from rl_engine.rng import RandomStream, stream_seed


def draw(stream, count=1):
    with stream.active():
        return torch.rand(count).tolist()


def test_a_stream_depends_on_its_seed_alone():
    first, second = RandomStream("cpu"), RandomStream("cpu")
    first.seed(7)
    torch.rand(13)
    second.seed(7)
    assert draw(first, 3) == draw(second, 3)
    assert draw(first) != draw(RandomStream("cpu"))


def test_drawing_leaves_the_world_outside_alone():
    stream = RandomStream("cpu")
    before = torch.get_rng_state()
    draw(stream)
    assert torch.equal(torch.get_rng_state(), before)


def test_two_streams_do_not_disturb_each_other():
    alone = RandomStream("cpu")
    expected = [draw(alone), draw(alone)]
    one, other = RandomStream("cpu"), RandomStream("cpu")
    found = [draw(one)]
    draw(other)
    assert [*found, draw(one)] == expected


def test_the_state_outside_is_restored_after_an_error():
    stream = RandomStream("cpu")
    before = torch.get_rng_state()
    try:
        with stream.active():
            torch.rand(1)
            raise KeyError
    except KeyError:
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_a_saved_state_goes_on():
    stream = RandomStream("cpu")
    draw(stream)
    state = stream.state_dict()
    expected = draw(stream, 4)
    resumed = RandomStream("cpu")
    resumed.load_state_dict(state)
    assert draw(resumed, 4) == expected


def test_seeds_differ_by_every_argument():
    seeds = {stream_seed(seed, rank, step) for seed in range(5) for rank in range(8) for step in range(50)}
    assert len(seeds) == 5 * 8 * 50
    assert all(0 <= stream_seed(seed, 3, 4) < 2**63 for seed in (0, 2**31, 10**18))
