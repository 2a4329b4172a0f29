# Everything that a developer does, a verb each. `make help` lists them.
# Needs Python >= 3.11, make and git. All the rest is installed into .venv in this folder.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROTO := $(VENV)/proto
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
PACKAGES := common/node common/testing common/cli operator $(patsubst %/,%,$(wildcard plugins/*/))
# What `make lock` must not look for: our own packages need each other, and plugins/node all plugins.
OURS := deviceplugin $(patsubst %,deviceplugin-%,cli operator testing $(notdir $(wildcard plugins/*)))
PYTEST ?= $(BIN)/pytest
ARGS ?=
# Collecting the tests takes three times as long where compiled modules are not kept. What the
# commands call, such as those that restart a node, may read variables of other meaning.
unexport PYTHONDONTWRITEBYTECODE ARGS

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all bench e2e check generate format lock images dist deploy undeploy clean

help: ## List the verbs.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Install everything into .venv (the other verbs do it when needed).

demo: $(READY) ## Watch the gopher plugin at work on a simulated kubelet; ARGS=gpu: the GPU plugin.
	@$(BIN)/python -m demo.$(or $(ARGS),demo)

test: $(READY) ## Run the quick tests; some only: make test ARGS="tests/common -k kubelet".
	@$(PYTEST) -n auto --dist worksteal -m "not slow" $(ARGS)

test-all: $(READY) ## Run the slow tests too.
	@$(PYTEST) -n auto --dist worksteal $(ARGS)

bench: $(READY) ## Compare counts of work with build/measures/counts.json; renew it: make bench ARGS=--write.
	@PYTHONPATH=tests/support:e2e/support $(BIN)/python build/measures/counts.py $(ARGS)

e2e: $(READY) ## Run the suite on KUBECONFIG's cluster: make e2e ARGS="gopher --pull-policy Never".
	@PYTHONPATH=build $(BIN)/python e2e/run.py $(ARGS)

check: $(READY) $(PROTO)/.ready ## Lint, types, import contracts, budgets, and whether what is generated is current.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/python build/import_contracts.py
	$(BIN)/python build/generate.py --check
	$(BIN)/python build/size.py --check

generate: $(READY) $(PROTO)/.ready ## Make everything that is generated: messages, schemas, tables, pictures.
	@$(BIN)/python build/generate.py

format: $(READY) ## Format the code, and fix what the linter can fix.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(READY) ## Pin the newest versions that fit, with hashes; the files name no index.
	@printf '%s; python_version < "3"\n' $(OURS) > $(VENV)/ours.txt
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --upgrade -o requirements.lock --all-extras \
	  --override $(VENV)/ours.txt --group pyproject.toml:dev \
	  $(filter-out plugins/node/%,$(PACKAGES:%=%/pyproject.toml))
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --upgrade -o build/proto.lock build/proto.in
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --upgrade -o build/twine.lock build/twine.in
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --upgrade -o build/sigstore.lock build/sigstore.in
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --upgrade -o build/docs_site.lock build/docs_site.in
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --upgrade -o build/workflows.lock build/workflows.in
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --upgrade -o build/scan.lock build/scan.in
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --upgrade --no-deps -o build/kubectl.lock build/kubectl.in

images: $(READY) ## Build the images into dist/images; some only, or options: make images ARGS="gopher".
	@$(BIN)/python build/images.py $(ARGS)

dist: $(READY) ## Make what a release consists of, with the images that there are, in dist/release.
	@$(BIN)/python build/release.py dist $(ARGS)
	@$(BIN)/uv run --no-project --quiet --with-requirements build/twine.lock \
	  twine check --strict dist/release/*.whl dist/release/*.tar.gz

deploy: $(READY) ## Deploy a plugin by kubectl: make deploy PLUGIN=simulated NAMESPACE=x RESOURCE_NAME=example.com/y
	@$(BIN)/python build/deploy.py $@ $(MAKEOVERRIDES)

undeploy: $(READY) ## Remove it again, with the same variables.
	@$(BIN)/python build/deploy.py $@ $(MAKEOVERRIDES)

clean: ## Remove everything that make made.
	rm -rf $(VENV) dist .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# How old a release must be to be locked: most that are taken over are withdrawn within days.
COOLDOWN ?= 7 days
# A uv.lock would name the index of each package, and so keep out who has another. Only wheels are
# asked for their dependencies: to ask a source package is to run its code.
LOCK_OPTIONS = --quiet --universal --generate-hashes --no-emit-index-url --no-annotate \
  --only-binary :all: --exclude-newer "$(COOLDOWN)" \
  --python-version 3.11 --custom-compile-command "make lock"

$(READY): requirements.lock $(PACKAGES:%=%/pyproject.toml)
	@test -n "$(PYTHON)" || \
	  { echo "Python >= 3.11 is needed; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up $(VENV) (a minute or two, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation $(PACKAGES:%=-e ./%)
	@touch $@

$(PROTO)/.ready: build/proto.lock
	@test -x $(PROTO)/bin/python || $(BIN)/python -m venv $(PROTO)
	@$(PROTO)/bin/python $(PIP_INSTALL) --require-hashes -r build/proto.lock
	@touch $@
