# Two commands: `make demo` runs the main job, `make test` checks everything. Both build .venv on first use.
#   make demo EPS=1                        another privacy budget
#   make demo PIP_FLAGS='--extra-index-url https://download.pytorch.org/whl/cpu'     a torch without CUDA
PYTHON ?= python3
VENV ?= .venv
PIP_FLAGS ?=
EPS ?= 8

BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_FLAGS)

.PHONY: demo test lint types layers suite proofs clean

demo: $(VENV)/.demo-installed
	$(BIN)/raptor-train demo --eps $(EPS)

test: lint types layers suite

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test-installed
	$(BIN)/mypy

layers: $(VENV)/.test-installed
	$(BIN)/lint-imports

suite: $(VENV)/.test-installed
	$(BIN)/pytest

proofs: $(VENV)/.test-installed
	$(BIN)/python -m proofs

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.torch-installed: constraints.txt
	@echo "Installing into $(VENV) (a few minutes the first time) ..."
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "RAPTOR needs Python 3.11 or later: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	@touch $@

$(VENV)/.demo-installed: $(VENV)/.torch-installed pyproject.toml
	$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.test-installed: $(VENV)/.torch-installed pyproject.toml
	$(INSTALL) --editable '.[test]'
	@touch $@
