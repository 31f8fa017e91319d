"""Kubernetes' own integration tests, run against kcm as a process: `make conformance`."""
