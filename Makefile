# Every verb is one line that calls `gradnic` or pytest inside a private environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PYTHONSAFEPATH := 1
# Images of containers set it; then each process of the suite would compile all packages again, 3 s.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := first-light
.PHONY: first-light test slow lint docs types fpga synth vendors baseline bench sweep soak chain fuzz upsets offload shells mutants breaks reproduce networks time-to-accuracy clean setup

tool = @command -v $(1) >/dev/null || { echo "$(1) is missing: install $(2)" >&2; exit 2; }

$(VENV)/ready: pyproject.toml .ci/constraints.txt
	$(call tool,$(PYTHON),Python 3.11 or newer (Debian: python3))
	$(call tool,g++,a C++ compiler (Debian: g++))
	$(call tool,perl,perl (Debian: perl))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, not $$($(PYTHON) -V)" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python's venv is missing: install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c .ci/constraints.txt -e '.[test]'
	touch $@

setup: $(VENV)/ready

first-light: setup
	$(BIN)/gradnic report --run

test: setup
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

slow: setup
	$(BIN)/pytest -m slow

lint: setup types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The import root as one folder, for tools that do not follow the mapping of pyproject.toml.
types:
	rm -rf build/types && mkdir -p build/types/gradnic
	ln -s $(CURDIR)/gradnic/* $(addprefix $(CURDIR)/,hdl models sim fpga) build/types/gradnic/

$(VENV)/docs: $(VENV)/ready
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c .ci/constraints.txt -e '.[docs]'
	touch $@

docs: $(VENV)/docs types
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -f .ci/mkdocs.yml

BOARD ?= ulx3s
fpga: setup
	$(BIN)/gradnic fpga $(BOARD)

BLOCK ?= all
synth: setup
	$(BIN)/gradnic synth $(BLOCK) --check

vendors: setup
	$(BIN)/gradnic synth all --family xilinx --check
	$(BIN)/gradnic synth all --family intel --check

baseline: setup
	$(BIN)/gradnic synth all --speed 8 --speed 6 --record

bench: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c .ci/constraints.txt -e '.[bench]'
	$(BIN)/gradnic bench --json build/bench.json

sweep: setup
	$(BIN)/gradnic sweep --json build/sweep.json

soak: setup
	$(BIN)/gradnic soak --json build/soak.json

CHAIN_FLOATS ?= 100000000
chain: setup
	$(BIN)/gradnic chain --floats $(CHAIN_FLOATS) --json build/chain.json

BAD_FRAMES ?= 100000
RANDOM_JOBS ?= 100
CARDS ?= 10
fuzz: setup
	$(BIN)/gradnic fuzz --frames $(BAD_FRAMES) --json build/fuzz.json
	$(BIN)/gradnic fuzz --card offload --frames $(BAD_FRAMES) --json build/fuzz_offload.json
	$(BIN)/gradnic fuzz --card host --frames $(BAD_FRAMES) --json build/fuzz_host.json
	$(BIN)/gradnic fuzz --card jobs --jobs $(RANDOM_JOBS) --runs $(CARDS) --json build/fuzz_jobs.json

# QUICK= for the full run
QUICK ?= --quick
reproduce: setup
	$(BIN)/gradnic reproduce all $(QUICK) --plot docs/reference/pictures/results --page docs/reference/results.md --json build/reproduce.json

# twenty minutes of processor time; a run that was stopped goes on where it was
time-to-accuracy: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c .ci/constraints.txt -e '.[train]'
	$(BIN)/gradnic reproduce time-to-accuracy --model mlp,conv,transformer --resume build/curves.jsonl --json build/curves.json --plot docs/reference/pictures --page docs/reference/accuracy.md

networks: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c .ci/constraints.txt -e '.[ns3]'
	$(BIN)/gradnic reproduce dlcp $(QUICK) --network ns3 --json build/networks.json

UPSETS ?= 1000
upsets: setup
	$(BIN)/gradnic upsets --count $(UPSETS) --json build/upsets.json
	$(BIN)/gradnic upsets --jobs --count $(UPSETS) --json build/upsets_jobs.json

offload: setup
	$(BIN)/gradnic cosim card --topology torus:4x4 --algorithm multitree --codec thc --loss 0.01 --p 0.02 --spray --json build/offload_thc.json
	$(BIN)/gradnic cosim card --topology bigraph:2x8 --algorithm hdrm --codec inceptionn --loss 0.001 --p 0 --json build/offload_inceptionn.json

# cards with jobs in every shell, by registers and by frames: half an hour
shells: setup
	$(BIN)/pytest -m slow -k jobs tests/shells

MUTANTS ?= 400
MUTATED ?= compressor decompressor inline
mutants: setup
	mkdir -p build/mutants
	status=0; for block in $(MUTATED); do $(BIN)/gradnic mutate $$block --count $(MUTANTS) --json build/mutants/$$block.json || status=1; done; exit $$status

# slow: each line that a user stumbled over is broken again
breaks: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c .ci/constraints.txt -e '.[train]'
	$(BIN)/python tests/house/breaks.py --page docs/internals/breaks.md --json build/breaks.json

clean:
	rm -rf build
