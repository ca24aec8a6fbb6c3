# Two commands on a fresh machine: `make demo` and `make test`. Everything else is for developers.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
TORCH := torch==2.13.0

.PHONY: demo test test-slow check lint types format suite sources router router-budgets sources-study sources-planted mixing-study words sources-words router-words docs clean bench-%

demo: .venv/user
	$(BIN)/smatter demo

test: .venv/developer
	$(BIN)/pytest -q -n 2

# Statistical and long tests: run before an issue is called done.
test-slow: .venv/developer
	$(BIN)/pytest -q -m slow

# What CI runs.
check: lint types test

lint: .venv/developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/developer
	$(BIN)/mypy

format: .venv/developer
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The pictures of Signs, from the registries' packages, and its lists of tasks; both ship with the repository.
suite: .venv/user
	$(INSTALL) --editable '.[fast,sklearn,suite]'
	$(BIN)/python tools/signs/build.py --cache .build/signs -o src/smatter/shipped/signs
	$(BIN)/python tools/signs/freeze.py

# The base and the specialists of Signs; they ship with the repository. Goes on where it was stopped.
sources: .venv/user
	$(BIN)/python tools/sources/build.py --work .build/sources -o src/smatter/shipped/signs-library

# The router of Signs, with experts for renderings that no source has seen; it ships too. Goes on where it was stopped.
router: .venv/user
	$(BIN)/python tools/router/train.py -o .build/routers/seed-0
	rm -rf src/smatter/shipped/signs-router && cp -r .build/routers/seed-0 src/smatter/shipped/signs-router

# The same with experts trained for budgets; it does not ship. Goes on where it was stopped.
router-budgets: .venv/user
	$(BIN)/python tools/router/budgets.py -o .build/routers/budgets

# Specialists made by many recipes, to see which of them mix; they do not ship.
mixing-study: .venv/user
	$(BIN)/python tools/sources/mixing.py --work .build/mixing

# Networks that do not ship, to judge those that do.
sources-study: .venv/user
	$(BIN)/python tools/sources/study.py --work .build/sources -o .build/signs-study

# Sources that mislead, to judge who is misled; they do not ship.
sources-planted: .venv/user
	$(BIN)/python tools/sources/planted.py --work .build/planted -o .build/signs-planted

# The texts of Words, from the registries' packages, and its lists of tasks; they do not ship.
words: .venv/user
	$(BIN)/python tools/words/build.py --work .build/words-packages -o .build/words
	$(BIN)/python tools/words/freeze.py .build/words

# The base and the specialists of Words, which do not ship either. Goes on where it was stopped.
sources-words: .venv/user
	test -d .build/words || $(MAKE) words
	$(BIN)/python tools/words/sources.py --suite .build/words --work .build/words-sources -o .build/words-library

# The router of Words, which does not ship either. Goes on where it was stopped.
router-words: .venv/user
	test -d .build/words-library || $(MAKE) sources-words
	$(BIN)/python tools/words/router.py --suite .build/words --library .build/words-library -o .build/words-router

# These documents and a reference of the public names as a static site; needs no network.
docs: .venv/user
	$(BIN)/python tools/docs/pages.py -o .build/site

bench-%: .venv/developer
	$(BIN)/python benchmarks/$*.py

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Smatter needs Python 3.11 or newer; try: make PYTHON=python3.12 demo"; exit 2; }
	$(PYTHON) -m venv .venv || { echo "on Debian and Ubuntu: apt install python3-venv"; rm -rf .venv; exit 2; }

# torch first and pinned: a looser range can pull gigabytes of CUDA packages.
.venv/user: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) $(TORCH)
	$(INSTALL) --editable '.[fast,sklearn]'
	@touch $@

.venv/developer: .venv/user
	$(INSTALL) --editable '.[fast,sklearn,peers,dev]'
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .bench .build smatter-demo
