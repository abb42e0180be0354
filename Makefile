# Every target is one line that calls a module; `make` alone lists them.
PYTHON ?= python3
RECIPE ?= resnet50
NAME ?= $(RECIPE)
WEIGHTS ?= pretrained
IMAGE ?=
IMAGES ?=
QUICK ?=
FILES ?= 100000
MINUTES ?= 30
LATENCY_MS ?=
BUDGET_MIN ?=
DIR ?=
ARGS ?=
run := .venv/bin/python -m
serve_repository := $(if $(filter resnet50,$(NAME)),model_repository,build/$(NAME)/model_repository)

.PHONY: help demo test fuzz chaos soak setup export repository check serve deploy rollback classify parity perf tune
.PHONY: bench bench-preprocess bench-backend bench-client bench-precision lint clean debian-packages
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## Set up, export, serve and classify three photos, then stop everything
	@$(run) server.demo

# Two files at a time: one alone keeps 0.8 of a core busy. What ARGS selects runs one by one, and -s shows prints.
test: ## Set up, then prove it: all tests, through the real server (ARGS='-k top_1 -s' for some of them)
	@$(PYTHON) -m server.setup --dev && $(run) pytest $(or $(ARGS),--numprocesses 2 --dist loadfile --no-loadscope-reorder)

fuzz: ## Decode damaged image files of all formats (FILES=100000 ARGS="--seed 1")
	@$(PYTHON) -m server.setup --dev && $(run) tests.fuzz_decoder --files $(FILES) $(ARGS)

chaos: ## Harm the service under good traffic, and count what becomes of that (QUICK=1)
	@$(PYTHON) -m server.setup --dev && $(run) tests.chaos $(if $(QUICK),--quick) $(ARGS)

soak: ## Ask it for everything, and see whether its memory grows (MINUTES=30)
	@$(PYTHON) -m server.setup --dev && $(run) tests.soak --minutes $(MINUTES) $(ARGS)

setup: ## Make .venv with pinned dependencies (PYTHON=python3.12 picks the Python of a new one)
	@$(PYTHON) -m server.setup

export: setup ## Write build/RECIPE/model.onnx (RECIPE=resnet50 WEIGHTS=pretrained|random|FILE)
	@$(run) export model --recipe $(RECIPE) --weights "$(WEIGHTS)"

repository: setup ## Fill the version folders of the model repository from the export (NAME=RECIPE or your own)
	@$(run) export repository --name $(NAME)

check: setup ## Check the model repository offline (NAME=RECIPE or your own, ARGS="--triton 24.10")
	@$(run) export check $(serve_repository) $(ARGS)

serve: repository ## Check, then serve until Ctrl-C (ARGS='--http-port 9000' for other ports; python -m server --help)
	@$(run) export check $(serve_repository) && exec $(run) server --model-repository $(serve_repository) $(ARGS)

deploy: setup ## Put a new version in place, losing no request (DIR=EXPORT or VERSION, NAME=, ARGS="--golden FOLDER")
	@$(run) server deploy "$(or $(DIR),$(error give an export: make deploy DIR=build/mine))" \
		--model-repository $(serve_repository) $(ARGS)

rollback: setup ## Go back to the version before (NAME=RECIPE or your own)
	@$(run) server rollback --model-repository $(serve_repository) $(ARGS)

classify: setup ## Classify a photo with the running server (IMAGE=photo.jpg)
	@$(run) client classify "$(or $(IMAGE),$(error give a photo: make classify IMAGE=photo.jpg))" $(ARGS)

parity: setup ## Compare the service with Pillow and torch on your own images (IMAGES=FOLDER RECIPE= WEIGHTS=)
	@$(run) benchmarks.parity --recipe $(RECIPE) --weights "$(WEIGHTS)" "$(or $(IMAGES),$(error give a folder: make parity IMAGES=photos))" $(ARGS)

perf: repository ## Load the service by perf_analyzer: table, CSV and plot (IMAGES=FOLDER NAME=RECIPE, 7 minutes)
	@$(run) benchmarks.perf --model-repository $(serve_repository) $(ARGS) $(if $(IMAGES),"$(IMAGES)")

tune: repository ## Find the settings for this machine, write variant `tuned` (LATENCY_MS=50 BUDGET_MIN=15 IMAGES= NAME=)
	@$(run) benchmarks.tune --model-repository $(serve_repository) $(if $(BUDGET_MIN),--budget-min $(BUDGET_MIN)) \
		$(if $(LATENCY_MS),--latency-ms $(LATENCY_MS)) $(ARGS) $(if $(IMAGES),"$(IMAGES)")

bench: setup ## Compare with gateways, other servers, bare processes (QUICK=1 for 5 minutes of 40, WEIGHTS= IMAGES=FOLDER)
	@$(run) benchmarks.comparison --weights "$(WEIGHTS)" $(if $(QUICK),--quick) $(ARGS) $(if $(IMAGES),"$(IMAGES)")

bench-preprocess: setup ## Time decode, resize and normalize against Pillow's (IMAGES=FOLDER for your own)
	@$(run) benchmarks.preprocess $(IMAGES) $(ARGS)

bench-backend: setup ## Measure the stand-in onnxruntime backend against ONNX Runtime itself (2 minutes)
	@$(run) benchmarks.onnxruntime_backend

bench-client: setup ## Compare the client's latency and throughput with perf_analyzer's (WEIGHTS= IMAGES=FOLDER)
	@$(run) benchmarks.client $(IMAGES) --weights "$(WEIGHTS)" $(ARGS)

bench-precision: setup ## Compare fp32, fp16, int8 and normalize-in-graph (WEIGHTS= IMAGES=FOLDER to calibrate with)
	@$(run) benchmarks.precision --weights "$(WEIGHTS)" $(if $(IMAGES),--calibration "$(IMAGES)") $(ARGS)

lint: ## Check style and types
	@$(PYTHON) -m server.setup --dev && .venv/bin/ruff check . && .venv/bin/ruff format --check . && $(run) mypy

clean: ## Remove .venv, build/ and what was written into model_repository/
	rm -rf .venv build model_repository/*_canary model_repository/*/[0-9]* model_repository/*/retired-* \
		model_repository/*/configs .mypy_cache .ruff_cache .pytest_cache

# An npm that is there already may have come with a Node from elsewhere, with which Debian's npm conflicts.
debian-packages: ## Install the Debian packages that some tests need (as root)
	apt-get update -qq && apt-get install -y --no-install-recommends \
		curl libb64-0d shellcheck chromium chromium-driver $$(command -v npm > /dev/null || echo nodejs npm)
