# The two commands that matter are `make run` and `make test`; `make help` lists all.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

NODE := deploy/local/with-node.sh
JEST := $(NODE) npm run -s jest --
# Only tests that need no stores.
UNIT := PARTNER_INGEST_TEST_STORES=none $(JEST) --testPathIgnorePatterns /node_modules/ /dist/ '/test/(integration|simulation|chart|kubernetes|e2e)/' /mail-catcher/
RESULTS := .run/test-results.json
E2E_RESULTS := .run/e2e-results.json
IMAGE := partner-ingest:dev
BASE_IMAGE := node:24-bookworm-slim

# All but files: every target is a lower-case word, `node_modules` is not.
.PHONY: $(shell sed -nE 's/^([a-z0-9-]+):.*/\1/p' Makefile)

help: ## List the targets
	@if [ -t 1 ]; then on=$$'\033[36m' off=$$'\033[0m'; fi; \
	awk -F ':.*## ' -v on="$${on:-}" -v off="$${off:-}" \
	  '/^[a-z0-9-]+:.*## / { printf "  %s%-12s%s %s\n", on, $$1, off, $$2 }' Makefile

run: node_modules stores build ## Run everything on this machine: stores, the three processes, demo keys, a mail catcher
	@exec $(NODE) node deploy/local/run.ts

smoke: node_modules ## Send one application through the running system and show each step until its e-mail
	@$(NODE) node deploy/local/smoke.ts

test: node_modules stores ## Run all tests this machine can run, and say what was left out (TESTS=path ORDER=random)
	@mkdir -p .run; rm -f $(RESULTS) $(E2E_RESULTS)
	@status=0; $(JEST) $(if $(filter random,$(ORDER)),--randomize) --json --outputFile=$(RESULTS) $(TESTS) > /dev/null || status=$$?; \
	if [ -z "$(TESTS)" ] && $(NODE) node test/e2e/cluster.ts 2> /dev/null; then $(MAKE) --no-print-directory e2e || status=1; fi; \
	$(NODE) node test/support/summary.ts $(RESULTS) $(E2E_RESULTS) || status=1; exit $$status

e2e: node_modules ## Install the chart in a cluster and test it there: E2E_KUBECONFIG and E2E_LOAD_IMAGE, or kind (TESTS=path E2E_FROM=commit E2E_KEEP=1)
	@mkdir -p .run; rm -f $(E2E_RESULTS)
	@$(NODE) node test/e2e/cluster.ts
	@status=0; $(JEST) --config test/e2e/jest.config.ts --json --outputFile=$(E2E_RESULTS) $(TESTS) > /dev/null || status=$$?; \
	$(NODE) node test/e2e/report.ts $(E2E_RESULTS) || status=1; exit $$status

bench: node_modules stores build ## Compare our door with a naive one and a bare Fastify; BENCH="--rounds 3 --seconds 5"
	@$(NODE) node test/bench/bench.ts $(BENCH)

bench-traces: node_modules stores build ## Compare our door without traces, with 1 % of them and with all
	@$(NODE) node test/bench/traces.ts $(BENCH)

chaos: node_modules stores ## Take every part away under load and audit every promise (KILLS= SEED= FAULTS= FAULT_SECONDS= SETTLE=each|end)
	@mkdir -p .run/chaos
	@$(NODE) node test/chaos/run.ts --kills "$(KILLS)" --seed "$(SEED)" --faults "$(FAULTS)" \
	  --seconds-per-fault "$(FAULT_SECONDS)" --settle "$(SETTLE)" --json .run/chaos/result.json

simulate: node_modules ## Play random histories of crashes and outages in memory (HISTORIES=10000 SEED= AT=, as a failure prints them)
	@$(NODE) node test/simulation/simulate.ts --histories="$(HISTORIES)" --seed="$(SEED)" --at="$(AT)"

fuzz: node_modules stores ## Ask the running service all its OpenAPI document allows and forbids, for FUZZ_SECONDS=300
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),300) $(JEST) test/integration/openapi-fuzz

drill: node_modules stores ## Inject every fault under load and see which alert it raises (FAULTS= SEED= JSON=)
	@$(NODE) node test/drill/run.ts --faults "$(FAULTS)" --seed "$(SEED)" --json "$(JSON)"

board: node_modules stores ## Draw the dashboard's panels from a real Prometheus under load into docs/dashboard.svg
	@$(NODE) node test/drill/board.ts

check: types lint format unit ## The gate before a commit: types, lint, format, generated files, unit and architecture tests

types: node_modules
	@$(NODE) npm run -s typecheck

lint: node_modules
	@$(NODE) npm run -s lint

format: node_modules
	@$(NODE) npm run -s format:check

unit: node_modules
	@$(UNIT)

session: node_modules stores ## Record docs/session.md, a terminal session of the operator's command on a real run
	@$(NODE) node test/support/record-session.ts

docs: node_modules ## Generate the documentation that comes from the code, and format everything
	@$(NODE) node deploy/local/generate-docs.ts
	@$(NODE) npm run -s format > /dev/null

picture: node_modules ## Draw the e-mail for docs/email.md (needs chromium; TEMPLATES=folder)
	@$(NODE) node deploy/local/mail-picture.ts $(TEMPLATES)

openapi: node_modules ## Write docs/openapi.json (and the other generated files) from the code
	@$(NODE) node deploy/local/generate-docs.ts

lock: ## Remake package-lock.json after a change of package.json
	@$(NODE) node deploy/local/lock.ts

build: node_modules ## Compile to dist/
	@rm -rf dist && $(NODE) npm run -s build && echo "built dist/cmd/{ingest,processor,controller,cli}/main.js"

image: node_modules ## Build the container image (IMAGE=partner-ingest:dev BASE_IMAGE=…), write its SBOM, say its size
	docker build -t $(IMAGE) --build-arg BASE_IMAGE=$(BASE_IMAGE) --build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
	  --build-arg VERSION="$$($(NODE) node -p "require('./package.json').version")" .
	@mkdir -p .run && $(NODE) npm sbom --sbom-format cyclonedx --package-lock-only --omit=dev --omit=optional > .run/sbom.cdx.json
	@$(NODE) node -e 'const {components} = JSON.parse(require("fs").readFileSync(".run/sbom.cdx.json")); console.log(`.run/sbom.cdx.json: $${components.length} packages`)'
	@docker image inspect --format '$(IMAGE): {{ .Size }}' $(IMAGE) | awk '{ printf "%s %d MB\n", $$1, $$2 / 1000000 }'

mail-image: ## Build the mail catcher's image partner-ingest-mail-catcher:dev, for the chart's evaluation mode
	docker build -t partner-ingest-mail-catcher:dev --build-arg BASE_IMAGE=$(BASE_IMAGE) -f deploy/local/mail-catcher/Dockerfile .

helm: node_modules ## Bring Helm 3 and 4 for the chart's tests (built with Go into the cache where the machine has none)
	@$(NODE) node test/support/helm.ts

stores: node_modules
	@$(NODE) node deploy/local/stores.ts install

clean: ## Remove what was built here (not the cache in the user's home)
	rm -rf dist coverage node_modules .run

node_modules: package.json package-lock.json
	@$(NODE) npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch node_modules
