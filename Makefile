# Every command of this project. The first two need root and a Debian or Ubuntu
# with Python 3.11 or newer; they install all else, and do nothing twice.

BIN := .venv/bin
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: demo test lint format bench fuzz images proto constraints clean

demo: ## divert a pod's traffic for real, on this machine, and show it
	@.ci/setup demo
	@$(BIN)/python -m proxyinit.demo

test: ## all tests; those of the kernel run in namespaces of their own
	@.ci/setup dev
	@$(BIN)/pytest

lint: ## formatting, ruff, mypy --strict
	@.ci/setup dev
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

format: ## rewrite the sources in the one format
	@.ci/setup dev
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

bench: ## ratios against one-command-at-a-time, measured in one run
	@.ci/setup dev
	@$(BIN)/python netns-tests/benchmarks/bench.py

fuzz: ## model against kernel, 50,000 packets a mode, and parsers for ten minutes
	@.ci/setup dev
	@PROXYINIT_FUZZ=1 PROXYINIT_FUZZ_SECONDS=600 $(BIN)/pytest -q --timeout 7200 \
	  netns-tests/test_model_kernel.py \
	  netns-tests/test_model_foreign.py netns-tests/test_model_native.py \
	  tests/test_explain_properties.py

images: ## build the images into build/images; BASE=local: on Debian's packages alone
	@.ci/setup dev
	@$(BIN)/python images/build.py $(if $(BASE),--base $(BASE))

proto: ## generate the messages of the certification call
	@.ci/setup dev
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
	  identity/_proto/identity.proto

constraints: ## renew constraints.txt from what is installed
	@.ci/setup dev
	@{ $(BIN)/pip freeze --exclude-editable; \
	   grep -E '^(editables|hatchling|setuptools|tomlkit|trove-classifiers|wheel)==' \
	   constraints.txt; } | sort -fu > constraints.pins
	@{ grep '^#' constraints.txt; cat constraints.pins; } > constraints.new
	@rm constraints.pins
	@mv constraints.new constraints.txt

clean: ## remove what the commands above made here
	@rm -rf .venv build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -prune -exec rm -rf {} +
