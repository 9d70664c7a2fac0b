# `make help` lists the targets; `make check` is what CI runs.

PYTHON ?= python3
ARGS ?=
EVENTS ?= 20000
SECONDS ?= 600
CASES ?= 5000
CONTEXTS ?= 2000
EDITS ?= 100
SEED ?= 7
SERVERS ?= .servers

VENV := .venv
BIN := $(VENV)/bin
UV := .tools/bin/uv
LOCKS := requirements

# A Python is never downloaded: the one named by PYTHON is used.
export UV_PYTHON_DOWNLOADS := never
export VIRTUAL_ENV := $(CURDIR)/$(VENV)

# Compiled bytecode is kept here, also where Python is told not to write any.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.bytecode
unexport PYTHONDONTWRITEBYTECODE

TOOLS_READY := .tools/.ready
VENV_READY := $(VENV)/.ready
RUNTIME_READY := $(VENV)/.runtime-ready
DEV_READY := $(VENV)/.dev-ready

# The build backend comes from the lock too, hence no build isolation.
INSTALL_PROJECT = $(UV) pip install --quiet --no-deps --no-build-isolation --editable .
BUILD_UI = $(BIN)/python dev/ui_build.py
# On a machine with other work a server may be late: what fails is run once more, by itself. The first report
# names what failed once; what fails twice fails.
ONCE_MORE = --last-failed --last-failed-no-failures none --numprocesses 0
run_tests = $(BIN)/pytest --numprocesses auto $(1) || { [ $$? -eq 1 ] && $(BIN)/pytest $(1) $(ONCE_MORE); }
TESTED = not (browser or cluster or pooler or chaos or peer or release)
COMPILE = $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url $(ARGS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test long-tests coverage check format lint types layers fuzz reference bench bench-compare work chaos soak proof sizes engines check-engines up down lock clean \
	docs fresh release ui ui-check ui-types ui-pictures browser pgbouncer check-pgbouncer pictures

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '  make %-8s  %s\n' "$$target" "$$text"; done

install: $(DEV_READY) ## Make .venv with everything needed to develop, exactly as locked

# The demonstration works without the web UI, and says so.
demo: $(RUNTIME_READY) ## Run the demonstration (installs what a user would install, no more)
	-@$(BUILD_UI)
	$(BIN)/headwater demo

test: ui ## Run the tests that take less than a second, without a browser, a cluster, PgBouncer, chaos, peers or a release (ARGS="-k name" narrows them)
	$(call run_tests,--brief --hypothesis-profile quick -m "$(TESTED)" $(ARGS))

long-tests: ui ## Measure which tests are long, and write their names into tests/long.txt
	$(BIN)/pytest --numprocesses auto --measure-long --hypothesis-profile quick -m "$(TESTED)" $(ARGS)

coverage: ui browser ## Run all tests and report their coverage
	$(BIN)/pytest --numprocesses auto --cov --cov-report=term $(ARGS)

check: lint types layers ui-check ui browser pgbouncer ## Check format, lint, types, import layers, web UI; run all tests
	$(call run_tests,$(ARGS))
	$(MAKE) check-pgbouncer

# Tests that have servers, users or broken connections of their own are left out.
check-pgbouncer: pgbouncer ## Run the tests of Postgres, and of whole stores on servers, through a PgBouncer that pools transactions
	$(call run_tests,--pgbouncer --hypothesis-profile quick -k "postgres or TestServerErasures" tests/backends/postgres tests/conformance/test_production.py)
	$(call run_tests,--pgbouncer --all-environments --hypothesis-profile quick -k production tests/engine tests/history tests/store)

pgbouncer: $(DEV_READY)
	@$(BIN)/python -m dev.pgbouncer

# Tests of the web UI use the Chromium of the system.
browser: $(DEV_READY)
	@$(BIN)/python -m dev.browser

ui: $(DEV_READY) ## Build the web UI into src/headwater/ui, if its sources have changed
	@$(BUILD_UI)

ui-check: $(DEV_READY) ## Check types, lint and format of the web UI, and run its unit tests
	$(BUILD_UI) run --silent check
	$(BUILD_UI) run --silent test

ui-types: $(DEV_READY) ## Write the web UI's types of requests and responses from the OpenAPI document
	$(BIN)/python -m dev.ui_types

docs: $(DEV_READY) ## Build the site of the documentation into build/site
	@$(BIN)/python -m dev.site

fresh: $(DEV_READY) ## Clone into an empty home, run the two commands, install the package (ARGS=--no-tests)
	$(BIN)/python -m dev.fresh $(ARGS)

release: $(DEV_READY) ## Build and check VERSION, and make its commit and tag (ARGS=--no-checks leaves out `make check`)
	@$(BIN)/python -m dev.release $(ARGS) $(VERSION)

pictures: ui browser ## Take the pictures of the README from the data of the demo
	$(BIN)/python -m dev.pictures

ui-pictures: ui browser ## Take pictures of every state that the tests of the web UI reach, into build/pictures
	$(BIN)/pytest --numprocesses auto --pictures build/pictures $(ARGS) tests/ui

lint: $(DEV_READY) ## Check format, lint and the size of packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m dev.size

types: $(DEV_READY) ## Check types
	$(BIN)/mypy

layers: $(DEV_READY) ## Check that packages import only from the layers below
	$(BIN)/lint-imports

format: $(DEV_READY) ## Format the code and apply the linter's fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

fuzz: $(DEV_READY) ## Send requests derived from the OpenAPI document to a server (CASES=5000 SEED=7)
	$(BIN)/python -m dev.fuzz --cases $(CASES) --seed $(SEED) $(ARGS)

reference: $(DEV_READY) ## Write the tables of docs/reference that are generated from the code
	$(BIN)/python -m dev.reference

bench: $(DEV_READY) ## Run the benchmarks
	$(BIN)/python -m bench $(ARGS)

bench-compare: $(DEV_READY) ## Print the last results beside an earlier copy of .bench/results.json (BASE=file)
	$(BIN)/python -m bench --compare $(BASE) $(ARGS)

sizes: $(DEV_READY) ## Measure the bytes that `headwater plan` computes with (some minutes)
	$(BIN)/python -m bench.sizes

work: $(DEV_READY) ## Count the steps of each operation, and compare them with those kept (ARGS=--update)
	$(BIN)/python -m dev.work $(ARGS)

up: $(DEV_READY) ## Run Valkey and Postgres until Ctrl-C, with data that stays (SERVERS=folder)
	@$(BIN)/python -m dev.up $(SERVERS)

down: $(DEV_READY) ## Stop what `make up` started
	@$(BIN)/python -m dev.up --stop $(SERVERS)

chaos: $(DEV_READY) ## Break the production engine on purpose and count what it loses (EVENTS=1000000 SEED=7)
	$(BIN)/python -m chaos --events $(EVENTS) --seed $(SEED) $(ARGS)

soak: $(DEV_READY) ## Load a server at 70 % of its capacity and watch its memory (SECONDS=600 ARGS=--servers)
	$(BIN)/python -m soak --seconds $(SECONDS) $(ARGS)

# Engines that need a JRE, packages of Maven, Go or Debian, or large wheels, in an environment of their own.
ENGINES := .venv-engines
ENGINES_READY := $(ENGINES)/.ready

# Over a gigabyte, once.
engines: $(ENGINES_READY) ## Fetch Ray, Spark, Kafka, Prometheus, dbt, SQLMesh, an S3 server and Iceberg's catalog (needs a JRE, Maven, Go, apt and root)
	$(ENGINES)/bin/python -m engines.downloads

check-engines: engines ui browser ## Run the tests on Ray, Spark, and real servers of Kafka, S3 and an Iceberg catalog
	$(ENGINES)/bin/pytest engines --timeout 600 --numprocesses 2 --dist loadfile $(ARGS) || { [ $$? -eq 1 ] && $(ENGINES)/bin/pytest engines --timeout 600 $(ONCE_MORE) $(ARGS); }

proof: $(DEV_READY) ## Evaluate a world unchanged and with seeded edits, judged by living it again (CONTEXTS=20000 EDITS=100)
	$(BIN)/python -m proof --contexts $(CONTEXTS) --edits $(EDITS) --seed $(SEED) $(ARGS)

# All but those of engines, which are hundreds of megabytes.
EXTRAS = $(foreach extra,redis postgres sources snowflake bigquery local chat prices tiktoken signing oidc otel mcp langchain langgraph llamaindex openai-agents pydantic-ai lake kafka,--extra $(extra))

lock: $(TOOLS_READY) ## Renew the locks after a change in pyproject.toml (ARGS=--upgrade for newer versions)
	$(COMPILE) pyproject.toml $(EXTRAS) --group dev --output-file $(LOCKS)/dev.txt
	$(COMPILE) pyproject.toml $(EXTRAS) --extra ray --extra spark --group dev --group engines --constraint $(LOCKS)/dev.txt --output-file $(LOCKS)/engines.txt
	$(COMPILE) pyproject.toml --extra local --group build --group model --constraint $(LOCKS)/dev.txt --output-file $(LOCKS)/runtime.txt
	for name in uv iceberg-spark daft jupyterlab producers; do $(COMPILE) $(LOCKS)/$$name.in --output-file $(LOCKS)/$$name.txt || exit; done

clean: ## Remove what the other targets made (embedded data stays)
	rm -rf .venv .venv-engines .engines .tools build dist src/headwater/ui ui/node_modules .coverage .coverage.* htmlcov .mypy_cache .pytest_cache .ruff_cache \
		.import_linter_cache .hypothesis .bytecode
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# uv goes into a folder of its own, because system Pythons refuse `pip install` elsewhere (PEP 668).
$(TOOLS_READY): $(LOCKS)/uv.txt
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
		--upgrade --target .tools --require-hashes -r $(LOCKS)/uv.txt
	@touch $@

# A newer uv does not require a new environment.
$(VENV_READY): | $(TOOLS_READY)
	$(UV) venv --quiet --clear --python "$$(command -v $(PYTHON))" $(VENV)
	@touch $@

# Both locks name the same versions, so what one has installed the other keeps.
$(RUNTIME_READY): $(VENV_READY) $(LOCKS)/runtime.txt pyproject.toml
	$(UV) pip install --quiet --require-hashes -r $(LOCKS)/runtime.txt
	$(INSTALL_PROJECT)
	@touch $@

$(ENGINES_READY): $(LOCKS)/engines.txt pyproject.toml | $(TOOLS_READY)
	$(UV) venv --quiet --clear --python "$$(command -v $(PYTHON))" $(ENGINES)
	VIRTUAL_ENV=$(CURDIR)/$(ENGINES) $(UV) pip sync --quiet --require-hashes $(LOCKS)/engines.txt
	VIRTUAL_ENV=$(CURDIR)/$(ENGINES) $(INSTALL_PROJECT)
	@touch $@

$(DEV_READY): $(VENV_READY) $(LOCKS)/dev.txt pyproject.toml
	$(UV) pip sync --quiet --require-hashes $(LOCKS)/dev.txt
	$(INSTALL_PROJECT)
	@touch $@ $(RUNTIME_READY)
