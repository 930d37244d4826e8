# Two commands do everything, on a fresh machine with Python 3.11 or newer:
#   make demo    see forbear work against an API that misbehaves
#   make test    run the tests; make test-sockets those that wait for real sockets
# Both make the virtual environment that they need. Choose another Python with: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-sockets test-sdk check coverage bench clean

demo: $(STAMP)
	$(BIN)/forbear demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest --ignore tests/sockets --ignore tests/sdk $(ARGS)

# What mostly waits: clients of HTTP against a server that hangs, drips and cuts. Several at a time.
test-sockets: $(STAMP)
	$(BIN)/python -m pytest -n 4 tests/sockets $(ARGS)

# The verdicts on the real errors of real libraries, which it installs (330 MB).
test-sdk: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-dev.txt -e '.[dev,sdk-test]'
	$(BIN)/python -m pytest -n 3 tests/loopback tests/sdk $(ARGS)

# What a change must pass besides the tests: style, types, and every core module proven by its own test file.
check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict --disallow-any-decorated tests/typing/examples.py
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python tests/proofs.py

coverage: $(STAMP)
	$(BIN)/coverage run -m pytest -q
	$(BIN)/coverage report

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-dev.txt -e '.[bench]'
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/inflight.py
	$(BIN)/python benchmarks/limiter.py
	$(BIN)/python benchmarks/transports.py
	$(BIN)/python benchmarks/goodput

$(STAMP): pyproject.toml constraints-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "forbear needs Python 3.11 or newer; name one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-dev.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv .venv-* build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
