# `make` alone lists the targets. Every target sets up .venv first, from the lock, once.

VENV   := .venv
PYTHON ?= python3
STAMP  := $(VENV)/.set-up-from-lock
BIN    := $(VENV)/bin
CODE   := $(wildcard mofa_model operator/mofa_operator lab/mofa_lab deploy/local/mofa_local)
ORACLE ?= $(PYTHON)
PYTEST := $(BIN)/python -m pytest
JOBS   ?= auto
TRAINERS_HOME ?= $(HOME)/.cache/mofa-oracle-trainers
TRAINERS_PYTHON ?= python3.12
DIST ?= dist
# uv does not read pip's settings: the index that this pip has.
index_of = $${UV_DEFAULT_INDEX-$${PIP_INDEX_URL-$$($(1) config get global.index-url 2>/dev/null)}}
PLATFORMS ?= amd64

# Tests start hundreds of processes; without byte code each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help oracle setup lock demo studies programs test test-unit nightly coverage check lint types format rules dashboards reference transcripts site verify oracle-counts oracle-kept bench validate release release-check publish soak up down e2e test-kind test-slurm clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything, from the lock

$(STAMP): requirements/dev.txt requirements/models.txt requirements/uv.txt pyproject.toml lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "setup: Python 3.11 or newer is needed; say which with make PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m venv --clear --without-pip $(VENV)
	@echo "setup: installing the lock into $(VENV)"
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then tool="$(BIN)/python -m pip"; \
	else tool="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
	pip="$$tool install --quiet --disable-pip-version-check"; \
	$$pip --require-hashes -r requirements/uv.txt; \
	export UV_DEFAULT_INDEX="$(call index_of,$$tool)"; \
	for install in "$(BIN)/uv pip install --quiet --python $(BIN)/python" "$$pip"; do \
		$$install --require-hashes -r requirements/dev.txt \
		&& $$install --require-hashes --no-deps -r requirements/models.txt \
		&& $$install --no-deps --no-build-isolation --editable . --editable lab && exit 0; \
		echo "setup: once more, with pip"; \
	done; exit 1
	@touch $@

lock: $(STAMP) ## make requirements/*.txt anew from pyproject.toml
	$(BIN)/python tools/lock.py

demo: $(STAMP) ## Llama 3.1 405B on a cluster that fails: manifest, alternatives, checkpoints, two pictures
	$(BIN)/mofa annotate examples/llama3-405b.yaml
	$(BIN)/mofa advise examples/llama3-405b.yaml --plots build/demo

studies: $(STAMP) ## every command of docs/studies, its pictures and results.md
	$(BIN)/python tools/studies.py

programs: $(STAMP) ## build what tests start, once: some ten minutes on two cores, kept in the user's cache
	@PYTHONPATH=deploy/local $(BIN)/python -m mofa_local.binaries --for-tests

test: programs ## every test; the image is built and asked where podman is
	$(PYTEST) -n $(JOBS)

test-unit: $(STAMP) ## the quick tier: unit, property, golden
	$(PYTEST) -n $(JOBS) -m "not slow and not cluster"

nightly: $(STAMP) ## what Hypothesis tests, with new examples and many of them; what fails is kept in .hypothesis
	HYPOTHESIS_PROFILE=nightly $(PYTEST) -n $(JOBS) -m "hypothesis and not cluster"

coverage: $(STAMP) ## the quick tier once more, and which lines of the product it reached
	$(PYTEST) -n $(JOBS) -m "not slow and not cluster" --cov=mofa_model --cov=mofa_operator --cov=mofa_lab --cov-report=term:skip-covered --cov-report=xml:build/coverage.xml

check: lint types ## lint, format, layers, types

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy $(CODE)

format: $(STAMP) ## put the code in the one format
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

rules: $(STAMP) ## deploy/rules/*.yaml from their source
	$(BIN)/python tools/rules.py

dashboards: $(STAMP) ## deploy/grafana/*.json from their code
	$(BIN)/python tools/dashboards.py

reference: $(STAMP) ## docs/reference/*.md and the tables of docs/equations.md from the code
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/equations.py

chart: $(STAMP) ## the chart's schema, README and files; deploy/manifests and the overlays that come from it
	$(BIN)/python tools/chart.py

oracle-counts: ## parameters and FLOPs of published architectures, as PyTorch builds them: ORACLE=a python with torch and transformers
	$(ORACLE) tools/oracle.py

oracle-kept: ## bytes that PyTorch keeps of a layer beside adapters: ORACLE=a python with torch, transformers, peft and bitsandbytes
	$(ORACLE) tools/kept.py

oracle: $(TRAINERS_HOME)/bin/python $(STAMP) ## ask the trainers' own code whether it takes our launches, and record it: TRAINERS=torchtitan for one of them
	$(BIN)/python tools/launches.py $(TRAINERS)
	$(BIN)/python tools/options.py
	$(BIN)/python tools/tuners.py
	$(BIN)/python tools/starts.py

