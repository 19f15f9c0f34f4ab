import json

import pytest
from rl_core.config.data import DataConfig
from rl_core.data import parallel
from rl_core.data.prompts import PromptDataset
from rl_core.errors import DataError
from rl_testing.fakes.tokenizer import TinyTokenizer


def test_few_rows_stay_here():
    assert list(parallel.map_rows(lambda number: number + 1, range(5), 4)) == [1, 2, 3, 4, 5]


@pytest.mark.heavy
def test_several_processes_give_the_same_rows_in_the_same_order(tmp_path):
    path = tmp_path / "d.jsonl"
    rows = [{"prompt": "a" * (1 + number % 40), "index": number} for number in range(parallel.SMALLEST)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def made(workers):
        config = DataConfig(max_prompt_length=30, filter_overlong_prompts=True, filter_overlong_prompts_workers=workers)
        return PromptDataset(str(path), config, TinyTokenizer())

    one, two = made(1), made(2)
    assert two.items == one.items
    assert one.num_filtered == two.num_filtered == 500


@pytest.mark.heavy
def test_the_first_broken_row_is_named_whatever_process_met_it(tmp_path):
    path = tmp_path / "d.jsonl"
    rows = [{"prompt": "a"} for _ in range(parallel.SMALLEST)]
    rows[700] = rows[1900] = {"question": "b"}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"d\.jsonl: row 700 has no column"):
        PromptDataset(str(path), DataConfig(filter_overlong_prompts_workers=2), TinyTokenizer())
