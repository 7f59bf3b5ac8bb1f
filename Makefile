# Everything this project does, by name. Each target makes what it needs; none asks for another one first.
# VENV=path uses a virtual environment as it is; without it, .venv is made and kept up to date.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# A dozen programs start at once: what one of them compiled, the others need not. pip compiles what it installs,
# but not what it leaves where it is, which is ours.
unexport PYTHONDONTWRITEBYTECODE
COMPILE = $(PY) -m compileall -q fleet dashboards

VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# The first that runs and is new enough: a shim on PATH may stand for a version that is not there.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PROTOS := $(wildcard proto/fleet/wire/*.proto)

# A foreign environment is never touched; ours is stamped by what it was made from.
ifeq ($(VENV),.venv)
RUN := .venv/.run
DEV := .venv/.dev
else
RUN := $(VENV)/bin/python
DEV := $(VENV)/bin/python
endif

.PHONY: help setup demo test test-slow check fix bench proto clean browser peers clients stubs-fresh

help:  ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(DEV) browser  ## Make .venv with all it needs, and find Chromium

demo: $(RUN)  ## Run the console and a fleet of its own to watch (FAULTS=1: with a script of incidents; TLS=1: with mutual TLS)
	@exec $(PY) manage.py demo $(if $(FAULTS),--faults) $(if $(TLS),--tls) $(ARGS)

test: setup clients  ## Run the fast tests (5 minutes at most; ARGS="-k name" chooses)
	@$(PY) -m pytest -m "not slow" --numprocesses auto $(ARGS)

# Tests that measure time run after the others, two at a time. ARGS may choose tests of one group only.
test-slow: setup peers  ## Run the slow tests: interop, soak, fuzzing (20 minutes at most)
	@empty=0; \
	slow() { $(PY) -m pytest -m "slow and $$1" --numprocesses "$$2" $(ARGS) || { [ $$? -eq 5 ] && empty=$$((empty + 1)); }; }; \
	slow "not serial" auto && slow "serial" 2 && [ $$empty -lt $(if $(ARGS),2,1) ]

# One core has enough to do with the types; the other one does the rest meanwhile.
check: $(DEV) stubs-fresh  ## Look at everything a machine can judge; change nothing
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

fix: $(DEV)  ## Repair what a machine can repair
	@$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format --quiet . && echo "formatted; now: make check"

bench: $(DEV) $(if $(filter tunnel gateway probe,$(NAME)),peers)  ## Measure (NAME=detect, classify, …; without NAME: the list)
	@$(PY) -m tests.bench $(NAME) $(ARGS)

proto: $(DEV)  ## Write the stubs in fleet/wire anew from proto/
	@$(PY) -m grpc_tools.protoc -I proto --python_out=. --pyi_out=. --grpc_python_out=. $(PROTOS)

clean:  ## Remove .venv and caches; var/ (your data) stays
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- what the targets stand on -------------------------------------------------------------------

.venv/bin/python:
	@[ -n "$(PYTHON)" ] \
	  || { echo "Python 3.11 or newer is needed: apt-get install python3 (or PYTHON=/path/to/python make …)" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 2; }
	@echo "making .venv with $(PYTHON)"; $(PYTHON) -m venv .venv

.venv/.run: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing what the program needs (about a minute the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@$(COMPILE) && touch $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing what developing needs (one or two minutes the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
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
	  || { echo "fleet/wire is not what proto/ makes: run 'make proto' and commit it" >&2; exit 1; }
