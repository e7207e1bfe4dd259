# make demo      the main job: two networks on a photo, native and with convx, and a report
# make test      the whole test suite (TURN=1/4: of the slow tests a fourth, another for each of 0 to 3)
# make lint      style and types: ruff, mypy, clang-format
# make check-cuda, make check-amd    every kernel compiled for NVIDIA's and AMD's targets, no GPU needed
#                (CUDA_TARGETS="9.0 10.0", AMD_TARGETS="gfx942 gfx1100": for these alone; CUDA_ONLY=hntmp/,
#                AMD_ONLY=depthwise/: sources whose path contains this; TURN=1/4: a fourth of the sources)
# make clean     removes what these made
#
# The first of them makes a virtual environment in .venv and builds convx there; later ones only what has changed.

PYTHON ?= python3
VENV := .venv
IN_VENV := $(VENV)/bin/python
# A process per CPU, four at most: each has torch's threads besides, which sleep while they wait.
PYTEST_FLAGS ?= -n auto --maxprocesses=4 --dist=worksteal --durations=10 --hypothesis-profile=repeatable
PIP := $(IN_VENV) -m pip --disable-pip-version-check

BINARY_SOURCES := setup.py pyproject.toml $(wildcard build_tools/*.py) $(shell find csrc -type f)
CXX_FILES := $(shell find csrc tests \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \))

.PHONY: demo test lint check-cuda check-amd clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	@echo "== python -m convx demo"
	$(IN_VENV) -m convx demo

test: $(VENV)/installed
	@echo "== the test suite"
	OMP_WAIT_POLICY=passive $(IN_VENV) -m pytest $(PYTEST_FLAGS) $(addprefix --turn ,$(TURN))

lint: $(VENV)/lint-tools
	@echo "== style and types"
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)

check-cuda: $(VENV)/environment
	@echo "== every kernel for NVIDIA's targets"
	$(IN_VENV) -m build_tools.check_cuda $(addprefix --target ,$(CUDA_TARGETS)) $(addprefix --only ,$(CUDA_ONLY)) \
		$(addprefix --turn ,$(TURN))

check-amd: $(VENV)/environment
	@echo "== every kernel for AMD's targets"
	$(IN_VENV) -m build_tools.check_amd $(addprefix --target ,$(AMD_TARGETS)) $(addprefix --only ,$(AMD_ONLY)) \
		$(addprefix --turn ,$(TURN))

clean:
	rm -rf $(VENV) build convx-report convx/lib convx/_core*.so

$(VENV)/environment: build_tools/environment.py $(wildcard requirements/*.txt)
	$(PYTHON) build_tools/environment.py $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/environment $(BINARY_SOURCES)
	@echo "== building and installing convx (its CPU part takes a minute or two on two cores)"
	$(PIP) install --verbose --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/lint-tools: $(VENV)/environment requirements/lint.txt
	$(PIP) install -r requirements/lint.txt
	@touch $@
