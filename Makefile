# The two commands that matter are `make run` and `make test`; `make help` lists all.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

NODE := deploy/local/with-node.sh
JEST := $(NODE) npm run -s jest --
# Only tests that need no stores.
UNIT := PARTNER_INGEST_TEST_STORES=none $(JEST) --testPathIgnorePatterns /node_modules/ /dist/ '/test/(integration|simulation|judges|chart|kubernetes|e2e|mongodb)/'
OBSTACLES := .run/test-obstacles.json
PREPARE := $(NODE) node test/support/prepare.ts $(OBSTACLES)
# The same for one purpose: fails where it cannot be had.
NEED := $(NODE) node test/support/prepare.ts .run/needs.json --needs
NAMED = $(if $(NAME),--testNamePattern "$(NAME)")
RESULTS := .run/test-results.json
E2E_RESULTS := .run/e2e-results.json
IMAGE := partner-ingest:dev

.PHONY: help run smoke cli test prepare check unit test-mongodb test-upgrade e2e simulate chaos proof fuzz drill mutants bench path watch build image release docs lock stores clean

help: ## List the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

##@ Try it
run: node_modules build ## Run everything on this machine, fetching what it lacks: stores, all processes, demo keys, MailDev for the e-mails (MAIL_TEMPLATES=folder)
	@exec $(NODE) node deploy/local/run.ts

smoke: node_modules ## Send one application through the running system and show each step until its e-mail
	@$(NODE) node deploy/local/smoke.ts

cli: node_modules ## Run the operator's command on the running system (ARGS="find --state dead_lettered")
	@$(NODE) node deploy/local/cli.ts $(ARGS)

##@ Test it
test: node_modules ## Run all tests this machine can run, and say what was left out (TESTS=path NAME="words of a test" REQUIRE_ALL=1; E2E=1: in a cluster too, whatever TESTS are)
	@$(if $(TESTS),,echo '… all tests take 10 to 15 minutes on two cores; before, what this machine lacks is fetched or built (a database, Helm): the first time up to 15 more' >&2)
	@mkdir -p .run; rm -f $(RESULTS) $(E2E_RESULTS)
	@$(PREPARE) $(TESTS)
	@export TEST_OBSTACLES=$(OBSTACLES); status=0; $(JEST) $(if $(REQUIRE_ALL),--ci) --json --outputFile=$(RESULTS) $(NAMED) $(TESTS) > /dev/null || status=$$?; \
	if [ -n "$(E2E)" ] || { [ -z "$(TESTS)" ] && $(NODE) node test/e2e/cluster.ts 2> /dev/null; }; then $(MAKE) --no-print-directory e2e TESTS= || status=1; fi; \
	$(NODE) node test/support/summary.ts $(RESULTS) $(E2E_RESULTS) || status=1; exit $$status

watch: node_modules ## Run the tests of TESTS=path again after each change (NAME="words of a test"), with stores where the path begins with test/
	@$(if $(filter test/%,$(TESTS)),mkdir -p .run; $(PREPARE) $(TESTS))
	@$(if $(filter test/%,$(TESTS)),TEST_OBSTACLES=$(OBSTACLES),PARTNER_INGEST_TEST_STORES=none) $(JEST) --watchAll $(NAMED) $(TESTS)

prepare: node_modules ## Fetch and build all that any test needs of this machine
	@$(PREPARE)

check: node_modules ## The gate before a commit: types, lint, format, workflows, OpenAPI, generated files, unit and architecture tests
	@$(NODE) npm run -s typecheck
	@$(NODE) npm run -s lint
	@$(NODE) npm run -s format:check
	@$(NODE) node tools/lint-workflows.ts
	@$(NODE) node tools/lint-openapi.ts
	@$(UNIT)

unit: node_modules ## The tests that need nothing of the machine
	@$(UNIT)

e2e: node_modules ## Install the chart in a cluster and test it there: E2E_KUBECONFIG and E2E_LOAD_IMAGE, or kind (TESTS=path E2E_FROM=commit E2E_KEEP=1)
	@mkdir -p .run; rm -f $(E2E_RESULTS)
	@$(NODE) node test/e2e/cluster.ts
	@$(NEED) Helm
	@status=0; $(JEST) --config test/e2e/jest.config.ts --json --outputFile=$(E2E_RESULTS) $(TESTS) > /dev/null || status=$$?; \
	$(NODE) node test/support/summary.ts $(E2E_RESULTS) '' || status=1; exit $$status

test-mongodb: node_modules ## The tests that need a real MongoDB: MONGODB_URI is a replica set, with fail points where enableTestCommands is on
	@$(JEST) --config test/mongodb/jest.config.ts

test-upgrade: node_modules stores ## Roll ours in beside the version of test/upgrade/base, back and in again under load (BREAK=index|field|keys|job|rule: must be found)
	@$(NODE) node test/upgrade/run.ts --break "$(BREAK)"

