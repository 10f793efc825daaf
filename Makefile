# make demo   runs the main job          make test    checks everything
# Both set up what they need the first time: a virtual environment in .venv, pinned by constraints.txt.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
FIGURES := lorenz-attractor speed-training stages-vowels # those that the README shows

.PHONY: demo test lint bench tables docs setup clean

demo: $(READY)
	@$(BIN)/mgrade demo

test: lint
	@sh scripts/tools.sh || true
	@$(BIN)/python -m pytest -n 2

lint: $(READY)
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet . && $(BIN)/mypy --no-error-summary

bench: $(READY)
	@$(BIN)/python -m benchmarks.cpu

tables: $(READY)
	@$(BIN)/python -m mgrade.report.markdown README.md docs/results.md docs/deploy.md docs/quantisation.md
	@$(BIN)/mgrade report --out build/report.html --figures build/figures
	@cp $(FIGURES:%=build/figures/%.svg) docs/assets

docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/docs
	@echo "docs: build/docs/index.html"

setup: $(READY)

$(READY): pyproject.toml setup.py constraints.txt $(wildcard src/mgrade/ops/csrc/* src/mgrade/tasks/csrc/*)
	@PYTHON="$(PYTHON)" sh scripts/setup.sh $(VENV)

clean:
	rm -rf $(VENV) build src/*.egg-info src/mgrade/ops/_kernels* src/mgrade/tasks/_generators*
