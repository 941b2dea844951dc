# `make` lists the targets. `make test` and `make demo` do all of their own set-up.
#
#   PYTHON=python3.12     the interpreter that .venv is made with
#   PYTEST_ARGS='-x'      more arguments for every pass of pytest (paths, -k, -x, …)
#   JOBS=4                how many processes pytest uses; by default one for each core, at most 8
#   DEMO_ARGS=…           arguments for the demo

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))
PYTEST_ARGS ?=
DEMO_ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
BY_HAND := kvcanary_gen tests $(wildcard examples benchmarks)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- set-up ----------------------------------------------------------------------------------------------------------

.PHONY: venv
venv: $(STAMP) ## make .venv and install this checkout into it, with the pinned tools

# The stamp holds the folder that was installed: a copied or moved checkout must not go on importing the old one. Nor
# does a stamp count whose interpreter is gone.
ifneq ($(shell $(PY) -c '' 2>/dev/null && cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

NEEDS_PYTHON := import sys; sys.exit(sys.version_info < (3, 10) and "kvcanary needs Python 3.10 or newer: make PYTHON=…")

$(STAMP): pyproject.toml constraints.txt
	@if ! $(PY) -c '$(NEEDS_PYTHON)' 2>/dev/null; then \
		$(PYTHON) -c '$(NEEDS_PYTHON)'; \
		echo "==> $(PYTHON) -m venv $(VENV)"; \
		$(PYTHON) -m venv --clear $(VENV); \
	fi
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PY) -m ensurepip
	$(PY) -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@echo '$(CURDIR)' > $@

# ---- the generator ---------------------------------------------------------------------------------------------------

.PHONY: generate
generate: $(STAMP) ## write generated/ from spec/
	$(PY) -m kvcanary_gen generate

.PHONY: check
check: $(STAMP) ## fail if generated/ differs from spec/
	$(PY) -m kvcanary_gen check

.PHONY: record
record: $(STAMP) ## put on record what kernels cost, which tests/aot compares with
	$(PY) -m kvcanary_gen compile --extremes --target sm_90 --target gfx942 --record tests/aot/recorded.json

.PHONY: demo
demo: generate ## generate, run the demo, then the canary's own test
	$(PY) examples/demo.py $(DEMO_ARGS)
	$(PY) -m kvcanary selftest --steps 50

# ---- tests -----------------------------------------------------------------------------------------------------------

.PHONY: lint
lint: $(STAMP) ## ruff, mypy, and the spec's own linter
	$(PY) -m ruff check $(BY_HAND) generated
	$(PY) -m ruff format --check $(BY_HAND) generated
	$(PY) -m mypy
	$(PY) -m kvcanary_gen lint

.PHONY: format
format: $(STAMP) ## format what is written by hand
	$(PY) -m ruff check --fix $(BY_HAND)
	$(PY) -m ruff format $(BY_HAND)

# Triton reads its environment when it is imported, so each mode is a process of its own, and none inherits a caller's.
CLEAN_ENV := env -u TRITON_INTERPRET -u TRITON_DEBUG -u KVCANARY_BACKEND

# $(call pytest,NAME,ENVIRONMENT,MARKERS). pytest answers 5 when nothing was selected. That is a failure, unless the caller
# narrowed the selection by PYTEST_ARGS; then one of the passes must have run something.
define pytest
	echo "==> tests: $(1)"; \
	echo "$(strip $(2) $(PY)) -m pytest -n $(JOBS) --dist worksteal -m '$(3)'" $(PYTEST_ARGS); \
	status=0; $(CLEAN_ENV) $(2) $(PY) -m pytest -n $(JOBS) --dist worksteal -m '$(3)' $(PYTEST_ARGS) || status=$$?; \
	case $$status in \
		0) selected=yes ;; \
		5) $(if $(strip $(PYTEST_ARGS)),echo "==> nothing in this pass fits PYTEST_ARGS",exit 5) ;; \
		*) exit $$status ;; \
	esac
endef

.PHONY: test
test: lint check ## lint, check, then every pass of the tests
	@selected=no; \
	$(call pytest,Triton's interpreter,TRITON_INTERPRET=1,not aot and not gpu); \
	$(call pytest,golden vectors under TRITON_DEBUG,TRITON_INTERPRET=1 TRITON_DEBUG=1,golden and not gpu); \
	$(call pytest,Triton's compiler,,aot or gpu); \
	if [ $$selected = no ]; then echo "==> no test fits PYTEST_ARGS"; exit 5; fi

.PHONY: nightly
nightly: export HYPOTHESIS_PROFILE = nightly
nightly: test ## the same, with many more examples for each property

# ---- tidying ---------------------------------------------------------------------------------------------------------

.PHONY: clean
clean: ## remove caches and build products (not .venv)
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
