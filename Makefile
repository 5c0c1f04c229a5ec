# ng: `make` leaves the programs in bin/.  config.mk (or the command line) sets
# PREFIX, DESTDIR, CC, CFLAGS, BLAS, ...; `make config` prints what was chosen.
# User CFLAGS come last and are never overwritten.  DEV=1: warnings are errors.
-include config.mk
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
CC ?= cc
PKG_CONFIG ?= pkg-config
INSTALL ?= install
CLANG_FORMAT ?= clang-format
BUILD ?= build
BIN ?= bin
# any package that pkg-config knows and that has cblas.h: openblas, blis, ...
BLAS ?= openblas
VERSION := 0.1.0

PKGS = libzstd jansson libsodium libutf8proc
GOALS := $(or $(MAKECMDGOALS),all)
ifneq ($(filter-out clean format lint layers dist uninstall,$(GOALS)),)
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS) $(BLAS))
PKG_LIBS := $(shell $(PKG_CONFIG) --libs $(PKGS) $(BLAS))
ifeq ($(PKG_LIBS),)
$(error pkg-config does not find all of: $(PKGS) $(BLAS); scripts/bootstrap installs them)
endif
endif

NG_CPPFLAGS := -I. -I$(BUILD) -D_POSIX_C_SOURCE=200809L -DNG_VERSION='"$(VERSION)"' $(PKG_CFLAGS)
NG_CFLAGS := -std=c11 -O2 -g -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wconversion -Wstrict-prototypes \
	-Wformat=2 -Wmissing-prototypes -Wundef -Wwrite-strings -fno-common -pthread
ifeq ($(DEV),1)
NG_CPPFLAGS += -DNG_DEV
NG_CFLAGS += -Werror
endif
NG_LIBS := $(PKG_LIBS) -lm -pthread

