# The commands are `make demo`, `make check`, `make test` and `make site`; tools/ holds what they do.
.PHONY: help demo check test conformance lab docs site wheels freethreaded

help:
	@echo 'make demo          build and serve examples/bookshop (PORT=8000)'
	@echo 'make check         the fast part: format, lints, unit tests, rules of the tree (3 min where little changed)'
	@echo 'make test          everything: Rust, loom, fuzz smoke, the wheel under pytest'
	@echo 'make conformance   tests with servers of others: Redis, PostgreSQL (ARGS="-k redis")'
	@echo 'make lab           measurements: all subcommands and their options'
	@echo 'make lab-NAME      one of them, as lab-peers or lab-slow (ARGS="--only never-read")'
	@echo 'make docs          write the generated reference pages and tables'
	@echo 'make site          build the documentation site (target/site), with its links checked'
	@echo 'make wheels        build what is published: wheels for each CPython, and the command without Python (dist/)'
	@echo 'make freethreaded  build a free-threaded CPython for the tests, once'

demo:
	@tools/demo.sh

check:
	@MILEPOST_TEST_BUDGET=180 tools/test.sh fmt clippy unit tidy

test:
	@tools/test.sh $(ARGS)

conformance:
	@tools/conformance.sh $(ARGS)

lab:
	@tools/lab.sh $(or $(ARGS),--help)

lab-%:
	@tools/lab.sh $* $(ARGS)

docs:
	cargo run -q -p xtask -- docs

site:
	@tools/site.sh

wheels:
	@tools/wheels.sh $(ARGS)

freethreaded:
	@tools/freethreaded.sh
