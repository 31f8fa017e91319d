"""Controllers that move to another manager. Follows controller-manager pkg/leadermigration/options and config."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kcm.gotext import quote

_GROUP = "controllermanager.config.k8s.io"
_COMPONENTS = frozenset({"*", "kube-controller-manager"})


@dataclass(frozen=True, kw_only=True)
class LeaderMigrationOptions:
    """Which controllers are about to move from one manager to another.

    The reference runs those under a second Lease. None of them is in kcm unless a file says so: those that it gives to another
    manager are left to that one, and one that is to move from or to kcm is refused, for kcm has one Lease.
    """

    enabled: bool = False
    config: str = ""
    """A file with a LeaderMigrationConfiguration; without it the stock one, which names the cloud controllers."""

    def left_to_others(self, controllers: Collection[str]) -> frozenset[str]:
        """Those of these controllers, by canonical name, that another manager runs.

        Raises:
            ValueError: the file cannot be read or says something that cannot be, with all that is wrong.
        """
        if not self.enabled or not self.config:
            return frozenset()
        others: set[str] = set()
        moving: list[str] = []
        for leader in _read(self.config)["controllerLeaders"]:
            if leader["name"] in controllers:
                take = moving.append if leader["component"] in _COMPONENTS else others.add
                take(leader["name"])
        if moving:
            raise ValueError(
                f"leader migration configuration {quote(self.config)}: kcm cannot run {', '.join(moving)} under a second "
                "Lease; run another kcm for them, with --controllers and --leader-elect-resource-name"
            )
        return frozenset(others)


def _read(path: str) -> dict[str, Any]:
    try:
        config = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise ValueError(
            f"unable to read leader migration configuration from {quote(path)}: open {path}: {reason}"
        ) from error
    except yaml.YAMLError as error:
        raise ValueError(f"unable to read leader migration configuration from {quote(path)}: {error}") from error
    problems = _problems(config) if isinstance(config, dict) else ["it must be a mapping"]
    if problems:
        raise ValueError(f"failed to parse leader migration configuration: [{', '.join(problems)}]")
    return {"controllerLeaders": [{"component": "", **leader} for leader in config.get("controllerLeaders") or []]}


def _problems(config: dict[str, Any]) -> list[str]:
    problems = []
    group, _, version = str(config.get("apiVersion", "")).partition("/")
    if (
        group != _GROUP
        or version not in {"v1", "v1beta1", "v1alpha1"}
        or config.get("kind") != "LeaderMigrationConfiguration"
    ):
        problems.append(f"it must be of kind LeaderMigrationConfiguration, apiVersion {_GROUP}/v1")
    if unknown := sorted(config.keys() - {"apiVersion", "kind", "leaderName", "resourceLock", "controllerLeaders"}):
        problems.append(f"unknown fields: {', '.join(map(str, unknown))}")
    if not config.get("leaderName"):
        problems.append("leaderName: Required value: leaderName must be set for LeaderMigrationConfiguration")
    if config.get("resourceLock", "leases") not in {"leases", "endpoints"}:
        problems.append("resourceLock: Invalid value: resource Lock must be one of 'leases' or 'endpoints'")
    for index, leader in enumerate(config.get("controllerLeaders") or []):
        problems += [
            f"controllerLeaders[{index}].{part}: Required value"
            for part in ("component", "name")
            if not isinstance(leader, dict) or not leader.get(part)
        ]
    return problems
