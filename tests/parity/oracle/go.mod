// Marks the root of the module. What it needs stands in controlplane/kubernetes/go.mod, with which tests/parity/oracle.py builds.
module kcm.test/parity/oracle
