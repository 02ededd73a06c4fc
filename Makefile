# SPDX-License-Identifier: BSD-2-Clause
#
# Short names for what CMake, CTest and pytest do; `make help` lists them. Nothing is decided here
# that `cmake -S . -B build` would not do as well.

BUILD   ?= build
PREFIX  ?= /usr/local
SECONDS ?= 60
JOBS    ?= $(shell nproc)
ifeq ($(origin CC),default)
CC := gcc
endif
CLANG   ?= clang
# Debian's own: another python3 in front of it in PATH would not have Debian's pytest.
PYTHON  ?= /usr/bin/python3
PYTEST  := $(PYTHON) -m pytest -p no:cacheprovider -q
# Quiet unless something is to be said.
MAKEFLAGS += --no-print-directory
CMAKE   := cmake --log-level=WARNING -DCMAKE_TARGET_MESSAGES=OFF -S .

.PHONY: all build build-clang demo test unit sanitize clang abi conformance interop bench fuzz install clean help setup

all: build

setup:
	@scripts/setup.sh

build:
	@$(CMAKE) -B $(BUILD) -DCMAKE_C_COMPILER=$(CC) >/dev/null
	@cmake --build $(BUILD) -j$(JOBS)

demo:
	@scripts/setup.sh --demo
	@$(MAKE) build
	@$(BUILD)/bin/verbena demo

# The stages of `make test`, each of which can be run alone.
test: setup
	@$(MAKE) unit
	@$(MAKE) clang
	@$(MAKE) sanitize
	@$(MAKE) abi
	@$(MAKE) conformance
	@echo "make test: everything passed"

unit: build
	@echo "== unit tests, simulator, arrows (gcc)"
	@ctest --test-dir $(BUILD) -j$(JOBS) --output-on-failure --no-tests=error

build-clang:
	@echo "building with clang, warnings are errors"
	@$(CMAKE) -B $(BUILD)-clang -DCMAKE_C_COMPILER=$(CLANG) -DVB_FUZZ=ON -DCMAKE_C_FLAGS=-Werror -DCMAKE_RULE_MESSAGES=OFF >/dev/null
	@cmake --build $(BUILD)-clang -j$(JOBS)

clang: build-clang
	@echo "== fuzz corpora (clang, ASan, UBSan)"
	@ctest --test-dir $(BUILD)-clang -L fuzz -j$(JOBS) --output-on-failure --no-tests=error

sanitize:
	@echo "building with ASan and UBSan, warnings are errors"
	@$(CMAKE) -B $(BUILD)-asan -DCMAKE_C_COMPILER=$(CC) -DVB_SANITIZE=address,undefined -DVB_CHECK=ON -DCMAKE_C_FLAGS=-Werror -DCMAKE_RULE_MESSAGES=OFF >/dev/null
	@cmake --build $(BUILD)-asan -j$(JOBS)
	@echo "== unit tests and simulator under ASan and UBSan"
	@ctest --test-dir $(BUILD)-asan -L 'unit|sim' -j$(JOBS) --output-on-failure --no-tests=error

abi: build
	@echo "== Debian's unmodified programs, and situations that broke others"
	@VERBENA_BUILD=$(abspath $(BUILD)) $(PYTEST) -n 2 --dist loadfile -m "not alone" tests/abi tests/edge
	@VERBENA_BUILD=$(abspath $(BUILD)) $(PYTEST) -m alone tests/abi tests/edge

conformance: build
	@echo "== rdma-core's own tests of the verbs API"
	@VERBENA_BUILD=$(abspath $(BUILD)) $(PYTEST) tests/conformance

# Not a part of `make test`: it boots a guest, with more packages than anything else here needs.
interop:
	@scripts/setup.sh --interop
	@$(MAKE) build
	@echo "== against Soft-RoCE of a Linux kernel, in QEMU"
	@VERBENA_BUILD=$(abspath $(BUILD)) $(PYTEST) tests/interop

# GROUP, ROUNDS, QUICK, ONLY, BASE: see `python3 bench -h`.
bench: setup
	@case " $(GROUP) " in *" guest "*) scripts/setup.sh --interop ;; esac
	@$(MAKE) build
	@$(PYTHON) bench --build $(BUILD) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(QUICK),--quick) \
		$(if $(ONLY),--only "$(ONLY)") $(if $(BASE),--base "$(BASE)") $(GROUP)

fuzz: build-clang
	@scripts/fuzz.sh $(BUILD)-clang $(SECONDS)

install: build
	@cmake --install $(BUILD) --prefix $(abspath $(PREFIX)) >/dev/null
	@echo "installed: $(abspath $(PREFIX))/bin/verbena, the libraries in $(abspath $(PREFIX))/lib/verbena, verbena(1)"

clean:
	rm -rf $(BUILD) $(BUILD)-clang $(BUILD)-asan

help:
	@echo "make                 build into $(BUILD)/ (the command is $(BUILD)/bin/verbena)"
	@echo "make demo            install what is missing, build, and show what Verbena does"
	@echo "make test            the same set-up, then every test; its parts are:"
	@echo "make unit              unit tests, simulator, arrows between the parts"
	@echo "make clang             the same code under clang; the fuzzers' corpora"
	@echo "make sanitize          unit tests and simulator under ASan and UBSan"
	@echo "make abi               Debian's programs, unmodified; edge cases"
	@echo "make conformance       rdma-core's own tests of the verbs API"
	@echo "make interop         both ways with the Soft-RoCE of a Linux kernel in QEMU, under 10 minutes"
	@echo "make bench           speed and memory, beside this machine's limits and what people use"
	@echo "make bench BASE=HEAD~1 the present build against another commit; python3 bench -h says more"
	@echo "make fuzz SECONDS=60 run every fuzzer for so long"
	@echo "make install PREFIX=/usr/local"
	@echo "make clean           remove the build folders"