mutants: node_modules ## Break one line at a time and see that its test turns red (DRAW=commit COUNT=10)
	@mkdir -p .run; $(PREPARE) 'test/(integration|chart)/'
	@TEST_OBSTACLES=$(CURDIR)/$(OBSTACLES) $(NODE) node test/mutants/run.ts --draw "$(DRAW)" --count "$(COUNT)"

simulate: node_modules ## Play random histories of crashes and outages in memory (HISTORIES=10000 QUEUE=off SEED= AT=, as a failure prints them)
	@$(NODE) node test/simulation/simulate.ts --histories="$(HISTORIES)" --queue="$(QUEUE)" --seed="$(SEED)" --at="$(AT)"

chaos: node_modules stores ## Take every part away under load and audit every promise (KILLS= CUTS= SEED= FAULTS= FAULT_SECONDS= SETTLE=each|end CONTROL=fsync-off JSON=1)
	@$(NODE) node test/faults/run.ts --kills "$(KILLS)" --cuts "$(CUTS)" --control "$(CONTROL)" --seed "$(SEED)" --faults "$(FAULTS)" \
	  --seconds-per-fault "$(FAULT_SECONDS)" --settle "$(SETTLE)" $(if $(JSON),--json)

proof: node_modules stores ## Kills and power cuts until ACKS= requests were acknowledged, control runs that must lose, and a folder that a stranger can check (ACKS=1000000 KILLS=1000 CUTS=100 SEED= JSON=1)
	@$(NODE) node test/proof/run.ts --acks "$(ACKS)" --kills "$(KILLS)" --cuts "$(CUTS)" --seed "$(SEED)" $(if $(JSON),--json)

fuzz: node_modules ## Ask the running service all its OpenAPI document allows and forbids, for FUZZ_SECONDS=300
	@$(NEED) 'MongoDB and Redis,schemathesis'
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),300) $(JEST) test/integration/openapi-fuzz

drill: node_modules stores ## Chaos beside Prometheus with the chart's rules: which alert each fault raises (FAULTS= SEED= JSON=1 TABLE=1)
	@$(NEED) 'Helm,Prometheus'
	@$(NODE) node test/faults/run.ts --watch --faults "$(FAULTS)" --seed "$(SEED)" $(if $(JSON),--json) $(if $(TABLE),--table)

bench: node_modules stores build ## Print what an accept and an application cost and how long answers take at fixed rates (OF=accept|drain|latency: one of them), beside a naive service and a bare Fastify, or kept builds of commits (FROM="commit commit"; RECORD=1 writes it into docs/sizing.md; JSON=1 BENCH="--rounds 3 --seconds 5 --backlog 4000")
	@$(NODE) node test/bench/bench.ts --of $(or $(OF),all) --from "$(FROM)" $(if $(JSON),--json) $(if $(RECORD),--record) $(BENCH)

path: node_modules stores ## Print the measured path of a POST: each function of ours in the order of its first call, its calls and their sums (JSON=1; RECORD=1 keeps the sums that a test compares with)
	@$(NODE) node test/path/path.ts $(if $(JSON),--json) $(if $(RECORD),--record)

##@ Build it
build: dist/.made ## Compile to dist/, if a source has changed
	@echo "built dist/cmd/{ingest,processor,controller,console,cli}/main.js"

# A folder is newer when a file left it.
dist/.made: package-lock.json package.json tsconfig.json tsconfig.build.json $(shell find cmd internal -not -name '*.test.ts') | node_modules
	@rm -rf dist && $(NODE) npm run -s build && touch $@

image: node_modules ## Build the container image (IMAGE=partner-ingest:dev BASE_IMAGE=…) with Docker, and say the size
	docker build -t $(IMAGE) $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) --build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
	  --build-arg VERSION="$$($(NODE) node -p "require('./package.json').version")" .
	@docker image inspect --format '$(IMAGE): {{ .Size }}' $(IMAGE) | awk '{ printf "%s %d MB\n", $$1, $$2 / 1000000 }'

release: node_modules ## Build, push, sign and verify image and chart (VERSION=0.1.0 REPOSITORY=registry/name; KEY=cosign.key outside a workflow)
	@tools/release.sh "$(VERSION)" "$(REPOSITORY)" "$(KEY)"

##@ Keep it
docs: node_modules ## Generate the documentation that comes from the code, and format everything
	@$(NODE) node tools/generate-docs.ts
	@$(NODE) npm run -s format > /dev/null

lock: ## Remake package-lock.json after a change of a package.json
	@$(NODE) node tools/lock.ts

clean: ## Remove what was built here (not the cache in the user's home)
	rm -rf dist coverage node_modules .run

stores: node_modules
	@$(NODE) node deploy/local/stores.ts install

node_modules: package.json internal/operators/package.json package-lock.json
	@echo '… fetching the packages of package-lock.json with npm (430 MB unpacked)' >&2
	@$(NODE) npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch node_modules
