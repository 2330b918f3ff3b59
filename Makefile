# Installs into .venv, and again only when pyproject.toml or constraints.txt has changed.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
export RAY_USAGE_STATS_ENABLED = 0
export MLFLOW_DISABLE_TELEMETRY = true

.PHONY: help compare ui test fast drill fuzz lint docs bench versions clean

help: ## Show this list.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /|/' | column -t -s '|'

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,cluster,docs]'
	@touch $@

SPACE := noisy_spirals
COMPARED := ldn,elastic,grid,random_search,optuna_tpe,golden_section,asha
compare: $(INSTALLED) ## Is a search needed, or will one training do? Seven methods on twelve seeds (SEEDS=0-11 OUT=results).
	$(BIN)/harness run $(SPACE) --methods $(COMPARED) --replay --seeds $(or $(SEEDS),0-11) --out $(or $(OUT),results)

ui: $(INSTALLED) ## Open the results in MLflow's UI on 127.0.0.1.
	$(BIN)/harness ui --open

# Byte code is kept, whatever the shell says: without it each process compiles all tests again.
test fast: export PYTHONDONTWRITEBYTECODE =

test: $(INSTALLED) ## Run all tests, including real end-to-end runs (7 to 15 minutes on two cores).
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

fast: $(INSTALLED) ## Run the fast tests only, in less than a minute.
	$(BIN)/python -m pytest -n 2 -m 'not slow'

drill: $(INSTALLED) ## Kill, stop and damage N small runs at random, give them again, compare to the bit (N=10 JOBS=2).
	$(BIN)/python -m tests.drill $(or $(N),10) --jobs $(or $(JOBS),2)

fuzz: $(INSTALLED) ## Give the command line N malformed inputs, judge each, print a table by group (N=1000).
	$(BIN)/python -m tests.fuzz --inputs $(or $(N),1000)

# The one tool of `make lint` that came later than many an environment.
$(BIN)/cfn-lint: | $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt cfn-lint

lint: $(INSTALLED) $(BIN)/cfn-lint ## Run ruff and mypy --strict, and check links, commands and paths of the documents.
	$(BIN)/ruff check harness tests benchmarks docs/tools
	$(BIN)/ruff format --check harness tests benchmarks docs/tools
	$(BIN)/mypy
	$(BIN)/cfn-lint deploy/aws/stack.yaml
	$(BIN)/python docs/tools/check_documents.py

docs: $(INSTALLED) ## Build the documentation into site/; `python -m http.server -d site` shows it.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(INSTALLED) ## Measure speed ratios, both sides of each in one run.
	$(BIN)/python -m benchmarks

versions: ## Run the fast tests and a small run with the lowest, pinned and newest versions (VERSIONS=lowest PYTHON=python3.12).
	$(PYTHON) -m tests.versions $(VERSIONS)

clean: ## Remove the environments and caches; keep the results.
	rm -rf .venv .versions .mypy_cache .ruff_cache .pytest_cache
