# Needs only Python 3.11 to 3.13 and make: everything else goes into .venv.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable
DEMO := models/demo.onnx
WORKERS ?= 2

# The first usable interpreter, oldest first; a name on the PATH may be a shim or lack the venv parts, so each is tried.
USABLE := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python; do \
	"$$python" -c '$(USABLE)' >/dev/null 2>&1 && echo "$$python" && break; done)

.PHONY: help setup demo docs test tools lint conformance bench release clean distclean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.stamp-run ## Make .venv and install eqfuse into it

demo: $(VENV)/.stamp-run $(DEMO) ## Optimise a small model with real structure, compile it, run it and time it
	$(BIN)/eqfuse optimize $(DEMO) -o models/demo.optimized.onnx
	$(BIN)/eqfuse compile $(DEMO) -o models/demo.bundle --threads 1
	$(BIN)/eqfuse run models/demo.bundle --random 0
	$(BIN)/eqfuse bench models/demo.bundle --against ort

docs: $(VENV)/.stamp-run ## Run the commands that README and docs show, and write their outputs anew (PAGES=docs/optimize.md to choose)
	$(BIN)/python docs/examples.py $(PAGES)

# Where Python may not keep bytecode, each run would compile all tests anew, and each process that they start what changed.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS)

# The tests of a file stay on one worker, for they share what they prepare; the files of most tests come first.
test: $(VENV)/.stamp-test tools ## Run the tests that are fast: of each kind at least one
	$(PYTEST) --dist loadfile

# Tests for Arm, and those of C libraries with clang, skip where these cannot be had.
TOOLS := aarch64-linux-gnu-gcc qemu-aarch64-static qemu-aarch64 clang
TOOL_PACKAGES := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static qemu-user clang libclang-rt-dev

tools: ## Install the Arm cross compiler and emulators, and clang, where apt-get can
	@for tool in $(TOOLS); do command -v $$tool >/dev/null || missing=1; done; [ -z "$$missing" ] || { \
		timeout 300 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 600 \
		apt-get install -y -qq --no-install-recommends $(TOOL_PACKAGES); } >/dev/null 2>&1 || \
		echo "Tests for Arm and with clang will skip; to run them, as root: apt-get install $(TOOL_PACKAGES)"

conformance: TOOLS += arm-none-eabi-gcc qemu-system-arm
conformance: TOOL_PACKAGES += gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm

lint: $(VENV)/.stamp-test ## Check style (ruff) and types (mypy --strict)
	$(BIN)/ruff check .
	cd $(VENV)/source && ../bin/mypy --config-file ../../pyproject.toml -p eqfuse

# Properties are in both: here with more examples. A worker that has no more tests takes over half of another's, for the
# cases of one file take hours.
conformance: $(VENV)/.stamp-test tools ## Run all others: every rule, ONNX's node tests, random graphs, searches (PART=tests/rules to choose)
	$(PYTEST) --dist worksteal -r fE -m "conformance or hypothesis" --hypothesis-profile thorough $(PART)

bench: $(VENV)/.stamp-bench $(DEMO) ## Compare eqfuse optimize with onnxsim and onnxslim (MODELS="a.onnx b.onnx" to choose)
	$(BIN)/python benchmarks/optimize.py $(or $(MODELS),$(DEMO))

release: $(VENV)/.stamp-release ## Build the wheel and the archive of sources in dist/, and check them (CONTRIBUTING.md)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	@echo "To upload them: $(BIN)/python -m twine upload dist/*"

clean: ## Remove what builds and tests made, but keep .venv
	rm -rf build dist models *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## Remove .venv too
	rm -rf $(VENV)

$(DEMO): examples/demo_model.py | $(VENV)/.stamp-run
	$(BIN)/python $< $@

# As pip does for what it installs: without it each run compiles all modules where PYTHONDONTWRITEBYTECODE is set.
COMPILE := $(BIN)/python -m compileall -q -x '/(\.|tests/)' .

# A stamp holds while pyproject.toml does not change. The link gives mypy the package under its own name.
$(VENV)/.stamp-venv:
	@test -n "$(PYTHON)" || { echo "eqfuse needs Python 3.11, 3.12 or 3.13 with venv (Debian: apt install python3-venv);" \
		"none found. Name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	mkdir -p $(VENV)/source && ln -sfn ../.. $(VENV)/source/eqfuse
	touch $@

$(VENV)/.stamp-run: pyproject.toml | $(VENV)/.stamp-venv
	$(INSTALL) .
	$(COMPILE)
	touch $@

$(VENV)/.stamp-test: pyproject.toml | $(VENV)/.stamp-venv
	$(INSTALL) '.[test]'
	$(COMPILE)
	touch $@ $(VENV)/.stamp-run

$(VENV)/.stamp-release: pyproject.toml | $(VENV)/.stamp-venv
	$(INSTALL) '.[release]'
	touch $@ $(VENV)/.stamp-run

$(VENV)/.stamp-bench: pyproject.toml | $(VENV)/.stamp-venv
	$(INSTALL) '.[bench]'
	$(COMPILE)
	touch $@ $(VENV)/.stamp-run
