# Every target does its own set-up: it needs Python 3.11 or later, and make, and nothing else.
# The environment is .venv, or VENV; it is brought up to date when the packaging files change.

# The first Python that is new enough; say PYTHON=/path/to/python for another one.
NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { echo $$p; break; }; done)
# Parallel test processes, and more options for pytest: make test PYTEST_ARGS="-k softmax -x".
JOBS ?= 2
PYTEST_ARGS ?=
# More for make newcomer: NEWCOMER_ARGS="--only torch".
NEWCOMER_ARGS ?=
# How long make fuzz goes on.
SECONDS ?= 600

# Another environment, and in it the newest jax and others instead of those in constraints.txt:
# make test PYTHON=python3.13 VENV=.venv-newest NEWEST=1
VENV ?= .venv
NEWEST ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.relax2xla-installed
# What the demonstration needs is a part of that, and has a stamp of its own; so has the site.
DEMO_STAMP := $(VENV)/.relax2xla-demo
DOCS_STAMP := $(VENV)/.relax2xla-docs
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test newcomer docs fuzz lint format bench clean

help: ## List the targets
	@echo "Targets (each sets up .venv first, which takes minutes the first time):"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-12s%s\n", $$1, $$2}'

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP)) ## Train a digit classifier, import it by three routes, run all on XLA, show the times
	$(BIN)/python -m examples.demo

# Many tests start processes, which would compile every source anew where no bytecode is written.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(STAMP) ## Run the tests
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup $(PYTEST_ARGS)

newcomer: ## Do what README and the tutorials say, from the wheel in fresh environments (minutes)
	$(PYTHON) tests/newcomer/run.py $(NEWCOMER_ARGS)

docs: $(DOCS_STAMP) ## Write the site to build/site; warnings are errors
	$(BIN)/python -m sphinx -q -W --keep-going -j auto -b html docs build/site
	@echo "build/site/index.html"

fuzz: $(STAMP) ## Give every reader random inputs for SECONDS (600), and say what was found
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --jobs $(JOBS)

lint: $(STAMP) ## Check style (ruff), types (pyright) and the messages of new commits
	.ci/commits
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP) ## Rewrite the files in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## Print the benchmark tables
	$(BIN)/python -m benchmarks dispatch
	$(BIN)/python -m benchmarks models

clean: ## Remove the environment, caches and build products
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

# $(call install,EXTRA,HOW QUIET): torch goes first and alone, so that the resolver keeps the pinned
# build for everything after it.
define install
@$(or $(PYTHON),python3) -c '$(NEW_ENOUGH)' || { echo "make: no Python 3.11 or later with venv was found; say make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 1; }
@test -x $(BIN)/python || { echo "Creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
@$(PIP) $(2) install "$$(grep '^torch==' constraints.txt)"
@$(PIP) $(2) install $(if $(NEWEST),,-c constraints.txt) -e '.[$(1)]'
@touch $@
endef

$(STAMP): pyproject.toml setup.py constraints.txt
	@echo "Installing relax2xla and its development packages into $(VENV)"
	$(call install,dev,-qq)

$(DEMO_STAMP): pyproject.toml setup.py constraints.txt
	@echo "Installing relax2xla, PyTorch, ONNX, ONNX Runtime and scikit-learn into $(VENV):"
	@echo "1.7 GB on disk with a build of torch for CPUs, several times that with one for GPUs."
	$(call install,demo)

$(DOCS_STAMP): pyproject.toml setup.py constraints.txt
	@echo "Installing relax2xla, PyTorch, ONNX and Sphinx into $(VENV)"
	$(call install,docs,-qq)
