# `make help` lists the targets. Recipes are POSIX sh; all else is Go. On a bare Debian 12
# with git and make, .ci/go finds or fetches Go, and `lab build` says which packages it
# installs.

GO      := $(CURDIR)/.ci/go
TICK    := $(CURDIR)/.ci/tick
RUNLAB  := $(GO) with $(CURDIR)/bin/lab
VERSION := v0.1.0
IMAGE   := ghcr.io/pillar-csi/pillar:$(VERSION)
LDFLAGS := -s -w -X github.com/pillar-csi/pillar/roles/telemetry.Version=$(VERSION)
CACHE   := $(or $(PILLAR_LAB_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pillar-lab)

# Build tags that hide code from a plain build.
TAGS := lab,crashpoints

# What `make lab` tests, and what to look at in a running lab. Where several labs run,
# LAB=NAME says which one; bin/lab and bin/cluster have it from the environment.
PKG   ?= ./transport/nvmet
GUEST ?= storage-1
ARGS  ?= get pods -A

export CGO_ENABLED ?= 0

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build unit check generate lab kernel kernel-stock api e2e demo test test-steps bench image \
	build-zfs lab-shell lab-kubectl lab-stop clean-cache

help: ## show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r t d; do printf '%-12s %s\n' "$$t" "$$d"; done

build: ## build bin/pillar, one static binary
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/pillar .

unit: ## test without root, kernel or cluster, under a minute
	@$(TICK) 'unit: compiling and running the tests that need no kernel' $(GO) test ./...

check: ## regenerate, vet, lint, and test with the race detector
	@$(MAKE) --no-print-directory generated
	@$(TICK) 'check: vet' $(GO) vet -tags $(TAGS) ./...
	@$(TICK) 'check: staticcheck' $(GO) tool staticcheck -tags $(TAGS) ./...
	@command -v gcc >/dev/null || { echo 'check: the race detector needs gcc (apt-get install gcc libc6-dev)' >&2; exit 1; }
	@CGO_ENABLED=1 $(TICK) 'check: compiling and running the tests with the race detector' \
		$(GO) test -race $$($(GO) list ./... | grep -v /e2e)

generate: ## write generated code and CRDs again
	@$(TICK) 'generate: deepcopy and CRDs' $(GO) generate ./...
	@cd roles/agentpb && $(TICK) 'generate: gRPC stubs' $(GO) run ./generate

# generated fails when `make generate` changes a file.
.PHONY: generated
sums = git ls-files -z -- '*.pb.go' '*zz_generated*' crds/manifests | xargs -0 sha256sum
generated:
	@before=$$($(sums)) && $(MAKE) --no-print-directory generate && after=$$($(sums)) && \
	if [ "$$before" != "$$after" ]; then \
		echo 'check: generated files were stale. They are fresh now: look at the diff and commit it.' >&2; exit 1; fi

# tell-lost prints, when the recipe ends, which guests were lost and their tests run once more.
tell-lost = export PILLAR_LAB_LOST=$$(mktemp) && trap 'cat "$$PILLAR_LAB_LOST" >&2; rm -f "$$PILLAR_LAB_LOST"' EXIT

lab: bin-lab $(if $(findstring zfs,$(PKG))$(findstring agent,$(PKG)),build-zfs) ## test PKG=./transport/nvmet against a real kernel, in a guest
	$(GO) test -count=1 -timeout 40m -tags crashpoints -exec '$(RUNLAB) exec' $(if $(RUN),-run '$(RUN)') $(PKG)

kernel: build-zfs ## all packages with kernel tests, in guests
	@pkgs=$$(grep -rl --include='*_test.go' 'hosttest\.Need\|hosttest\.Disk' storage transport fencing roles | \
		grep -v '^storage/host/hosttest/' | xargs -rn1 dirname | sort -u | sed 's|^|./|'); \
	echo "go test -tags crashpoints -exec 'lab exec'" $$pkgs; $(tell-lost); \
	$(TICK) 'kernel: packages in guests, two at a time' \
		$(GO) test -count=1 -timeout 40m -tags crashpoints -exec '$(RUNLAB) exec' $$pkgs

# Emulating the stock kernel is slow, so the contracts, what only a host of Linux 6.11 or later
# does, and a story speak for the rest there. Each package of STOCK has one of CONTRACTS.
STOCK     := ./storage/lvm ./storage/zfs ./transport/nvmet ./transport/configfs ./roles/agent/exports
CONTRACTS := (ontract|reconnect)_kernel$$|^TestKernel_(conformance|[rR]ules|traces)$$

kernel-stock: export PILLAR_LAB_KERNEL := qemu
kernel-stock: bin-lab ## the conformance suites and a story on Debian's stock kernel, two CPUs
	@for p in $(STOCK); do $(GO) test -tags crashpoints -list '$(CONTRACTS)' $$p | grep -q '^Test' || \
		{ echo "kernel-stock: $$p has no test that CONTRACTS names" >&2; exit 1; }; done
	@$(RUNLAB) build zfs
	@$(tell-lost); $(TICK) 'kernel-stock: conformance suites in guests, two at a time' \
		$(GO) test -count=1 -timeout 40m -tags crashpoints -exec '$(RUNLAB) exec' -run '$(CONTRACTS)' $(STOCK)
	$(call in-lab,e2e/outage)

api: cluster-build ## the controller against a real API server, crashes included
	@PILLAR_LAB=1 PILLAR_TEST_ASSETS="$$($(GO) with bin/cluster assets)" $(TICK) 'api: the controller and a real API server' \
		$(GO) test -count=1 -tags crashpoints ./roles/controller/...

# in-lab runs the tests of one folder in a lab, from which nothing can be downloaded.
in-lab = $(TICK) 'compiling the tests of $1' $(GO) test -c -tags lab -o bin/$(notdir $1).test ./$1 && cd $1 && \
	$(TICK) '$1: its tests run in the lab' $(RUNLAB) enter -- $(CURDIR)/bin/$(notdir $1).test -test.v -test.timeout=30m $(if $(RUN),-test.run '$(RUN)')

e2e: cluster-build build-zfs ## lab, cluster, a thousand claims and user stories, RUN=TestName for some
	$(call in-lab,e2e/lab)
	$(call in-lab,e2e/lab/cmd/lab)
	$(call in-lab,e2e/outage)
	$(call in-lab,e2e/cluster)
	$(call in-lab,e2e/scale)
	$(call in-lab,e2e)

# One lock for what needs the whole machine. Commands run without its descriptor, so that
# only this shell holds it.
locked = mkdir -p '$(CACHE)' && exec 9>'$(CACHE)/make.lock' && \
	{ flock -n 9 || { echo 'make $@: another make test or make demo is running, waiting for it' >&2; flock 9; }; }

demo: ## show one volume's life, from claim to disk and back (KEEP=1 leaves it running)
	@$(locked) && $(MAKE) --no-print-directory demo-steps 9>&-

.PHONY: demo-steps
demo-steps: cluster-build
	@$(TICK) 'compiling bin/demo' $(GO) build -o bin/demo ./e2e/demo
	@KEEP= $(RUNLAB) enter -- $(CURDIR)/bin/demo $(if $(filter 1,$(KEEP)),-keep)

test: ## everything: check, unit, kernel, kernel-stock, api, e2e; what CI runs
	@$(locked) && $(MAKE) --no-print-directory test-steps 9>&-

test-steps: lab-build check unit kernel kernel-stock api e2e

bench: cluster-build ## what pillar costs, at rest and at work: name, value, unit, goal
	@$(TICK) 'compiling bin/bench' $(GO) build -o bin/bench ./e2e/bench
	@$(RUNLAB) enter -- $(CURDIR)/bin/bench

image: ## build the container image with docker, podman or buildah
	@tool=$$(command -v docker || command -v podman || command -v buildah) || \
		{ echo 'image: needs docker, podman or buildah' >&2; exit 1; }; \
	"$$tool" build --build-arg VERSION=$(VERSION) -t $(IMAGE) .

.PHONY: bin-lab
bin-lab:
	@$(TICK) 'compiling bin/lab' $(GO) build -o bin/lab ./e2e/lab/cmd/lab

.PHONY: bin-cluster
bin-cluster:
	@$(TICK) 'compiling bin/cluster' $(GO) build -o bin/cluster ./e2e/cluster/cmd/cluster

.PHONY: lab-build cluster-build
lab-build: bin-lab
	@$(RUNLAB) build

cluster-build: lab-build bin-cluster ## make all that guests and cluster are made of, cached
	@$(GO) with bin/cluster build

build-zfs: bin-lab ## compile ZFS for guests that ask for it, cached
	@$(RUNLAB) build zfs

lab-shell: bin-lab ## a terminal in GUEST=storage-1 of a running lab
	@$(RUNLAB) shell $(GUEST)

lab-kubectl: bin-cluster ## kubectl ARGS='get pods -A' in a running lab
	@$(GO) with bin/cluster kubectl $(ARGS)

lab-stop: bin-lab ## end labs that KEEP=1 left, or the one of LAB=NAME
	@$(RUNLAB) stop

clean-cache: ## remove the lab's cache; the next run builds all of it again
	@if [ -x bin/lab ]; then bin/lab stop; fi
	rm -rf '$(CACHE)'
