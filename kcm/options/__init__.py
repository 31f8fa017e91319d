"""What a kcm process can be told: a frozen tree that the command line fills and an embedder builds the same way.

Defaults are the stock manager's, times are seconds. Nothing here acts: validation and the choice of controllers are pure, but
for a manifest of metrics that is read to be checked.

    options = Options(kubeconfig="kubeconfig", generic=GenericOptions(kube_api_qps=100, kube_api_burst=200))
    assert not options.validate()
"""

from kcm.options.authentication import AuthenticationOptions, RequestHeaderOptions
from kcm.options.authorization import AuthorizationOptions
from kcm.options.controller_names import (
    CONTROLLER_ALIASES,
    DISABLED_BY_DEFAULT,
    IMPLEMENTED_CONTROLLERS,
    KNOWN_CONTROLLERS,
    is_controller_enabled,
    resolve_aliases,
)
from kcm.options.foreign import ForeignOptions
from kcm.options.generic import DebuggingOptions, GenericOptions
from kcm.options.leader_election import LeaderElectionOptions
from kcm.options.leader_migration import LeaderMigrationOptions
from kcm.options.logs import LoggingOptions
from kcm.options.metrics import MetricsOptions
from kcm.options.options import Options
from kcm.options.serving import NamedCertificate, SecureServingOptions
from kcm.options.workers import WorkerOptions

__all__ = [
    "CONTROLLER_ALIASES",
    "DISABLED_BY_DEFAULT",
    "IMPLEMENTED_CONTROLLERS",
    "KNOWN_CONTROLLERS",
    "AuthenticationOptions",
    "AuthorizationOptions",
    "DebuggingOptions",
    "ForeignOptions",
    "GenericOptions",
    "LeaderElectionOptions",
    "LeaderMigrationOptions",
    "LoggingOptions",
    "MetricsOptions",
    "NamedCertificate",
    "Options",
    "RequestHeaderOptions",
    "SecureServingOptions",
    "WorkerOptions",
    "is_controller_enabled",
    "resolve_aliases",
]