$(TRAINERS_HOME)/bin/python: | $(STAMP) # Python 3.12 and 7 GB, outside the lock; uv takes two minutes where pip takes twenty
	$(TRAINERS_PYTHON) -m venv $(TRAINERS_HOME)
	@export UV_DEFAULT_INDEX="$(call index_of,$(PYTHON) -m pip)"; \
	install="$(BIN)/uv pip install --quiet --python $@"; $$install -r tools/validators/requirements.txt \
	&& $$install --no-deps -r tools/validators/alone.txt \
	&& for own in axolotl llamafactory torchtune; do $$install --no-deps --target $(TRAINERS_HOME)/own/$$own -r tools/validators/own/$$own.txt \
	|| { rm $@; exit 1; }; done || { rm $@; exit 1; } # half an environment is none

transcripts: $(STAMP) ## what README, documents and the notebook show, from a run of each; LIVE=yes: half an hour of the local stack, too
	$(BIN)/python tools/transcripts.py $(if $(LIVE),--live)
	$(BIN)/python tools/notebook_outputs.py

site: $(STAMP) ## the documents as a site in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

verify: $(STAMP) ## generated files equal their source; licences and known vulnerabilities of the locks
	$(BIN)/python tools/reference.py --check
	$(BIN)/python tools/equations.py --check
	$(BIN)/python tools/transcripts.py --check
	$(BIN)/python -m mofa_model.manifest.crds --check
	$(BIN)/python tools/metrics.py --check
	$(BIN)/python tools/rules.py --check
	$(BIN)/python tools/dashboards.py --check
	$(BIN)/python tools/chart.py --check
	$(BIN)/python tools/supply.py

bench: $(STAMP) ## strategies per second, and the other figures we claim: every script, and which of them are outside their ranges
	@bad=""; for script in benchmarks/*.py; do \
	    echo "== $$script"; $(BIN)/python $$script || bad="$$bad $$script"; done; \
	if test -n "$$bad"; then echo "bench: outside their ranges:$$bad"; exit 1; else echo "bench: all within their ranges"; fi

validate: $(STAMP) ## write docs/validation.md: predicted against measured, for every run we ship
	@if test -d "$(MOFA_KERNEL_ROWS)"; then for way in family device; do \
	    $(BIN)/mofa validate kernels "$(MOFA_KERNEL_ROWS)"/*.csv.xz --left-out $$way --record lab/data/kernels.json || exit 1; done; \
	else echo "validate: MOFA_KERNEL_ROWS names no folder with measured kernels, so their figures stay those of lab/data/kernels.json"; fi
	$(BIN)/mofa validate odds lab/data/cases/*.json --record lab/data/odds.json -o csv >/dev/null
	$(BIN)/mofa fit lab/data/cases/*.json --report docs

release: $(STAMP) ## what a release publishes, in DIST (dist), from a clean tree: VERSION=0.2.0 [IMAGE=REGISTRY/NAME] [PLATFORMS=amd64,arm64] [BASE=...] [KEY=cosign.key]
	$(BIN)/python tools/dist.py "$(DIST)" --version "$(VERSION)" --image "$(IMAGE)" --platforms "$(PLATFORMS)" --base "$(BASE)" \
	    --runbooks "$(RUNBOOKS)" --downloads "$(DOWNLOADS)" --key "$(KEY)"

release-check: $(STAMP) ## install each file of DIST as a user would, run README's commands, and the operator from a registry on loopback
	$(BIN)/python tools/release_check.py "$(DIST)"

publish: $(STAMP) ## send DIST to REGISTRY and to the package index; the workflow's part of a release
	$(BIN)/python tools/publish.py "$(DIST)" --registry "$(REGISTRY)" --packages

soak: $(STAMP) ## the long tests: whole grids, the whole of the model against the wheel, fifty kills and every fault of the operator, ten minutes of silence
	$(PYTEST) -n $(JOBS) -m soak

e2e: $(STAMP) ## the whole story with real containers on a real node, as root on Debian, whose packages it installs; PAGE=docs writes what it saw to docs/real-node.md
	PYTHONPATH=deploy/local $(BIN)/python -m mofa_local.real
	MOFA_E2E_PAGE="$(PAGE)" $(PYTEST) -n 0 -s -m soak tests/node

test-slurm: $(STAMP) ## the tests that ask a real Slurm, as root on Debian, whose packages it installs; `make test` runs them where these are
	PYTHONPATH=deploy/local $(BIN)/python -m mofa_local.slurm
	$(PYTEST) -n 0 tests/local/test_slurm.py tests/local/test_slurm_launch.py

test-kind: $(STAMP) ## the cluster tests on kind instead of the local control plane
	@if PYTHONPATH=deploy/local $(BIN)/python -m mofa_local.kind; then MOFA_CLUSTER=kind $(PYTEST) tests/cluster; \
	else echo "test-kind: skipped; \`make test\` runs the same tests on the local control plane"; fi

up: $(STAMP) ## control plane, 256 fake GPU nodes, Prometheus with history, fake trainers and the operator, on this machine; WITH=kube-state-metrics,jobset,kueue,trainer runs these beside it, NODE=real adds a node whose pods run
	@PYTHONPATH=deploy/local $(BIN)/python -m mofa_local up --with="$(WITH)" --node="$(NODE)"

down: $(STAMP) ## stop what `make up` started
	@PYTHONPATH=deploy/local $(BIN)/python -m mofa_local down

clean: ## remove what the tools made, .venv excepted
	@test ! -e .cache/up/run || $(MAKE) --no-print-directory down
	rm -rf dist build .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
