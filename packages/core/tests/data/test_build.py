import json

import pytest
from rl_core.config.data import CustomClassConfig, DataConfig
from rl_core.data.build import prompt_loader, train_prompts, val_prompts
from rl_core.errors import ConfigError, DataError
from rl_testing.fakes.tokenizer import TinyTokenizer

CLASSES = """
from rl_core.data.prompts import PromptDataset

class Squares:
    num_filtered = 2

    def __init__(self, files, config, tokenizer, *, max_samples=-1):
        self.rows = [{"prompt_ids": tokenizer.encode(str(n * n)), "data_source": files} for n in range(5)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return self.rows[row]

class Mine(PromptDataset):
    def notes(self, what):
        return ["mine"]

class Bare:
    def __init__(self, *arguments, **options):
        pass

class Texts(Squares):
    def __getitem__(self, row):
        return {"prompt_ids": "12"} if row else super().__getitem__(row)

class Long(Squares):
    def __getitem__(self, row):
        return {"prompt_ids": [1] * 9}
"""


@pytest.fixture
def rows(tmp_path):
    def rows(name, count):
        path = tmp_path / name
        path.write_text("".join(json.dumps({"prompt": f"{name} {n}", "index": n}) + "\n" for n in range(count)))
        return str(path)

    return rows


@pytest.fixture
def custom(tmp_path):
    (tmp_path / "classes.py").write_text(CLASSES)

    def custom(name, **options):
        place = CustomClassConfig(path=str(tmp_path / "classes.py"), name=name)
        return train_prompts(DataConfig(custom_cls=place, **options), TinyTokenizer())

    return custom


def test_fewer_training_rows_are_drawn_at_random_only_when_shuffled(rows):
    path = rows("a.jsonl", 30)

    def chosen(**options):
        data = DataConfig(train_files=path, train_max_samples=5, seed=1, **options)
        return [item["index"] for item in train_prompts(data, TinyTokenizer()).items]

    assert chosen(shuffle=False) == [0, 1, 2, 3, 4]
    assert chosen(shuffle=True) == chosen(shuffle=True) != [0, 1, 2, 3, 4]


def test_validation_rows_are_the_first_in_the_files_order_or_a_random_one(rows):
    path = rows("a.jsonl", 30)

    def order(**options):
        data = DataConfig(val_files=path, val_max_samples=20, seed=1, **options)
        return [item["index"] for item in val_prompts(data, TinyTokenizer()).items]

    assert order() == list(range(20))
    shuffled = order(validation_shuffle=True)
    assert shuffled == order(validation_shuffle=True) != order()
    assert sorted(shuffled) == order()


def test_weights_are_those_of_the_files(rows):
    data = DataConfig(train_files=[rows("a.jsonl", 6), rows("b.jsonl", 2)], train_files_weights=[1, 3], shuffle=False)
    loader = prompt_loader(data, train_prompts(data, TinyTokenizer()), batch_size=4, epochs=1, seed=0)
    names = [[item["raw_prompt"].split()[0] for item in loader.next()] for _ in range(2)]
    assert [batch.count("b.jsonl") for batch in names] == [3, 3]


def test_weights_that_do_not_fit(rows):
    data = DataConfig(train_files=[rows("a.jsonl", 6)], train_files_weights=[1, 3])
    with pytest.raises(ConfigError, match="2 numbers for 1 files"):
        prompt_loader(data, train_prompts(data, TinyTokenizer()), batch_size=4, epochs=1, seed=0)


def test_a_class_from_a_file(custom, rows):
    data = custom("Squares", train_files="squares")
    assert TinyTokenizer().decode(data[4]["prompt_ids"]) == "16"
    assert (data[3]["index"], data[3]["raw_prompt"], data.num_filtered) == (3, None, 2)
    assert data.data_sources() == {"squares": 0}
    assert custom("Mine", train_files=rows("a.jsonl", 3)).notes("training") == ["mine"]


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("Bare", {}, ConfigError, "must have __len__ and __getitem__"),
        ("Nobody", {}, ConfigError, r"data\.custom_cls\.name is 'Nobody', but .* has no such function or class"),
        (None, {}, ConfigError, r"\.name is null"),
        ("Texts", {}, DataError, "item 1 of Texts of .* must be a dict with prompt_ids"),
        (
            "Long",
            {"max_prompt_length": 8},
            DataError,
            "item 0 of Long of .* has 9 prompt_ids, data.max_prompt_length is 8",
        ),
        ("Squares", {"train_files_weights": [1.0]}, ConfigError, "decides itself how its rows are mixed"),
    ],
)
def test_a_class_that_makes_no_prompts(custom, name, options, error, message):
    with pytest.raises(error, match=message):
        custom(name, **options)
