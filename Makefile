# make demo    the main job on real services: kills, lost requests, and the sums
# make test    every test, with MariaDB and RocketMQ brokers on loopback
# make bench   txmq against the raw client
# make check   format, vet, lint, tidy
# All set themselves up; see scripts/services for what they bring to loopback.

GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)
export GOFLAGS ?= -buildvcs=false

.PHONY: check test soak bench demo demo-real services clean

check: $(GOLANGCI)
	go mod tidy -diff
	go vet ./...
	go vet -tags txmq_fault ./...
	$(GOLANGCI) fmt --diff
	$(GOLANGCI) run
	cd bench && go mod tidy -diff && go vet ./... && ../$(GOLANGCI) fmt --diff && ../$(GOLANGCI) run
	bash -n scripts/services scripts/test .ci/run

# Built from source at a fixed version: an upgrade must not change the rules.
$(GOLANGCI):
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@

test:
	scripts/test

# The kill suite ten times over, and servers and workers taken away as often as
# the promises are told with; make test runs a few of each.
soak: services
	go test ./test/e2e -run Kill -count=10 -timeout 60m
	TXMQ_SOAK=1 go test ./test/e2e -run Stopped -v -timeout 20m
	TXMQ_SOAK=1 go test ./test/soak -v -timeout 30m

# BENCH_ARGS=-quick for less than 10 minutes; docs/performance.md tells the method.
bench: services
	cd bench && go run . $(BENCH_ARGS)

services:
	scripts/services up

demo: demo-real

# DEMO_ARGS=--without-dedup shows that a double effect would be seen.
demo-real: services
	go build -o bin/orders ./examples/orders
	bin/orders demo $(DEMO_ARGS)

clean:
	scripts/services down
	rm -rf bin .services
