# `make tune` runs the main job, `make test` the tests; each sets up a virtual environment first. Nothing else belongs here.

PYTHON ?= python3
# Any torch from 2.7 on; name a build of your own with TORCH=... (a CPU-only machine is served by a CPU build).
TORCH ?= torch>=2.7
VENV ?= .venv
MODEL ?= examples/models/qwen3-0.6b-int4g128
BUDGET ?= 60s
# Processes of tests, and what test-all runs of them: parts add up in its record.
JOBS ?= auto
TESTS ?= tests
# Processes that share the GPU; each holds a context and compiles kernels of its own.
GPU_JOBS ?= 4

export PIP_DISABLE_PIP_VERSION_CHECK := 1
BIN := $(VENV)/bin
SOURCES := humming search_spaces tuner benchmarks examples tests alembic
CXX_SOURCES := $(shell find humming/kernels -name '*.h' -o -name '*.cuh' -o -name '*.cpp')

.PHONY: tune test test-all test-gpu lint clean

tune: $(VENV)/.installed
	$(BIN)/humming-tune --model $(MODEL) --budget $(BUDGET)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

test-all: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(TESTS) -m "not gpu" -n $(JOBS) --dist worksteal \
	  -p tests.recording --record benchmarks/results/test_all.json \
	  $(if $(filter tests,$(TESTS)),-p tests.compile_record --compile-record benchmarks/results/compiled.json)

test-gpu: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(TESTS) -m gpu -n $(GPU_JOBS) --dist worksteal \
	  -p tests.recording --record benchmarks/results/test_gpu.json

lint: $(VENV)/.installed-test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(CXX_SOURCES)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed, but %s is %d.%d; set PYTHON=..." % (sys.executable, *sys.version_info[:2]) if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q "$(TORCH)"
	$(BIN)/python -m pip install -q -e .
	touch $@

# Of its own, as it installs all that .installed does: once is quicker.
$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q "$(TORCH)"
	$(BIN)/python -m pip install -q -e ".[test]"
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
