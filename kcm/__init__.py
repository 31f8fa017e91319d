"""kube-controller-manager's workload half in Python."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("kubernetes-kcm")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"

#: The Kubernetes release whose behaviour this code follows.
KUBERNETES_VERSION = "v1.37.2"
