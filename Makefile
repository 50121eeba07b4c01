# The two commands are `make demo` and `make test`; tools/ holds what they do.
.PHONY: help demo test bench bench-slow bench-log bench-reload bench-control docs freethreaded

help:
	@echo 'make demo          build and serve examples/bookshop (PORT=8000)'
	@echo 'make test          everything: Rust, loom, fuzz smoke, the wheel under pytest'
	@echo 'make bench         against nginx, granian, gunicorn and bjoern (ARGS="--only wsgi")'
	@echo 'make bench-slow    slow clients and slow disks (ARGS="--only 3")'
	@echo 'make bench-log      what the access log costs, and that it loses nothing (ARGS="--only 4")'
	@echo 'make bench-reload  reloads, crashes and spread over processes (ARGS="--only 3")'
	@echo 'make bench-control pools that steer themselves, and what the simulator foretold (ARGS="--only 1")'
	@echo 'make docs          write the generated reference pages'
	@echo 'make freethreaded  build a free-threaded CPython for the tests, once'

demo:
	@tools/demo.sh

test:
	@tools/test.sh $(ARGS)

bench:
	@tools/bench.sh $(ARGS)

bench-slow:
	@tools/bench-slow.sh $(ARGS)

bench-log:
	@tools/bench-log.sh $(ARGS)

bench-reload:
	@tools/bench-reload.sh $(ARGS)

bench-control:
	@tools/bench-control.sh $(ARGS)

docs:
	cargo run -q -p xtask -- docs

freethreaded:
	@tools/freethreaded.sh
