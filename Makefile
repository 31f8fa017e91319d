# `make help` lists the words. Every target does its own set-up and can be typed first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# More than two at once only wait for each other on two cores.
WORKERS ?= 2

.PHONY: help install controlplane check format test rows demo bench conformance clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

# The stamp is older than its causes when the project or its pins changed.
$(VENV)/.installed: pyproject.toml constraints.txt tools/ensure_go.py
	@echo "installing kcm and its tools into $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit("kcm needs Python 3.11 or newer, this is " + sys.version) if sys.version_info < (3, 11) else 0'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[uvloop,demo]' --group dev
	@$(BIN)/python tools/ensure_go.py
	@touch $@

install: $(VENV)/.installed ## Make .venv, whose bin/kcm runs

controlplane: install ## Build the pinned etcd, API server, scheduler, kwok, kubectl and stock manager, once
	@$(BIN)/python -m kcm.testing build

check: install ## Lint, format check, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: controlplane ## Run the tests, against a real control plane
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

rows: controlplane ## Run the tests and list which behaviour rows they show
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --quiet --rows $(ARGS)

demo: controlplane ## Show a rollout on a control plane of its own (ARGS=--once ends by itself)
	@$(BIN)/python -m kcm.testing.demo $(ARGS)

bench: controlplane ## Measure kcm beside the stock manager on one API server
	@$(BIN)/python -m bench $(ARGS)

conformance: controlplane ## Run Kubernetes' own integration tests against kcm
	@$(BIN)/python -m tests.conformance $(ARGS)

clean: ## Remove .venv and caches of tools (not the built control plane)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
