# SPDX-License-Identifier: Apache-2.0
# `make demo` runs the example, `make test` runs the gate. Both install missing tools first.

VENV := .venv/bin
WORKERS ?= 2
# Tests start the tool hundreds of times: with bytecode, each start takes two thirds of the time.
PYTEST := PYTHONDONTWRITEBYTECODE= $(VENV)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help demo docs pages test test-all lint format clean distclean

help:
	@echo "make demo      compile the example and run it on the host and on emulated boards"
	@echo "make test      the gate: linters, types, conventions, tests with emulated boards"
	@echo "make test-all  all tests, also those that take minutes"
	@echo "make docs      build/site, the documentation as a web site"
	@echo "make pages     write the pages and pictures of docs/ that are generated from code"
	@echo "make lint      only linters, types and conventions"
	@echo "make format    format Python and C"
	@echo "make clean     remove build outputs; make distclean also removes .venv"

demo:
	@.ci/setup.sh demo
	@$(VENV)/relax-aot demo

pages:
	@.ci/setup.sh docs
	@$(VENV)/python -m docs.tools.pages
	@$(VENV)/python -m docs.tools.pictures

docs: pages
	@NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs build --quiet
	@echo "build/site/index.html; with search: python -m http.server -d build/site"

test:
	@.ci/setup.sh test
	@$(PYTEST) -m "not long"

test-all:
	@.ci/setup.sh test
	@$(PYTEST) -m ""

lint:
	@.ci/setup.sh test
	@$(PYTEST) -m "" tests/test_repository.py

format:
	@.ci/setup.sh test
	@$(VENV)/ruff check --fix-only --quiet .
	@$(VENV)/ruff format --quiet .
	@$(VENV)/clang-format -i $$(git ls-files --cached --others --exclude-standard 'runtime_c/*.[ch]')

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
