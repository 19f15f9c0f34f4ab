from rl_core.trainer.ppo.seeding import group_uid, request_seed


def test_request_seed_depends_on_every_argument_and_on_nothing_else():
    seeds = {request_seed(s, t, r, n) for s in range(3) for t in range(3) for r in range(3) for n in range(3)}

    assert len(seeds) == 81
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert request_seed(1, 2, 3, 4) == 1159737786199761749  # blake2b of '1/2/3/4': a change would change every run


def test_arguments_do_not_run_into_each_other():
    assert request_seed(1, 11, 1, 1) != request_seed(11, 1, 1, 1) != request_seed(1, 1, 11, 1)


def test_uids_sort_in_batch_order():
    assert sorted([group_uid(2, 0), group_uid(1, 10), group_uid(1, 9)]) == [
        group_uid(1, 9),
        group_uid(1, 10),
        group_uid(2, 0),
    ]
