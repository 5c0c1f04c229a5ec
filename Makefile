# ng: `make` leaves the programs in bin/.  config.mk holds what may be set:
# PREFIX, DESTDIR, CC, CFLAGS, BLAS.  User CFLAGS come last.
-include config.mk
PREFIX ?= /usr/local
CC ?= cc
PKG_CONFIG ?= pkg-config
BUILD ?= build
BIN ?= bin
BLAS ?= openblas
VERSION := 0.1.0

PKGS = libzstd jansson libsodium libutf8proc
NG_CPPFLAGS := -I. -I$(BUILD) -D_POSIX_C_SOURCE=200809L -DNG_VERSION='"$(VERSION)"' \
	$(shell $(PKG_CONFIG) --cflags $(PKGS) $(BLAS))
NG_CFLAGS := -std=c11 -O2 -g -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wconversion -Wstrict-prototypes \
	-Wformat=2 -Wmissing-prototypes -Wundef -Wwrite-strings -fno-common -pthread
ifeq ($(DEV),1)
NG_CFLAGS += -Werror
endif
NG_LIBS := $(shell $(PKG_CONFIG) --libs $(PKGS) $(BLAS)) -lm -pthread

LIB_SRC := $(sort $(wildcard common/*/*.c) $(wildcard kernels/*.c))
CMD_SRC := $(sort $(wildcard cmd/ng-*.c))
TEST_SRC := $(sort $(wildcard t/unit/test_*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
PROGRAMS := $(CMD_SRC:cmd/%.c=$(BIN)/%)
UNIT := $(TEST_SRC:t/unit/%.c=$(BUILD)/t/%)

all: $(PROGRAMS)

$(BUILD)/libng.a: $(LIB_OBJ)
	rm -f $@ && $(AR) rcs $@ $(LIB_OBJ)

# no contraction to FMA outside kernels/: an aggregation is the same bits from every compiler
$(BUILD)/common/%.o: NG_CFLAGS += -ffp-contract=off
$(BUILD)/cmd/%.o: NG_CFLAGS += -ffp-contract=off
$(BUILD)/kernels/%_avx2.o: NG_CFLAGS += -mavx2 -mfma -mf16c -O3
$(BUILD)/kernels/%_sse2.o: NG_CFLAGS += -O3

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(NG_CPPFLAGS) $(CPPFLAGS) $(NG_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BIN)/%: $(BUILD)/cmd/%.o $(BUILD)/libng.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/libng.a $(NG_LIBS) $(LDLIBS)

$(BUILD)/t/%: $(BUILD)/t/unit/%.o $(BUILD)/libng.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/libng.a $(NG_LIBS) $(LDLIBS)

unit: $(UNIT)
	@for t in $(UNIT); do $$t || exit 1; done

clean:
	rm -rf $(BUILD) $(BIN)

.PHONY: all unit clean
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
