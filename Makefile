# All tasks of this project. Each target creates what it needs; no other target has to run first.
# VENV=path uses an existing virtual environment unchanged; without it, .venv is created and kept up to date.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# A dozen programs start at once and share compiled bytecode. uv and pip compile the packages that they install,
# but not an editable install such as this project.
unexport PYTHONDONTWRITEBYTECODE
COMPILE = $(PY) -m compileall -q fleet dashboards

# uv installs in a fifth of pip's time. Of pip's settings it takes the index; pip installs where uv cannot.
PIP_INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
UV_INSTALL = index="$${PIP_INDEX_URL:-$$($(BIN)/pip config get global.index-url 2>/dev/null || true)}"; \
  $(PIP_INSTALL) uv 2>/dev/null && $(BIN)/uv pip install --quiet --python $(PY) --compile-bytecode \
  $${index:+--default-index "$$index"} -c constraints.txt
install = @{ $(UV_INSTALL) -e '$(1)' 2>/dev/null; } || $(PIP_INSTALL) -e '$(1)'

VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# The first Python that runs and is new enough: a shim on PATH may point to a version that is not installed.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PROTOS := $(wildcard proto/fleet/wire/*.proto)

# An environment given by VENV is never changed; .venv is updated when its requirements change.
ifeq ($(VENV),.venv)
RUN := .venv/.run
DEV := .venv/.dev
else
RUN := $(VENV)/bin/python
DEV := $(VENV)/bin/python
endif

.PHONY: help setup demo test test-slow laws check fix bench mutate soak proto clean browser peers clients stubs-fresh

help:  ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(DEV) browser  ## Create .venv with all dependencies, and find Chromium

demo: $(RUN)  ## Run the console and a local test fleet (FAULTS=1: with scripted incidents; TLS=1: with mutual TLS)
	@exec $(PY) manage.py demo $(if $(FAULTS),--faults) $(if $(TLS),--tls) $(ARGS)

test: setup clients  ## Run the fast tests (up to 25 min on two cores; ARGS="-k name" selects tests)
	@$(PY) -m pytest -m "not slow" --numprocesses auto $(ARGS)

# A selection by ARGS fails if it has no test, and leaves out the laws.
test-slow: setup peers  ## Run the slow tests: interop, soak, fuzzing (up to 30 min on two cores)
	@$(PY) -m pytest -m slow --numprocesses auto $(ARGS)
	@$(if $(ARGS),,$(MAKE) --no-print-directory laws)

# The fast suite tries the same examples in each run; this tries others.
laws: $(DEV)  ## Try the properties of Hypothesis on random examples (SEED=n repeats a run)
	@seed=$(or $(SEED),$$RANDOM$$RANDOM); echo "random examples of seed $$seed: make laws SEED=$$seed repeats them"; \
	$(PY) -m pytest -m "hypothesis and not slow" --numprocesses auto --maxprocesses 2 \
	  --hypothesis-profile random --hypothesis-seed $$seed $(ARGS)

# mypy keeps one core busy; the other steps run on the other core meanwhile.
check: $(DEV) stubs-fresh  ## Run all static checks: format, lint, types, imports, migrations
	@export DJANGO_SETTINGS_MODULE=dashboards.config.settings REFLOAT_HOME="$$(mktemp -d)"; \
	trap 'rm -rf "$$REFLOAT_HOME"' EXIT; failed=0; \
	step() { printf '%-22s' "$$1"; shift; out=$$("$$@" 2>&1) && echo ok || { echo FAILED; echo "$$out"; failed=1; }; }; \
	$(BIN)/mypy >"$$REFLOAT_HOME/types" 2>&1 & types=$$!; \
	step "format" $(BIN)/ruff format --check .; \
	step "lint" $(BIN)/ruff check .; \
	step "import contract" $(BIN)/lint-imports; \
	step "house rules" $(PY) -m tests.meta.house; \
	step "django check" $(PY) manage.py check --fail-level WARNING; \
	step "migrations" $(PY) manage.py makemigrations --check --dry-run; \
	printf '%-22s' types; if wait $$types; then echo ok; else echo FAILED; cat "$$REFLOAT_HOME/types"; failed=1; fi; \
	exit $$failed

fix: $(DEV)  ## Fix lint problems and format the code
	@$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format --quiet . && echo "fixed and formatted; next: make check"

bench: $(DEV) $(if $(filter tunnel gateway probe watch,$(NAME)),peers)  ## Run a benchmark (NAME=detect, classify, …; without NAME: list them)
	@$(PY) -m tests.bench $(NAME) $(ARGS)

mutate: $(DEV)  ## Break the core one line at a time, and tell which breaks no test notices (ARGS="--seed 1 alerting")
	@$(PY) -m tests.mutation $(ARGS)

soak: $(DEV)  ## Inject faults by a seeded schedule, and check invariants after each (ARGS="--seed 7 --minutes 40")
	@$(PY) -m tests.soak $(ARGS)

proto: $(DEV)  ## Generate the stubs in fleet/wire from proto/
	@$(PY) -m grpc_tools.protoc -I proto --python_out=. --pyi_out=. --grpc_python_out=. $(PROTOS)

clean:  ## Remove .venv and caches; keep var/ (your data)
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- prerequisites of the targets ----------------------------------------------------------------

.venv/bin/python:
	@[ -n "$(PYTHON)" ] \
	  || { echo "Python 3.11 or newer was not found: apt-get install python3 (or PYTHON=/path/to/python make …)" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 2; }
	@echo "creating .venv with $(PYTHON)"; $(PYTHON) -m venv .venv

.venv/.run: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing dependencies (up to 1 min the first time)"
	$(call install,.)
	@$(COMPILE) && touch $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing development dependencies (up to 2 min the first time)"
	$(call install,.[dev])
	@$(COMPILE) && touch $@ .venv/.run

browser:
	@bash tests/browser/chromium.sh

peers:
	@bash tests/fakes/peers.sh

clients:
	@bash tests/fakes/peers.sh openssh curl

stubs-fresh: $(DEV)
	@fresh="$$(mktemp -d)"; trap 'rm -rf "$$fresh"' EXIT; \
	$(PY) -m grpc_tools.protoc -I proto --python_out="$$fresh" --pyi_out="$$fresh" --grpc_python_out="$$fresh" $(PROTOS); \
	diff -r -x __init__.py -x __pycache__ "$$fresh/fleet/wire" fleet/wire >/dev/null \
	  || { echo "fleet/wire is out of date: run 'make proto' and commit the result" >&2; exit 1; }
