"""Which metrics are shown. Follows component-base metrics/options.go and metrics/api/v1/config.go."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from kcm import KUBERNETES_VERSION
from kcm.gotext import quote, quote_slice

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"


@dataclass(frozen=True, kw_only=True)
class MetricsOptions:
    """Escape hatches for metrics that cost too much."""

    show_hidden_for_version: str = ""
    """The minor release before this one, to show what it deprecated; kcm hides nothing."""
    disabled: tuple[str, ...] = ()
    """Full names of metrics that are not shown."""
    allow_labels: Mapping[str, str] = field(default_factory=dict)
    """For `metric,label` the values that are shown, joined by commas; any other value counts as `unexpected`."""
    allow_labels_manifest: str = ""
    """A file with such a mapping."""

    def validate(self) -> list[str]:
        """Names that cannot be, a wrong release, and a manifest that cannot be read."""
        errors = []
        major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
        previous = f"{major}.{int(minor) - 1}"
        if self.show_hidden_for_version not in {"", previous}:
            errors.append(
                f"metrics.showHiddenMetricsForVersion: Invalid value: {quote(self.show_hidden_for_version)}: must be omitted "
                f"or have the value '{previous}'; only the previous minor version is allowed"
            )
        if wrong := next((name for name in self.disabled if not re.fullmatch(_NAME, name)), None):
            errors.append(
                f"metrics.disabledMetrics: Invalid value: {quote_slice(self.disabled)}: must be fully qualified metric names "
                f"matching {quote(f'^{_NAME}$')}, got {quote(wrong)}"
            )
        errors += [f"metrics.allowListMapping: {problem}" for problem in _problems(self.allow_labels)]
        if self.allow_labels_manifest:
            head = f"metrics.allowListMappingManifest: Invalid value: {quote(self.allow_labels_manifest)}: "
            try:
                errors += [
                    f"{head}invalid allow list mapping in manifest: {problem}"
                    for problem in _problems(read_manifest(self.allow_labels_manifest))
                ]
            except ValueError as error:
                errors.append(f"{head}{error}")
            if self.allow_labels:
                errors.append(f"metrics: {head}cannot specify both allowListMapping and allowListMappingManifest")
        return errors

    def allowed_values(self) -> dict[tuple[str, str], frozenset[str]]:
        """The values that are shown, for each metric and label that is restricted.

        Raises:
            ValueError: the manifest cannot be read.
        """
        mapping = self.allow_labels or (read_manifest(self.allow_labels_manifest) if self.allow_labels_manifest else {})
        allowed = {}
        for key, values in mapping.items():
            metric, _, label = key.partition(",")
            allowed[metric, label] = frozenset(values.split(","))
        return allowed


def _problems(mapping: Mapping[str, str]) -> list[str]:
    for key in mapping:
        if not re.fullmatch(f"{_NAME},{_LABEL}", key):
            return [
                f"Invalid value: {quote(key)}: must have keys with format `metricName,labelName` where metricName matches "
                f"{quote(_NAME)} and labelName matches {quote(_LABEL)}"
            ]
    return []


def read_manifest(path: str) -> dict[str, str]:
    """A mapping as for `allow_labels`, from a YAML file.

    Raises:
        ValueError: it cannot be read, or is no mapping of strings.
    """
    try:
        mapping = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ValueError(f"failed to read allow list manifest: open {path}: {reason}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"failed to parse allow list manifest: {error}") from error
    if mapping is None:
        return {}
    if not isinstance(mapping, dict) or not all(isinstance(part, str) for item in mapping.items() for part in item):
        raise ValueError("failed to parse allow list manifest: it must map metric,label to values joined by commas")
    return mapping
