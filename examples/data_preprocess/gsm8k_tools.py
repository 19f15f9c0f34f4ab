"""GSM8K with a calculator: rows for conversations of several turns with a tool.

    python examples/data_preprocess/gsm8k_tools.py --local_dir ~/data/gsm8k_tools [--local_dataset_path DIR]

Writes `train.parquet`, `test.parquet` and `tools.yaml`, the tool's schema for `data.tool_config_path`. A local copy is a
folder with `train.jsonl` and `test.jsonl` as the authors publish them.
"""

from __future__ import annotations

import argparse
import json
import sys

import gsm8k
import sources

SYSTEM = (
    "You solve maths problems with care. Call the calculator for every calculation instead of doing it in your head."
)
CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Value of an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {
                "expression": {
                    "type": "string",
                    "description": "Numbers, + - * / and parentheses, such as (3 + 4) * 2.",
                }
            },
            "required": ["expression"],
        },
    },
}


def to_row(split: str, index: int, item: sources.Row) -> sources.Row:
    """One problem in the columns of the trainer's data set."""
    question, answer = (sources.field(item, name, split, index) for name in ("question", "answer"))
    try:
        row = gsm8k.to_row(split, index, question, answer)
    except ValueError as error:
        raise sources.SourceError(str(error)) from error
    truth = row["reward_model"]["ground_truth"]
    row["prompt"] = [{"role": "system", "content": SYSTEM}, *row["prompt"]]
    row["agent_name"] = "tool_agent"
    row["extra_info"] |= {
        "need_tools_kwargs": True,
        "tools_kwargs": {"calculator": {"create_kwargs": {"ground_truth": truth}}},
        "tool_selection": ["calculator"],
    }
    return row


def work(options: argparse.Namespace) -> None:
    """Write both splits and the tool's schema."""
    for split in ("train", "test"):
        items = sources.read_split(gsm8k.DATA_SOURCE, split, options.local_dataset_path, "main")
        sources.write([to_row(split, index, item) for index, item in enumerate(items)], options.local_dir, split)
    path = options.local_dir.expanduser() / "tools.yaml"
    # JSON is YAML, and needs no library here.
    path.write_text(json.dumps({"tools": [{"tool_schema": CALCULATOR}]}, indent=2) + "\n", encoding="utf-8")
    print(f"wrote the tool to {path}")


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = sources.parser_for(__doc__ or "")
    sources.add_source(parser, gsm8k.DATA_SOURCE)
    return sources.run(work, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
