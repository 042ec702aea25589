# make plan      the main job on this machine: a plan in about a minute of tuning
# make test      the tests; make test-slow runs the slow groups, test-measured those that need an idle machine
# make test-gpu  what needs a GPU, within 5 minutes (docs/how-to/gpu.md); elsewhere it skips with the reason
# make lint types  what else continuous integration runs
#
# PIP_ARGS     options for pip (a folder of wheels, a mirror, …)
# CONSTRAINTS  empty: keep the versions that are there, or take the newest
# VENV         the environment, made if it is not there; VENV_ARGS are options for python -m venv
# NPROC        ranks that `make plan` tunes for

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
CONSTRAINTS ?= -c constraints.txt
VENV_ARGS ?=
NPROC ?= 4

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) $(CONSTRAINTS)

.PHONY: plan test test-slow test-measured test-gpu lint types clean

plan: $(VENV)/.installed
	$(BIN)/topotune tune --nproc-per-node $(NPROC) -o plan.json

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -m "slow and not measured"

test-measured: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -m measured

test-gpu: $(VENV)/.installed-test
	timeout 300 $(BIN)/python -m pytest -q -rs -m gpu tests/gpu

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	$(BIN)/mypy

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV_ARGS) $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[test]'
	@touch $(VENV)/.installed $@
