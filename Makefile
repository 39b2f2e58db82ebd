# The bare call lists the targets. Each of setup, demo and test does all that a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Two processes, each with a Spark of its own; the tests of a file stay together, in the order of tests/conftest.py.
SHARED := -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo examples test proof soak bench lint types contracts ci lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## find or install Java, make .venv, install everything

$(READY): requirements.lock requirements-data.lock pyproject.toml scripts/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/setup.sh
	@touch $(READY)

demo: setup ## see a broken feed go into the log and come out whole
	@$(BIN)/anabranch demo

examples: setup ## run every example, real feeds too, a few minutes
	@$(BIN)/python -m examples.boxes
	@$(BIN)/python -m examples.losses
	@$(BIN)/python -m examples.flights

test: setup ## unit tests, laws and engine tests, a few minutes
	@$(BIN)/pytest $(SHARED) -m "not proof and not soak"

proof: setup ## longer laws, kills and clusters
	@$(BIN)/pytest $(SHARED) -m proof --durations=20

soak: setup ## full-size runs, on demand
	@$(BIN)/pytest -m soak -s

bench: setup ## full-size benchmarks, on demand
	@$(BIN)/anabranch bench log
	@$(BIN)/anabranch bench late
	@$(BIN)/anabranch bench step
	@$(BIN)/anabranch bench revise
	@$(BIN)/anabranch bench nexmark
	@$(BIN)/anabranch bench wide
	@$(BIN)/anabranch bench scale

lint: setup ## style and house rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## static types
	@$(BIN)/mypy

contracts: setup ## who may import whom
	@$(BIN)/lint-imports

ci: lint types contracts test proof ## everything that must hold

lock: ## resolve the dependencies anew into requirements.lock
	@PYTHON="$(PYTHON)" sh scripts/lock.sh

clean: ## remove what was built here
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
