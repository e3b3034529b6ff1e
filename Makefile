# The lab's commands. `make` alone lists them; each makes its environment in .venv first.

# Debian's, pyenv's or any other Python 3.11 or 3.12: make PYTHON=/path/to/python3.12
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || echo python3.11)
VENV := .venv
BIN := $(VENV)/bin
# Options for the demo: make demo ARGS="--quick --data ../shared/data/cifar-10-batches-bin"
ARGS ?=
# The kernels of the tests are small: more threads than one only wait for each other, and for TVM's workers. A process
# that is given the same numbers again is forked, not started (tests/warm.py).
# Compiled modules are kept, also where the machine says otherwise: every process of the tests would compile them again.
TEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONHASHSEED=0 $(BIN)/python -m pytest --timeout=300
# Two processes, each file whole in one of them: what a file works out once is worked out once.
PARALLEL := -n 2 --dist loadfile
# Notebooks are all in one file of tests, and know nothing of each other.
SPREAD := -n 2 --dist worksteal --durations=10
# Where pytest looks for tests, unless ARGS names files of its own.
in = $(if $(filter tests/%,$(ARGS)),,$(1))
# Seconds that each part of the tests may take; several times what two quiet cores need. Ended by SIGINT, so that pytest
# still says what has failed.
TEST_BUDGET := 4800
BROWSER_BUDGET := 1800
NOTEBOOK_BUDGET := 900
# Binds pip's own build environments too.
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lab install lint fast unit chance trust browser notebooks chromium docs doctor picture screenshots binder clean

help: ## What there is
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

demo: $(VENV)/.installed ## The main job, end to end (ARGS="--quick": the small one)
	$(BIN)/syno-lab demo $(ARGS)

test: lint unit browser notebooks ## All that CI runs

lab: $(VENV)/.installed ## JupyterLab on copies of all notebooks, in the folder lab
	$(BIN)/syno-lab lab --folder lab $(ARGS)

install: $(VENV)/.installed ## The environment alone

lint: $(VENV)/.installed-dev ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

fast: $(VENV)/.installed-dev ## The tests without browser, TVM and notebooks
	timeout -s INT -k 60 $(TEST_BUDGET) $(TEST) $(PARALLEL) -m "not browser and not tvm and not notebook" --ignore tests/browser $(ARGS)

unit: $(VENV)/.installed-dev ## The tests without browser and notebooks
	timeout -s INT -k 60 $(TEST_BUDGET) $(TEST) $(PARALLEL) --durations=30 -m "not browser and not notebook" --ignore tests/browser $(ARGS)

chance: $(VENV)/.installed-dev ## The tests that draw, each with ten seeds (ARGS="tests/ir --draws 100")
	$(TEST) $(PARALLEL) --draws 10 -m "draws and not browser and not notebook" $(ARGS)

trust: $(VENV)/.installed-dev ## Loop nest, PyTorch and TVM on random operators (ARGS="--operators 10000")
	$(BIN)/python benchmarks/trust.py $(ARGS)

browser: chromium $(VENV)/.installed-dev ## The tests in a real Chromium
	timeout -s INT -k 60 $(BROWSER_BUDGET) $(TEST) $(PARALLEL) --durations=10 -m browser $(call in,tests/browser) $(ARGS)

notebooks: $(VENV)/.installed-dev ## Every notebook, from a clean kernel
	timeout -s INT -k 60 $(NOTEBOOK_BUDGET) $(TEST) $(SPREAD) -m notebook $(call in,tests/widgets/test_notebooks.py) --timeout=$(NOTEBOOK_BUDGET) $(ARGS)

chromium:
	@command -v "$${SYNO_CHROMIUM:-chromium}" || command -v chromium-browser || command -v google-chrome || \
	  { echo "The browser tests need Chromium: 'apt-get install chromium', or its path in SYNO_CHROMIUM" >&2; exit 1; }

doctor: $(VENV)/.installed ## What this machine has and what is missing
	$(BIN)/syno-lab doctor

docs: $(VENV)/.installed-docs ## The manual as a site, in build/site
	$(BIN)/sphinx-build --quiet --fail-on-warning --write-all --jobs 2 -c docs -d build/doctrees . build/site
	@echo "Open build/site/index.html"

picture: $(VENV)/.installed ## The README's pGraph, the packages and the page of primitives, drawn again
	$(BIN)/syno-lab show conv2d --as svg --out docs/conv2d.svg
	$(BIN)/python docs/architecture.py
	$(BIN)/python docs/primitives.py
	$(BIN)/python docs/gallery.py

screenshots: chromium $(VENV)/.installed-dev ## Every view, light and dark, at three widths; and the manual's screenshots
	rm -rf $(VENV)/screenshots $(VENV)/views build/screenshots
	mkdir -p build/screenshots
	SYNO_WIDTHS=900,1400,2000 $(TEST) -m browser tests/browser/test_accessibility.py tests/browser/test_compare.py \
	  tests/browser/test_map.py -k "whole or alone or atlas" --basetemp=$(VENV)/views
	find $(VENV)/views -name '*-[0-9]*.png' -not -path '*current*' -exec cp {} build/screenshots \;
	$(TEST) -m browser tests/browser/test_stepper.py tests/browser/test_explorer.py -k light --basetemp=$(VENV)/screenshots
	$(BIN)/python docs/pictures.py $(VENV)/screenshots

binder: ## Binder's environment built anew from the last commit, and notebooks run in it (minutes)
	$(PYTHON) binder/check.py $(ARGS)

clean: ## Remove the environment and what the tools left
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch comes first and by exact version, so that a CPU build at hand is taken (see constraints.txt).
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@
