# Each command first installs what it needs; CMake does the build itself.

PREFIX ?= /usr/local
# One job per core, but at most one per 2 GB of free memory.
JOBS ?= $(shell awk -v n=$$(nproc) '/MemAvailable/ { m = int($$2 / 2e6); print (m < 1 ? 1 : m < n ? m : n) }' \
  /proc/meminfo)

.PHONY: help demo test install wheel docs format clean configure

help:
	@echo "make demo            trains two models on WordNet in two precisions, side by side"
	@echo "make test            builds everything and runs the tests"
	@echo "make install         installs the library and the command (PREFIX=$(PREFIX))"
	@echo "make wheel           builds build/wheel/mezzo-*.whl, for pip"
	@echo "make docs            builds the site, build/docs/site/index.html"
	@echo "make format          formats the sources"
	@echo "make clean           removes what was built; keeps libtorch"

demo: configure
	cmake --build --preset release -j $(JOBS) --target mezzo_cli
	tools/demo build/release/bin/mezzo

test: configure
	cmake --build --preset release -j $(JOBS)
	ctest --preset release -j $(JOBS)

install: configure
	cmake --build --preset release -j $(JOBS) --target mezzo mezzo_cli
	cmake --install build/release --prefix $(PREFIX)

wheel:
	tools/bootstrap
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) tools/wheel

docs:
	tools/docs

configure:
	tools/bootstrap
	cmake --preset release

format:
	tools/check_format --fix

clean:
	rm -rf $(addprefix build/,dev release asan tsan cuda ci gpu_run wheel docs)
