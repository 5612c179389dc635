# Every target does its own set-up. Nothing here needs root but bench-peers.

PYTHON ?= python3
SEEDS  ?= 3000
SECONDS ?= 60
PROTOCOL ?=

VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq
STAMP  := $(VENV)/.set-up
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help

# Tests, demos and benches start many processes: the code is compiled once, not by each of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test lint check rules soak fuzz explore bench bench-peers curves levels docs clean

help:  ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP)  ## make .venv with all that is needed, a Java for Spark included

demo: setup  ## five real members, one killed, the run traced, verified and drawn
	@$(BIN)/unisono demo

# Spark is started a dozen times: with its classes kept, each time takes half as long. Members that
# wait for each other leave time to spare: three workers keep two cores at work.
test: lint  ## format, lint, strict types, then all tests
	@$(BIN)/python -m unisono.spark.classes >/dev/null 2>&1 || true
	@$(PYTEST) -n 3 --dist loadgroup

lint: setup
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --strict --no-error-summary src benchmarks examples

check: lint  ## format, lint, strict types, tidy, quick tests: under a minute
	@$(PYTEST) -q -n 2 --dist loadgroup -m "not slow and not spark and not real"

rules: setup  ## each rule of the papers: its tests, and whether it holds
	@$(PYTEST) -q -n 2 --dist loadgroup -m rule --rules --rules-json=build/rules.json

soak: setup  ## long campaigns of simulated runs; SEEDS=3000 PROTOCOL=rmcast, by default all
	@UNISONO_SEEDS=$(SEEDS) UNISONO_PROTOCOL=$(PROTOCOL) $(PYTEST) -m soak -s --timeout 0

fuzz: setup  ## hostile bytes and packets, to decoders and live members; SECONDS=60
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

explore: setup  ## MTP's agreement in every interleaving, RMP's reformation and replicated logs under every crash and cut: an hour
	@$(BIN)/python -m tests.mtp.explore
	@$(BIN)/python -m tests.rmp.reform_explorer
	@$(BIN)/python -m tests.replication.explorer

bench: setup  ## throughput and latency on real sockets
	@$(BIN)/unisono bench

PEERS := corosync libcpg-dev gcc libc6-dev libjgroups-java default-jdk-headless nats-server redis-server \
         etcd-server zookeeper

# The bench starts servers of its own: Debian is kept from starting one for all the machine.
bench-peers: setup  ## install the systems that the bench measures beside us: Debian and root
	@command -v apt-get >/dev/null || { echo "the peers are Debian's packages: $(PEERS)"; exit 1; }
	@test "$$(id -u)" = 0 || { echo "installing packages needs root: sudo make bench-peers"; exit 1; }
	@apt-get -qq update
	@policy=/usr/sbin/policy-rc.d; if ! test -e $$policy; then trap "rm -f $$policy" EXIT; \
	    printf '#!/bin/sh\nexit 101\n' >$$policy && chmod +x $$policy; fi; \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $(PEERS) >/dev/null
	@$(PIP) install -c constraints.txt -r benchmarks/requirements.txt
	@$(BIN)/python -m benchmarks.peers
	@$(BIN)/python -m benchmarks.durable --missing
	@$(BIN)/python -m benchmarks.objects --missing

curves: setup  ## the curves of the ring's paper, measured here, for docs/BENCHMARKS.md: minutes
	@$(BIN)/unisono bench paper --out docs/figures

levels: setup  ## what each level of service costs, as curves, for docs/BENCHMARKS.md: seven minutes
	@$(BIN)/python -m benchmarks.levels

docs: setup  ## the documents as a site, in build/site; a broken link is an error
	@$(PIP) install -c constraints.txt -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open build/site/index.html"

clean:  ## remove .venv and everything that was made
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian's Python may come without ensurepip; its pip can then serve the new environment.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$(PYTHON) is too old: Python 3.11 or later is needed; say make PYTHON=python3.12"; exit 1; }
	@echo "setting up in $(VENV) (the first time takes a minute or two) ..."
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || \
	    { rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) && \
	      $(PYTHON) -m pip -qq --python $(BIN)/python install pip; }
	@echo "  Python packages ..."
	@$(PIP) install -c constraints.txt -e '.[trace,cli,spark,delta,fast,seal,dev]'
	@$(BIN)/python -m unisono.spark.java >/dev/null 2>&1 || \
	    { echo "  no Java that Spark can use here: fetching one ..." && \
	      $(PIP) install -c constraints.txt -e '.[java]'; }
	@printf "  " && $(BIN)/python -m unisono.spark.java
	@touch $(STAMP)
	@echo "ready: $(BIN)/unisono"
