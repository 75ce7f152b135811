# make demo    compare three ways to share, on this machine, in under a minute once kernels are compiled
# make test    what must hold, in some minutes; make test-all adds the slow tests
# make test-again    what failed last time, one test after the other
# make test-versions    a few of them on Python 3.12 and 3.13, where these are to be had
# make docs    these pages and the Python reference as a site: site/index.html
# make clean-cache    forget compiled kernels, after changing one that other files call
# make lint    style, types, and which part may import which
# Each makes .venv first, if it is missing or older than what it is made from.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DURATIONS := $(if $(filter true,$(CI)),--durations=15)

.PHONY: demo test test-all test-again test-versions docs lint format clean clean-cache

demo: $(VENV)/ready
	$(BIN)/gossamer demo

test: $(VENV)/ready
	$(BIN)/pytest -n auto --dist worksteal -m "not slow" $(DURATIONS)

test-all: $(VENV)/ready
	$(BIN)/pytest -n auto --dist worksteal $(DURATIONS)

test-again: $(VENV)/ready
	$(BIN)/pytest --last-failed --last-failed-no-failures none --maxfail 1

test-versions:
	.ci/versions

docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(VENV)/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Gossamer needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/gossamer precompile
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-3.* site

clean-cache:
	find src -name "*.nbi" -delete -o -name "*.nbc" -delete
