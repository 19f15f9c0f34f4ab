# What people type. Everything runs in environments that ci/env.py makes under .venv/ the first time.
#   PYTHON          which Python 3.11-3.13 makes them              make PYTHON=python3.12 test
#   RL_TORCH_INDEX  PyTorch's CPU index, where pip would fetch a CUDA build of torch

PYTHON ?= python3
BASE := .venv/base/bin
SOURCES := $(wildcard packages/*/src)
# Only a SEED that was given to make: one that a shell happens to export is for something else.
SEED_OPTION = $(if $(filter command file,$(origin SEED)),$(if $(SEED),--seed "$(SEED)"))

.PHONY: help env demo test test-slow lint format bench workflows api clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 14

env:  ## make or refresh the base test environment
	@$(PYTHON) ci/env.py base

demo: env  ## a tiny model learns to add in front of you: SFT, then GRPO; make demo SEED=n for another run
	@$(BASE)/rl demo $(SEED_OPTION)

test: ## light tests on all cores, then the heavy ones; what CI runs
	@$(PYTHON) ci/test.py

test-slow: ## everything of `make test`, and the tests marked slow
	@$(PYTHON) ci/test.py --slow

lint: env  ## ruff check, ruff format, mypy
	$(BASE)/ruff check .
	$(BASE)/ruff format --check .
	$(BASE)/mypy $(SOURCES)

format: env  ## let ruff fix what it can
	$(BASE)/ruff check --fix .
	$(BASE)/ruff format .

bench: env  ## every script in benchmarks/ that needs no GPU, one after another
	@for file in $(filter-out %_gpu.py,$(wildcard benchmarks/[a-z]*.py)); do echo "== $$file"; OMP_NUM_THREADS=1 $(BASE)/python $$file || exit 1; done

workflows: env  ## regenerate .github/workflows from ci/matrix.toml
	$(BASE)/python ci/generate_workflows.py

api: env  ## rewrite the api.txt of every package
	$(BASE)/python ci/update_api.py

clean:  ## remove environments, caches and build products; runs below outputs/ stay
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find packages tests benchmarks ci examples templates -type d \
	  \( -name __pycache__ -o -name .pytest_cache -o -name dist -o -name build -o -name '*.egg-info' \) -prune -exec rm -rf {} +
