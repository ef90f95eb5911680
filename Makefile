# Every command of this repository. `make` alone explains them.

SHELL := bash
.DEFAULT_GOAL := help
export PATH := $(PATH):$(HOME)/.cargo/bin

SERVICES := scripts/services
WITH_SERVICES := $(SERVICES) run
DATABASES := sqlite postgres mysql

PEERS ?= ../shared/peers
STORE ?= sqlite
TASKS ?= 20000
SEED ?= 1
PROFILE ?=

.PHONY: help run test test-long test-store check generate verify bench bench-store bench-http bench-live torture services services-down clean cargo

help: ## Explain these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  ARGS=\"...\" is passed on by run, test, test-store, bench-store, bench-http, bench-live and torture: make test ARGS=\"-- lease\""

run: cargo ## Build and start everything in one process; it says what to open and what to try
	cargo run -p longhaul-cli --locked -- dev $(ARGS)

# Tasks that panic on purpose would drown the one message that counts: make test RUST_BACKTRACE=1 shows where from.
test test-long test-store: export RUST_BACKTRACE = 0

test: cargo ## Set up the databases that are missing, then run every test
	$(WITH_SERVICES) cargo test --workspace --locked --no-fail-fast $(ARGS)
	$(if $(ARGS),,cargo check -p longhaul --locked && cargo test -p longhaul --locked --test embedded)

test-long: cargo ## Run the tests that take minutes and are not in `make test`
	LONGHAUL_TEST_LONG=1 $(WITH_SERVICES) cargo test -p longhaul-cli --test suite --locked -- fleet::long_tasks

test-store: cargo ## Run the store's conformance suite on one database: make test-store DB=postgres
	@[[ -n "$(and $(filter 1,$(words $(DB))),$(filter $(DATABASES),$(DB)))" ]] || { echo "make test-store DB=... wants one of: $(DATABASES)" >&2; exit 2; }
	$(WITH_SERVICES) cargo test -p longhaul-store --features mysql,postgres --test conformance --locked -- $(DB) $(ARGS)

check: cargo ## The fast loop: format, clippy, tidy
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	for features in "" postgres mysql fleet server; do cargo clippy -p longhaul --lib --locked --features "$$features" -- -D warnings || exit; done
	cargo test -p longhaul-testkit --test tidy --locked

generate: cargo ## Write the checked-in generated files anew
	LONGHAUL_GENERATE=1 $(WITH_SERVICES) cargo test -p longhaul-store --features mysql,postgres --test conformance --locked -- generated
	LONGHAUL_GENERATE=1 $(WITH_SERVICES) cargo test -p longhaul-server --test http --locked -- the_table_of_metrics
	LONGHAUL_GENERATE=1 cargo test -p longhaul-cli --lib --locked -- document_is_current
	LONGHAUL_GENERATE=1 cargo test -p longhaul-server --lib --locked -- reference

verify: cargo ## Compare the checked-in generated files with what would be generated
	$(WITH_SERVICES) cargo test -p longhaul-store --features mysql,postgres --test conformance --locked -- generated
	cargo test -p longhaul-cli --lib --locked -- document_is_current
	cargo test -p longhaul-server --lib --locked -- reference
	$(WITH_SERVICES) cargo test -p longhaul-server --test http --locked -- the_table_of_metrics

bench-store: cargo ## Measure the stores
	$(WITH_SERVICES) cargo run --release -p longhaul-bench-store --locked -- $(ARGS)

bench: cargo ## Measure Longhaul beside its peers: make bench PEERS=path/to/peers ARGS='--only sqlite'
	PEERS="$(PEERS)" python3 bench/compare.py $(ARGS)

bench-http: cargo ## Measure the HTTP API beside the store below it
	$(WITH_SERVICES) cargo run --release -p longhaul-bench-http --locked -- $(ARGS)

bench-live: cargo ## Measure what idle live clients cost: make bench-live ARGS='5000'
	cargo run --release -p longhaul-bench-live --locked -- $(ARGS)

torture: cargo ## Break nodes and servers under load: make torture [PROFILE=fleet] STORE=sqlite|postgres|mysql TASKS=20000 SEED=1
	@[[ -n "$(and $(filter 1,$(words $(STORE))),$(filter $(DATABASES),$(STORE)))" ]] || { echo "make torture STORE=... wants one of: $(DATABASES)" >&2; exit 2; }
	cargo run --quiet -p longhaul-bench-torture --locked -- run --store $(STORE) --tasks $(TASKS) --seed $(SEED) \
		$(if $(PROFILE),--profile $(PROFILE)) $(ARGS)

services: ## Start the private servers and leave them up (saves each test run the start)
	$(SERVICES) up

services-down: ## Stop them
	$(SERVICES) down

clean: cargo ## Stop the servers and delete everything that was built
	$(SERVICES) clean
	cargo clean

cargo:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust with rustup, see https://rustup.rs" >&2; exit 1; }
