# Many federations on one machine: make -j4 -f experiments.mk
#
# base.conf is a file for ng-sim; every result below is that file with one value
# changed.  A run that was stopped goes on; one whose file changed starts anew.
SIM ?= ng-sim
RATES = 2e-5 5e-5 1e-4
BATCHES = 64 256
RESULTS = $(foreach r,$(RATES),$(foreach b,$(BATCHES),results/lr-$(r)-batch-$(b).json))

table: $(RESULTS)
	@for f in $(RESULTS); do \
		jq -sr --arg f "$$f" '[$$f, (.[-1] | .round, .["cosine_mrr@10"])] | @tsv' "$$f"; \
	done

# beside base.conf, since its paths are relative to it
run-%.conf: base.conf
	{ cat base.conf; echo "set train.lr=$(word 2,$(subst -batch-, ,$(subst lr-,lr ,$*)))"; \
	  echo "set train.batch=$(word 3,$(subst -batch-, ,$(subst lr-,lr ,$*)))"; } >$@
	rm -rf results/$*.d

results/%.json: run-%.conf
	@mkdir -p results
	$(SIM) $< results/$*.d >$@.new
	mv $@.new $@

.PRECIOUS: run-%.conf
.PHONY: table
