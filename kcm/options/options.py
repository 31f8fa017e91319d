"""The whole tree. Follows cmd/kube-controller-manager/app/options/options.go."""

from collections.abc import Collection
from dataclasses import dataclass, field

from kcm import KUBERNETES_VERSION
from kcm.features import FeatureGates
from kcm.options.authentication import AuthenticationOptions
from kcm.options.authorization import AuthorizationOptions
from kcm.options.controller_names import IMPLEMENTED_CONTROLLERS
from kcm.options.foreign import ForeignOptions
from kcm.options.generic import DebuggingOptions, GenericOptions
from kcm.options.leader_election import LeaderElectionOptions
from kcm.options.leader_migration import LeaderMigrationOptions
from kcm.options.logs import LoggingOptions
from kcm.options.metrics import MetricsOptions
from kcm.options.serving import SecureServingOptions
from kcm.options.workers import WorkerOptions


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything that a kcm process can be told."""

    generic: GenericOptions = field(default_factory=GenericOptions)
    debugging: DebuggingOptions = field(default_factory=DebuggingOptions)
    leader_migration: LeaderMigrationOptions = field(default_factory=LeaderMigrationOptions)
    leader_election: LeaderElectionOptions = field(default_factory=LeaderElectionOptions)
    serving: SecureServingOptions = field(default_factory=SecureServingOptions)
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
    metrics: MetricsOptions = field(default_factory=MetricsOptions)
    workers: WorkerOptions = field(default_factory=WorkerOptions)
    logging: LoggingOptions = field(default_factory=LoggingOptions)
    foreign: ForeignOptions = field(default_factory=ForeignOptions)
    feature_gates: FeatureGates = field(default_factory=FeatureGates)
    kubeconfig: str = ""
    """File with the API server's address and credentials; without it and `master`, those of the pod that kcm runs in."""
    master: str = ""
    """The API server's URL, which wins over the one in `kubeconfig`."""
    version: str = KUBERNETES_VERSION
    """The release that kcm reports to be."""

    def validate(self, implemented: Collection[str] = IMPLEMENTED_CONTROLLERS) -> list[str]:
        """Everything that is wrong, in words, in the reference's order; `kcm.features.aggregate` makes one text of it.

        Args:
            implemented: Canonical names of the controllers that there are.
        """
        gates = self.feature_gates
        problems = gates.validate()  # with any, none can be asked

        def on(gate: str) -> bool:
            return not problems and gates.enabled(gate)

        return [
            *self.logging.validate(alpha=on("LoggingAlphaOptions")),
            *problems,
            *self.leader_election.validate(),
            *self.generic.validate(implemented),
            *self.workers.validate(),
            *self.foreign.validate(),
            *self.serving.validate(),
            *self.authentication.validate(uid_allowed=on("RemoteRequestHeaderUID")),
            *self.authorization.validate(),
            *self.metrics.validate(),
        ]
