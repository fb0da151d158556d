# Everything runs in a virtual environment that these targets make themselves:
# a machine needs only Python >= 3.11, pip and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SMALL := $(VENV)/.small
PEERS := .env-bench
SITE := site
# How many random windows each property draws in `make soak`.
EXAMPLES ?= 500
# Hundreds of tests start a process of its own: what one compiled, the next need not compile again.
export PYTHONDONTWRITEBYTECODE :=
# Those that are found; name others by their path: make pythons PYTHONS="/opt/3.14/bin/python3"
PYTHONS ?= $(foreach minor,11 12 13 14,$(shell python3.$(minor) -c "import sys; print(sys.executable)" 2>/dev/null))

.PHONY: help demo test pythons browser picture check lint types site docs integrations soak bench bench-short format clean

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | \
		awk -F'|' '{ printf "  make %-15s %s\n", $$1, $$2 }'

# The demo needs little; what tests need is installed when they are run.
$(SMALL): EXTRAS := inspector
$(READY): EXTRAS := dev
$(SMALL) $(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Muntin needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@

demo: $(SMALL) ## Compose a real conversation into a small window and show it
	@$(BIN)/muntin demo

test: $(READY) browser ## Run all tests
	$(BIN)/python -m pytest -n 4 --dist worksteal --reruns 1 -r aR

pythons: ## Run all tests on every Python found, or on those in PYTHONS
	@for python in $(PYTHONS); do \
		version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
		echo "Python $$version" && \
		$(MAKE) --no-print-directory test PYTHON=$$python VENV=.env-py$$version || exit 1; \
	done

# The tests of the inspector drive a real browser: it is installed where that is allowed.
browser:
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome; } \
		>/dev/null 2>&1 || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && { \
		echo "Installing Chromium (once) ..."; \
		apt-get install -y -qq chromium >/dev/null 2>&1 || \
		{ apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1; }; } || \
		echo "No Chromium: the browser tests will not run. Install it: apt-get install chromium"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# Every warning is an error: a broken link, a missing anchor, a page that nothing leads to.
site: $(READY)
	$(BIN)/python -m sphinx -q -W --keep-going -j auto -d $(SITE)/.trees docs $(SITE)

docs: site ## Build the site into site/, and check that the docs are true
	MUNTIN_SITE=$(CURDIR)/$(SITE) $(BIN)/python -m pytest -q -n auto tests/docs
	@echo "Read it: $(SITE)/index.html"

# The first three use one core each; the site they build is the one that the tests look at.
check: export MUNTIN_SITE := $(CURDIR)/$(SITE)
check: $(READY) ## All that CI runs: lint, types, the site, tests (those of the docs among them)
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types site
	$(MAKE) --no-print-directory test

integrations: $(READY) ## Run Muntin in other frameworks, each in an environment of its own (some 30 minutes)
	$(BIN)/python -m tools.integrations
	$(BIN)/python -m tools.pages

soak: $(READY) browser ## Run the long forms: properties, kills, writers, extras, frameworks (hours)
	$(BIN)/python -m tools.soak --examples $(EXAMPLES)

bench: $(READY) ## Measure everything beside the peers (some 45 minutes), write the pages
	$(BIN)/python -m bench --date "$$(date +%F)"

bench-short: $(READY) ## Measure small sizes without the peers (a minute), write nothing
	$(BIN)/python -m bench --short

picture: $(READY) browser ## Make the pictures of the docs and of the inspector for the README
	$(BIN)/python -m tools.pictures
	$(BIN)/python tools/screenshot.py

format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the virtual environments and caches
	rm -rf $(VENV) $(PEERS) $(SITE) .env-py* .env-integrations .env-engine .env-soak .mypy_cache .ruff_cache .pytest_cache .hypothesis