LIB_SRC := $(sort $(wildcard common/*/*.c) $(wildcard kernels/*.c))
CMD_SRC := $(sort $(wildcard cmd/ng-*.c))
TEST_SRC := $(sort $(wildcard t/unit/test_*.c))
FUZZ_SRC := $(sort $(wildcard t/fuzz/fuzz_*.c))
HEADERS := $(sort $(wildcard common/*/*.h kernels/*.h t/*/*.h))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
PROGRAMS := $(CMD_SRC:cmd/%.c=$(BIN)/%)
UNIT := $(TEST_SRC:t/unit/%.c=$(BUILD)/t/%)
REPLAY := $(FUZZ_SRC:t/fuzz/%.c=$(BUILD)/t/%)
# everything that make check runs beside the bats files
HELPERS := $(patsubst t/unit/%.c,$(BUILD)/t/%,$(filter-out $(TEST_SRC),$(sort $(wildcard t/unit/*.c))))
TESTS := $(UNIT) $(REPLAY) $(HELPERS) $(BUILD)/t/fault.so
BATS := $(sort $(wildcard t/*.bats))
SCRIPTS := $(sort $(wildcard scripts/ng-*))
PAGES := $(sort $(wildcard man/*.[1-8]))

all: $(PROGRAMS)

# ---- building ----

$(BUILD)/libng.a: $(LIB_OBJ)
	rm -f $@ && $(AR) rcs $@ $(LIB_OBJ)

# no contraction to FMA outside kernels/: an aggregation is the same bits from every compiler
$(BUILD)/common/%.o: NG_CFLAGS += -ffp-contract=off
$(BUILD)/cmd/%.o: NG_CFLAGS += -ffp-contract=off
$(BUILD)/kernels/%_avx2.o: NG_CFLAGS += -mavx2 -mfma -mf16c -O3
$(BUILD)/kernels/%_sse2.o: NG_CFLAGS += -O3

# What is built with other flags is built again.
FLAGS := $(CC) $(NG_CPPFLAGS) $(CPPFLAGS) $(NG_CFLAGS) $(CFLAGS) $(LDFLAGS) $(NG_LIBS) $(LDLIBS)
$(BUILD)/flags: FORCE | $(BUILD)/linked
	@printf '%s\n' '$(subst ','\'',$(FLAGS))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@

# pkg-config may promise what does not link (another architecture, a BLAS without CBLAS).
$(BUILD)/linked:
	@mkdir -p $(@D)
	@printf '%s\n' '#include <cblas.h>' '#include <jansson.h>' '#include <sodium.h>' '#include <utf8proc.h>' \
		'#include <zstd.h>' 'int main(void)' '{ float x = 1; json_t *j = json_null();' \
		'return (int)cblas_sdot(1, &x, 1, &x, 1) + sodium_init() + (int)ZSTD_versionNumber() +' \
		'(int)utf8proc_category(65) + (int)json_typeof(j); }' >$(BUILD)/link.c
	@$(CC) $(NG_CPPFLAGS) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $(BUILD)/link $(BUILD)/link.c $(NG_LIBS) $(LDLIBS) || \
		{ echo 'a program with $(PKGS) $(BLAS) does not link; scripts/bootstrap installs them' >&2; exit 1; }
	@rm -f $(BUILD)/link $(BUILD)/link.c && touch $@

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(NG_CPPFLAGS) $(CPPFLAGS) $(NG_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BIN)/%: $(BUILD)/cmd/%.o $(BUILD)/libng.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/libng.a $(NG_LIBS) $(LDLIBS)

$(BUILD)/t/fuzz_%: $(BUILD)/t/fuzz/fuzz_%.o $(BUILD)/t/fuzz/replay.o $(BUILD)/libng.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/t/fuzz/replay.o $(BUILD)/libng.a $(NG_LIBS) $(LDLIBS)

$(BUILD)/t/fault.so: t/shim/fault.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -Wall -Wextra -fPIC -shared -o $@ $< -ldl

# the C side of what t/perf/*.py measures
$(BUILD)/perf/%: $(BUILD)/t/perf/%.o $(BUILD)/libng.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/libng.a $(NG_LIBS) $(LDLIBS)

$(BUILD)/t/%: $(BUILD)/t/unit/%.o $(BUILD)/libng.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/libng.a $(NG_LIBS) $(LDLIBS)

config:
	@printf '%-12s %s\n' version '$(VERSION)' compiler "$$($(CC) --version | head -n 1)" \
		flags '$(subst ','\'',$(NG_CFLAGS) $(CFLAGS))' BLAS '$(BLAS) $(shell $(PKG_CONFIG) --modversion $(BLAS))' \
		libraries '$(foreach p,$(PKGS),$(p) $(shell $(PKG_CONFIG) --modversion $(p)),)' \
		prefix '$(DESTDIR)$(PREFIX)' build '$(BUILD)' programs '$(BIN)'

# ---- testing ----

# Compilers of this build, for the tests that need to know
RUN = NG_BIN='$(abspath $(BIN))' NG_BUILD='$(abspath $(BUILD))' t/run -o $(BUILD)/tap

unit: $(UNIT) $(REPLAY)
	@$(RUN) $(UNIT) $(REPLAY)

# the fast tier: no network, no root, no GPU
check: all $(TESTS)
	@$(RUN) $(BATS) $(UNIT) $(REPLAY)

# A program's memory is the system's to take back: leaks are looked for in the
# unit tests, where every object has an owner, not in the programs.
SANITIZE = -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
check-asan:
	@$(MAKE) -s BUILD=build-asan BIN=build-asan/bin CFLAGS='$(SANITIZE) $(CFLAGS)' all asan-tests
asan-tests: all $(TESTS)
	@UBSAN_OPTIONS=print_stacktrace=1 NG_SANITIZED=1 $(RUN) $(UNIT) $(REPLAY)
	@ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 NG_SANITIZED=1 $(RUN) $(BATS)

check-tsan:
	@$(MAKE) -s BUILD=build-tsan BIN=build-tsan/bin CFLAGS='-O1 -fsanitize=thread $(CFLAGS)' tsan-tests
tsan-tests: $(UNIT)
	@NG_SANITIZED=1 $(RUN) $(UNIT)

check-valgrind: $(UNIT) $(REPLAY)
	@NG_SANITIZED=1 NG_WRAP='valgrind -q --error-exitcode=9 --leak-check=full' $(RUN) $(UNIT) $(REPLAY)

# FUZZ_TIME seconds of libFuzzer on each target; what it finds is left in build-fuzz/
FUZZ_TIME ?= 30
FUZZ_FLAGS = -O1 -fsanitize=fuzzer-no-link,address,undefined
fuzz:
	@$(MAKE) -s BUILD=build-fuzz CC=clang CFLAGS='$(FUZZ_FLAGS) $(CFLAGS)' fuzz-run
fuzz-run: $(BUILD)/libng.a $(FUZZ_SRC:t/fuzz/%.c=$(BUILD)/t/fuzz/%.o)
	@for f in $(FUZZ_SRC:t/fuzz/fuzz_%.c=%); do \
		$(CC) $(CFLAGS) -fsanitize=fuzzer,address,undefined -o $(BUILD)/fuzz_$$f $(BUILD)/t/fuzz/fuzz_$$f.o \
			$(BUILD)/libng.a $(NG_LIBS) $(LDLIBS) || exit 1; \
		mkdir -p $(BUILD)/corpus/$$f; \
		$(BUILD)/fuzz_$$f -max_total_time=$(FUZZ_TIME) -rss_limit_mb=2048 -timeout=10 -verbosity=0 -print_final_stats=1 \
			-artifact_prefix=$(BUILD)/$$f- $(BUILD)/corpus/$$f t/fuzz/corpus/$$f || exit 1; \
	done

golden:
	python3 t/golden/make.py

# ---- the source itself ----

# cmd -> common -> kernels, base <- tensor <- everything else, no way back
layers:
	@sh t/layers.sh

# (what is included once per instruction set, with NG_ISA defined, is a template and no header)
hdr-check:
	@n=0; for h in $(HEADERS); do \
		case $$h in *_impl.h) continue ;; esac; grep -q NG_ISA $$h && continue; \
		printf '#include "%s"\n' $$h | $(CC) $(NG_CPPFLAGS) $(NG_CFLAGS) -Wno-unused-function -Wno-unused-variable \
			-Werror -fsyntax-only -x c - || { echo "$$h does not compile alone" >&2; exit 1; }; \
		n=$$((n + 1)); \
	done; echo "$$n headers compile alone"

FORMATTED = $(sort $(wildcard common/*/*.[ch] cmd/*.c kernels/*.[ch] t/unit/*.[ch] t/fuzz/*.[ch] t/perf/*.c t/ref/*.[ch] t/shim/*.c))
format:
	$(CLANG_FORMAT) -i $(FORMATTED)

# the formatter is pinned: another version lays out the same text otherwise
lint:
	@if $(CLANG_FORMAT) --version 2>/dev/null | grep -q 'version 14\.'; then \
		$(CLANG_FORMAT) --dry-run -Werror $(FORMATTED); \
	else echo 'skipped: clang-format 14 is not there'; fi
	@if command -v shellcheck >/dev/null; then \
		shellcheck -x $$(grep -lE '^#!/bin/(sh|bash)|^#!/usr/bin/env (sh|bash)' scripts/* t/*.sh t/run .ci/* 2>/dev/null); \
	else echo 'skipped: shellcheck is not there'; fi
	@if command -v mandoc >/dev/null; then mandoc -T lint -W warning $(PAGES); \
	else echo 'skipped: mandoc is not there'; fi

# ---- installing ----

install: all
	$(INSTALL) -d '$(DESTDIR)$(BINDIR)'
	$(INSTALL) -m 755 $(PROGRAMS) $(SCRIPTS) '$(DESTDIR)$(BINDIR)'
	@set -e; for p in $(PAGES); do \
		d='$(DESTDIR)$(MANDIR)'/man$${p##*.}; \
		$(INSTALL) -d "$$d"; $(INSTALL) -m 644 $$p "$$d"; \
	done

uninstall:
	rm -f $(foreach p,$(notdir $(CMD_SRC:.c=) $(SCRIPTS)),'$(DESTDIR)$(BINDIR)/$(p)')
	rm -f $(foreach p,$(PAGES),'$(DESTDIR)$(MANDIR)/man$(subst .,,$(suffix $(p)))/$(notdir $(p))')

DIST := ng-$(VERSION)
dist:
	git archive --format=tar --prefix=$(DIST)/ HEAD | gzip -n9 >$(DIST).tar.gz

# The archive builds and installs by itself, and uninstalls without a trace.
IN_DIST = $(MAKE) -s -C build-dist/$(DIST) BUILD=build BIN=bin DESTDIR="$$PWD/build-dist/root" PREFIX=/usr
dist-install-check: dist
	rm -rf build-dist && mkdir build-dist && tar xzf $(DIST).tar.gz -C build-dist
	$(IN_DIST) all
	$(IN_DIST) install
	for p in $(notdir $(PROGRAMS)); do build-dist/root/usr/bin/$$p --version || exit 1; done
	for p in $(PAGES); do test -f build-dist/root/usr/share/man/man$${p##*.}/$${p##*/} || exit 1; done
	$(IN_DIST) uninstall
	test -z "$$(find build-dist/root ! -type d)"

# ... and passes its tests, away from everything beside it
distcheck: dist-install-check
	$(IN_DIST) check
	rm -rf build-dist

clean:
	rm -rf $(BUILD) $(BIN) build-asan build-clang build-dev build-dist build-fuzz build-tsan

FORCE:
.PHONY: all asan-tests check check-asan check-tsan check-valgrind clean config dist distcheck dist-install-check format fuzz fuzz-run golden \
	hdr-check install layers lint tsan-tests uninstall unit FORCE
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
