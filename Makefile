# Front door; Meson does the work (meson.build, docs/TESTING.md). `make help` lists the targets.
# Every target first installs what is missing (tools/bootstrap; tools/packages.txt is the list).
#
#   PREFIX=/usr/local  LIBDIR=  DESTDIR=  FUZZ_SECONDS=60  JOBS=  CC=

PREFIX ?= /usr/local
export JOBS FUZZ_SECONDS

.PHONY: all demo test bench bench-core fuzz install wheel clean help format

all: ## build the program and the library in build/ (the default)
	@tools/bootstrap
	@tools/build release

demo: ## train twice on shipped data, reliable and with bounded loss, and compare
	@tools/bootstrap demo
	@tools/build release
	@tools/demo

test: ## build release, ASan+UBSan and TSan, run every test; last line: N passed, N failed
	@tools/bootstrap test
	@tools/run-tests

bench: ## measure (bench/run; its results go into bench/NOTEBOOK.md by hand)
	@test -x bench/run || { echo "bench/run is not there"; exit 1; }
	@tools/bootstrap
	@tools/build release
	@bench/run

bench-core: ## count the instructions of core for a packet (callgrind)
	@tools/bootstrap bench
	@tools/build release
	@bench/core

fuzz: ## run the libFuzzer targets, FUZZ_SECONDS each
	@tools/bootstrap fuzz
	@tools/build fuzz
	@tools/fuzz

install: ## install to $(DESTDIR)$(PREFIX), the library to LIBDIR below that
	@tools/bootstrap
	@PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' tools/install

wheel: ## build the Python package to be handed on, with libweft.so in it, in dist/
	@tools/bootstrap wheel
	@tools/wheel

format: ## format the C lines changed since the last commit with .clang-format
	@tools/bootstrap format
	@git clang-format --extensions c,h

clean: ## remove every build folder
	@rm -rf build build-asan build-tsan build-fuzz

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | \
	    while IFS='|' read -r target text; do printf '%-16s %s\n' "$$target" "$$text"; done
