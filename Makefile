# gravel's one door: every target does the set-up it needs. CMake and ninja do the work in build/.
BUILD ?= build
CMAKE_FLAGS ?=
.DEFAULT_GOAL := build
.PHONY: deps build demo test twins bench gpu-test lab-study lab-kills lab-slurm lab-specimen fix-brute-force install clean check-format specimen-fingerprint specimen-differential specimen-fix specimen-soak specimen-canary

deps:
	@sh cmake/deps.sh $(BUILD)

build: deps
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS) > $(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }
	@cmake --build $(BUILD)

demo: build
	@sh tests/demo.sh $(BUILD)

test: build
	@sh tests/run.sh $(BUILD)

twins: build
	@sh twins/run.sh $(BUILD)

bench: build
	@sh bench/run.sh $(BUILD)

gpu-test:
	@sh tests/gpu/run.sh $(BUILD)

# The specimen's whole fingerprint (minutes), and 10,000 sessions of it without a fault under AddressSanitizer.
specimen-fingerprint: build
	@python3 -B tests/specimen/fingerprint.py $(BUILD) --expect tests/specimen/fingerprint.txt \
	    --compiler "$$(gcc -dumpfullversion)"

specimen-differential: build
	@python3 -B tests/specimen/differential.py $(BUILD) $(or $(STEPS),10000)

# The incident's fix in the running specimen: 0 wrong of 60 x 4 and 40 x 3 with it (minutes).
specimen-fix: build
	@python3 -B tests/specimen/fix_live.py $(BUILD)

specimen-soak: build
	@sh tests/specimen/soak.sh $(BUILD)

# 10,000 steps of it under canaries, transfers going on, without a word; and the faults that write pages.
specimen-canary: build
	@python3 -B tests/specimen/canary.py $(BUILD) --steps 10000

# What the statistics of `gravel lab` promise, over 2,000 simulated runs; and 200 kills at random instants.
lab-study: build
	@$(BUILD)/tests/lab_simulate 2000

lab-kills: build
	@python3 tests/lab/kill.py $(BUILD) 200

# The worked example of docs/lab.md as it is there.
lab-specimen: build
	@python3 tests/lab/specimen.py $(BUILD) whole

# Trials as Slurm jobs, on a cluster of this machine alone; installs Slurm and PostgreSQL where they are missing.
lab-slurm: build
	@sh tests/lab/install_slurm.sh
	@if [ "$$(id -u)" = 0 ]; then python3 tests/lab/slurm.py $(BUILD); else sudo python3 tests/lab/slurm.py $(BUILD); fi

# The fewest edges of `gravel fix` against every set of edges, on 3,000 random graphs.
fix-brute-force: build
	@$(BUILD)/tests/test_solve 1000

install: build
	@cmake --install $(BUILD)

check-format:
	@git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror

clean:
	rm -rf $(BUILD)
