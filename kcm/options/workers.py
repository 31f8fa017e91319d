"""How many objects each controller works on at once. Follows cmd/kube-controller-manager/app/options/*controller.go."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How many objects each controller works on at once; one that may have 0 or less then works on none."""

    concurrent_deployment_syncs: int = 5
    concurrent_replicaset_syncs: int = 5
    concurrent_rc_syncs: int = 5
    concurrent_statefulset_syncs: int = 5

    def validate(self) -> list[str]:
        """No worker for StatefulSets, the one controller that the reference checks."""
        if self.concurrent_statefulset_syncs < 1:
            return [f"concurrent-statefulset-syncs must be greater than 0, but got {self.concurrent_statefulset_syncs}"]
        return []
