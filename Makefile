# Everything a developer does, by one verb each. `make help` lists them.
# Needs Python >= 3.11, make and git; all the rest is installed into .venv in this folder.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PACKAGES := common $(patsubst %/,%,$(wildcard plugins/*/))

.DEFAULT_GOAL := help
.PHONY: help

help: ## List the verbs.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock $(PACKAGES:%=%/pyproject.toml)
	@test -n "$(PYTHON)" || \
	  { echo "Python >= 3.11 is needed; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up $(VENV) (a minute or two, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(PACKAGES:%=-e ./%)
	@touch $@

.PHONY: setup
setup: $(READY) ## Install everything into .venv.
