# Sets itself up in .venv; installs again only when pyproject.toml or constraints.txt changed.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
export RAY_USAGE_STATS_ENABLED = 0
export MLFLOW_DISABLE_TELEMETRY = true

.PHONY: help compare ui test fast lint bench clean

help: ## Show this list.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /|/' | column -t -s '|'

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,cluster]'
	@touch $@

compare: $(INSTALLED) ## Run one-shot next to four searches on three seeds; table, verdict, report.
	$(BIN)/harness run quickstart --methods ldn,grid,random_search,optuna_tpe,asha --seeds 0,1,2

ui: $(INSTALLED) ## Open the results in MLflow's UI, on 127.0.0.1.
	$(BIN)/harness ui --open

test: $(INSTALLED) ## All tests, real end-to-end runs included.
	$(BIN)/python -m pytest -n 2 -m 'not slow'
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

fast: $(INSTALLED) ## The tests that take less than a minute together.
	$(BIN)/python -m pytest -n 2 -m 'not slow'

lint: $(INSTALLED) ## ruff, mypy --strict, and the documents: links, commands, paths.
	$(BIN)/ruff check harness tests benchmarks docs/*.py
	$(BIN)/ruff format --check harness tests benchmarks docs/*.py
	$(BIN)/mypy
	$(BIN)/python docs/check_documents.py

bench: $(INSTALLED) ## Ratios, each measured side by side in one run.
	$(BIN)/python -m benchmarks

clean: ## Remove the environment and caches; results stay.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
