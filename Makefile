# Everything runs in .venv, which is made from setup.cfg and constraints.txt when one of
# them has changed. `make EXTRAS=cuda install` adds an extra (cuda, tpu, tfds, notebook).

CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in $(CANDIDATES); do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && echo $$p && break; done)
EXTRAS ?=

VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check
# Few modules of the packages are ever imported; Python compiles a module when it is.
INSTALL := $(PIP) install --no-compile -c constraints.txt
DEMO := runs/digits

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint format docs install constraints clean

help:
	@echo 'make demo         the main job on the embedded digits; leaves $(DEMO)/'
	@echo 'make test         all fast tests (slow ones: pytest -m slow)'
	@echo 'make lint         formatter, linter and type checker, changing nothing'
	@echo 'make docs         the documentation site: docs/_build/html/index.html'
	@echo 'make format       formats the code and mends what the linter can mend'
	@echo 'make install      only the environment; EXTRAS=cuda (tpu, tfds, ...) adds an extra'
	@echo 'make constraints  renews constraints.txt (from the newest versions there are)'
	@echo 'make clean        removes the environment and the caches; keeps runs/'
	@echo 'PYTHON=<command> chooses the Python (3.11 or newer) that makes the environment.'

demo: install
	$(RUN) -m dpaf_jax.main --config=configs/recommended.py:digits --workdir=$(DEMO)
	@echo; for picture in $(DEMO)/release/*.png; do echo "Picture: $$picture"; done
	@echo 'Report:  $(DEMO)/report.html'
	@echo 'Release: $(DEMO)/release; its ε, and why it holds, in privacy.json there'
	@echo 'Next:    source $(VENV)/bin/activate, once per terminal; then' \
	  'dpaf-jax verify $(DEMO)'

# One worker per core, at most 8, and 3 GiB of memory for each.
MOST_WORKERS := import os; size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"); \
	print(max(1, min(8, size // (3 * 2**30))))

test: $(VENV)/installed-dev
	$(RUN) -m pytest --numprocesses=auto --dist=worksteal \
	  --maxprocesses=$$($(RUN) -c '$(MOST_WORKERS)')

lint: $(VENV)/installed-dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(RUN) -m mypy

format: $(VENV)/installed-dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: $(VENV)/installed-docs
	JAX_PLATFORMS=cpu $(RUN) -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
	@echo 'Site: docs/_build/html/index.html'

comma := ,
space := $(subst ,, )

install: $(VENV)/installed$(if $(EXTRAS),-$(subst $(space),$(comma),$(strip $(EXTRAS))))

$(VENV)/installed: setup.cfg pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e .
	@touch $@

$(VENV)/installed-%: setup.cfg pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[$*]'
	@touch $(VENV)/installed $@ $(patsubst %,$(VENV)/installed-%,$(subst $(comma),$(space),$*))

# Debian and Ubuntu ship Python without ensurepip; the pip outside serves then.
$(VENV)/bin/python:
	@test -n '$(PYTHON)' || { echo 'No Python 3.11 or newer among: $(CANDIDATES).' \
	  'Install one, or name it: make PYTHON=/path/to/python'; exit 1; } >&2
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { echo 'PYTHON=$(PYTHON) is not' \
	  'Python 3.11 or newer; name another one.'; exit 1; } >&2
	@echo 'Making $(VENV) with $(PYTHON); installing takes a few minutes and 1.3 GB.'
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
	  $(PYTHON) -m venv $(VENV); \
	else \
	  $(PYTHON) -m venv --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(RUN) install pip; \
	fi || { rm -rf $(VENV); echo 'This Python has neither ensurepip nor pip: install' \
	  'pip (Debian, Ubuntu: python3-pip or python3-venv).'; exit 1; } >&2

# Which NCCL there is, is the cuda extra's to say.
constraints:
	rm -rf build/constraints
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install '.[dev,docs,xgboost]'
	{ sed '/^[^#]/,$$d' constraints.txt; build/constraints/bin/python -m pip freeze \
	  --exclude dpaf_jax --exclude nvidia-nccl-cu12 | LC_ALL=C sort -f; } > build/constraints.txt
	mv build/constraints.txt constraints.txt

clean:
	rm -rf $(VENV) build dist docs/_build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
