"""Mutation testing of the core: `make mutate`. It breaks one line at a time, and tells which breaks no test notices."""
