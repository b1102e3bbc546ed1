# The everyday commands; `make help` lists them. CMakeLists.txt does the building, this file only calls it. Everything goes into .venv and build/.
PYTHON ?= python3
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# For example PIP_FLAGS="--index-url ..." where the CPU build of PyTorch is not what pip finds first.
PIP_FLAGS ?=
VENV := .venv
BIN := $(abspath $(VENV))/bin
CMAKE = $(BIN)/cmake
CTEST = $(BIN)/ctest --output-on-failure
CONFIGURE = $(CMAKE) -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja
ROOT := $(CURDIR)

.PHONY: help build hello demo test test-c test-python test-full test-asan test-tsan test-arm tpu-check bench operators wheel clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 14

$(VENV)/.stamp-tools: requirements-dev.txt cmake/prerequisites.sh
	@sh cmake/prerequisites.sh $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) -r requirements-dev.txt
	@touch $@

# An install that follows the sources: Python reads python/ and the module that CMake writes into $(BUILD)/python.
$(VENV)/.stamp-links: $(VENV)/.stamp-tools pyproject.toml cmake/link_venv.py
	$(BIN)/python cmake/link_venv.py $(ROOT) $(abspath $(BUILD))
	@touch $@

$(BUILD)/build.ninja: CMakeLists.txt cmake/torch.cmake cmake/tests.cmake $(VENV)/.stamp-tools
	$(CONFIGURE) -B $(BUILD) -DTERN_PYTHON=$(BIN)/python -DTERN_BUILD_TESTS=ON
	@touch $@

build: $(VENV)/.stamp-links $(BUILD)/build.ninja ## make .venv with PyTorch and tern in it; runs nothing
	@$(CMAKE) --build $(BUILD) -j $(JOBS)

hello: build ## build and run examples/hello.c, tern without PyTorch
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target tern
	$(CC) -std=c11 -Iinclude examples/hello.c -L$(BUILD) -ltern -Wl,-rpath,$(abspath $(BUILD)) -o $(BUILD)/hello
	$(BUILD)/hello

demo: build ## the training scripts on CPU, tern and tern over XLA, side by side
	$(BIN)/python examples/demo.py

test-c: build
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target tern_tests
	$(CTEST) --test-dir $(BUILD)

$(VENV)/.stamp-tests: requirements-test.txt $(VENV)/.stamp-tools
	$(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) -r requirements-dev.txt -r requirements-test.txt
	@touch $@

test-python: build $(VENV)/.stamp-tests
	$(BIN)/python -m pytest tests/python

test: test-c test-python ## the C tests and the Python tests

operators: build ## docs/operators.md: every operator of PyTorch's op_db, each dtype, native or not (half an hour)
	-$(BIN)/python tests/python/opinfo_sweep.py --jobs $(JOBS) --json $(BUILD)/operators.json --markdown docs/operators.md

test-full: export TERN_OPINFO = full
test-full: test test-asan test-tsan ## everything, op_db in every dtype

test-asan: $(VENV)/.stamp-tools ## the C tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(CONFIGURE) -B build-asan -DTERN_BUILD_TORCH=OFF -DTERN_BUILD_TESTS=ON -DTERN_SANITIZE=address
	@$(CMAKE) --build build-asan -j $(JOBS) --target tern_tests
	$(CTEST) --test-dir build-asan

test-tsan: $(VENV)/.stamp-tools ## the C tests under ThreadSanitizer
	$(CONFIGURE) -B build-tsan -DTERN_BUILD_TORCH=OFF -DTERN_BUILD_TESTS=ON -DTERN_SANITIZE=thread
	@$(CMAKE) --build build-tsan -j $(JOBS) --target tern_tests
	$(CTEST) --test-dir build-tsan

test-arm: $(VENV)/.stamp-tools ## the C tests built for 64-bit ARM, run by qemu (cmake/aarch64.cmake says what it needs)
	$(CONFIGURE) -B build-arm -DCMAKE_TOOLCHAIN_FILE=$(ROOT)/cmake/aarch64.cmake -DTERN_BUILD_TORCH=OFF -DTERN_BUILD_TESTS=ON
	@$(CMAKE) --build build-arm -j $(JOBS) --target tern_tests
	$(CTEST) --test-dir build-arm

tpu-check: build ## compile the examples and well-known models for TPUs and GPUs that are not here; writes docs/targets.md (an hour the first time)
	$(BIN)/python examples/check_all.py docs/targets.md

bench: build ## the benchmark table
	$(BIN)/python bench/bench.py $(BENCH_FLAGS)
	$(BIN)/python bench/import_time.py

wheel: $(VENV)/.stamp-tools ## the package to install with pip, in dist/
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	@ls -1 dist/*.whl

clean: ## remove what was built, but not .venv
	rm -rf build build-asan build-tsan build-arm dist
