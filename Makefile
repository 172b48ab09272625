# Each target makes what it needs in .venv, from nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin


.PHONY: demo test test-llm lint docs bench clean
.DELETE_ON_ERROR:

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "advlib needs Python 3.11 or newer; call make with PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# One stamp a set of extras; touched again only when pyproject.toml changes.
$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@
$(VENV)/.%: pyproject.toml $(VENV)/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

demo: $(VENV)/.base    ## score embedded rollouts with every estimator
	$(BIN)/advlib demo

test: $(VENV)/.test    ## the whole suite
	$(BIN)/python -m pytest -n auto $(ARGS)

# Tiny models are compiled often and run seldom.
QUICK := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true
test-llm: .venv-llm/.done ## published models, compared with transformers
	XLA_FLAGS="$(QUICK)" .venv-llm/bin/python -m pytest tests/llm -n auto $(ARGS)

lint: $(VENV)/.lint    ## style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs    ## the documentation site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.base   ## every benchmark, peers beside us, one JSON a run
	-$(MAKE) .venv-peers/.done  # without it the peers are left out, and the tables say so
	$(BIN)/python benchmarks/run.py $(ARGS)

# The peers pin what they need, so they live apart.
.venv-peers/.done: benchmarks/peers.txt benchmarks/peers-bare.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet -r benchmarks/peers.txt
	.venv-peers/bin/python -m pip install --quiet --no-deps -r benchmarks/peers-bare.txt
	@touch $@

# The models' framework and what they are compared with are 2 GB, so they live apart.
.venv-llm/.done: pyproject.toml
	$(PYTHON) -m venv .venv-llm
	.venv-llm/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[llm-test]'
	@touch $@

clean:                 ## remove what make made
	rm -rf $(VENV) .venv-peers .venv-llm site build dist .pytest_cache .mypy_cache .ruff_cache
