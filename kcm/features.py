"""Feature gates: which there are, what a command line sets, and what is on.

Follows component-base featuregate/feature_gate.go and compatibility/registry.go. Every gate that a component of the followed
release knows is accepted, whether or not kcm has what it switches, since a control plane passes one list to all of its parts.
The table of gates, feature_gates.json, is made from the reference's sources by tools/feature_gates.py.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

from kcm import KUBERNETES_VERSION
from kcm.gotext import parse_bool, quote
from kcm.logs import get_logger

log = get_logger(__name__)

Stage = Literal["PRE-ALPHA", "ALPHA", "BETA", "GA", "DEPRECATED"]
#: A minor release, such as (1, 37).
Release = tuple[int, int]

_major, _minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
#: The followed release.
RELEASE: Release = (int(_major), int(_minor))
#: The oldest release that can be emulated or be kept compatible with.
OLDEST_RELEASE: Release = (1, 34)

_COMPONENT = "kube"
_ALL: Mapping[str, Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate at one release: how mature it is, and whether it is on unless set."""

    stage: Stage
    default: bool
    locked: bool = False
    """Setting it to anything but its default is an error."""
    requires: tuple[str, ...] = ()
    """Gates that must be on when this one is."""


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(files("kcm").joinpath("feature_gates.json").read_text())
    return table


@cache
def known_gates(release: Release = RELEASE, min_compatibility: Release | None = None) -> Mapping[str, Gate]:
    """Every gate that the followed release knows, by name in alphabetical order.

    Args:
        release: What each gate is shown at; one that came later is `PRE-ALPHA` and off.
        min_compatibility: The oldest release that the control plane still has to work with; the one before unless given.
    """
    least = min_compatibility or before(release)
    gates = {}
    for name, entry in _table().items():
        gate = Gate("PRE-ALPHA", default=False)
        for stage in entry["stages"]:
            if tuple(stage["since"]) <= release and tuple(stage.get("min_compatibility", least)) <= least:
                gate = Gate(
                    stage["stage"], stage["default"], stage.get("locked", False), tuple(entry.get("requires", ()))
                )
        gates[name] = gate
    return MappingProxyType(gates)


def before(release: Release) -> Release:
    """The minor release before one, but none that is too old to be compatible with."""
    return max((release[0], release[1] - 1), OLDEST_RELEASE)


def show(release: Release) -> str:
    """A release as it is written, `1.37`."""
    return f"{release[0]}.{release[1]}"


@dataclass(frozen=True)
class FeatureGates:
    """What is on. An embedder builds it from the gates that it sets; all others have their defaults."""

    settings: Mapping[str, bool] = field(default_factory=dict)
    """Gates set on their own; AllAlpha and AllBeta stand for those of their stage that are not."""
    emulated: Release = RELEASE
    """The release whose gates are acted on."""
    min_compatibility: Release | None = None
    """The oldest release that the control plane still has to work with; the one before the emulated unless given."""

    @property
    def known(self) -> Mapping[str, Gate]:
        """Every gate as it is at the emulated release."""
        return known_gates(self.emulated, self.min_compatibility)

    def enabled(self, name: str) -> bool:
        """Whether the gate is on.

        Raises:
            KeyError: There is no such gate in the followed release.
        """
        gate = self.known[name]
        if name in self.settings:
            return self.settings[name]
        for all_name, stage in _ALL.items():
            if gate.stage == stage and all_name in self.settings and name not in _ALL:
                return self.settings[all_name]
        return gate.default

    def validate(self) -> list[str]:
        """Everything wrong with the settings, in words; an unknown gate hides what else is."""
        gates = self.known
        for name in self.settings:
            if name not in gates:
                return [f"unrecognized feature gate: {name}"]
        errors = [
            f"cannot set feature gate {name} to {_go(value)}, feature is locked to {_go(gates[name].default)}"
            for name, value in self.settings.items()
            if gates[name].locked and value != gates[name].default
        ]
        errors += [
            f"cannot set feature gate {name} to {_go(value)}, feature is PreAlpha at emulated version {show(self.emulated)}, "
            f"min compatibility version {show(self.min_compatibility or before(self.emulated))}"
            for name, value in self.settings.items()
            if gates[name].stage == "PRE-ALPHA"
        ]
        if errors:
            return errors
        errors = self._version_problems()
        for name, gate in gates.items():
            missing = [required for required in gate.requires if not self.enabled(required)]
            if missing and self.enabled(name):
                errors.append(f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]")
        return errors

    def _version_problems(self) -> list[str]:
        errors, oldest = [], show(OLDEST_RELEASE)
        if not OLDEST_RELEASE <= self.emulated <= RELEASE:
            errors.append(f"emulation version {show(self.emulated)} is not between [{oldest}, {show(RELEASE)}]")
        if self.min_compatibility and not OLDEST_RELEASE <= self.min_compatibility <= self.emulated:
            errors.append(
                f"minCompatibilityVersion version {show(self.min_compatibility)} is not between "
                f"[{oldest}, {show(self.emulated)}]"
            )
        return errors

    def log_settings(self) -> None:
        """Warns of gates that are set against advice: mature ones, which will go away, and alpha ones, which may break."""
        gates = self.known
        for name, value in self.settings.items():
            stage = gates[name].stage
            if stage in {"GA", "DEPRECATED"}:
                kind = "GA" if stage == "GA" else "deprecated"
                log.info(
                    "Setting a feature gate that a later release removes", featureGate=name, value=value, stage=kind
                )
        alpha = [name for name, gate in gates.items() if gate.stage == "ALPHA" and self.enabled(name)]
        if alpha:
            log.warning("Alpha features are enabled", features=alpha)


def split_feature_gates(text: str) -> tuple[tuple[str, str], ...]:
    """One value of --feature-gates, `[component:]Name=value,…`, as pairs of component (or "") and setting."""
    pairs = (pair.partition(":") for pair in text.split(",") if pair)
    return tuple((first.strip(), rest.strip()) if colon else ("", first.strip()) for first, colon, rest in pairs)


def parse_release(versions: Iterable[str]) -> Release | None:
    """The release that values of --emulated-version or --min-compatibility-version name, `[kube=]1.37`; None without any.

    Raises:
        ValueError: One is no release, names another component than kube, or there are several.
    """
    found: list[Release] = []
    for item in versions:
        component, equals, text = (part.strip() for part in item.partition("="))
        component, text = (component, text) if equals else (_COMPONENT, component)
        match = re.fullmatch(r"v?(0|[1-9]\d*)\.(0|[1-9]\d*)(?:\.(0|[1-9]\d*))?([-+][0-9A-Za-z.+-]+)?", text)
        if match is None:
            raise ValueError(f"could not parse {quote(text)} as version")
        if match[3] and int(match[3]):
            raise ValueError(f"patch version not allowed, got: {component}={text.removeprefix('v')}")
        if component != _COMPONENT:
            raise ValueError(f"component not registered: {component}")
        found.append((int(match[1]), int(match[2])))
    if len(found) > 1:
        raise ValueError(
            f"duplicate version flag, {' and '.join(f'{_COMPONENT}={show(release)}' for release in found)}"
        )
    return found[0] if found else None


def parse_feature_gates(
    pairs: Iterable[tuple[str, str]], *, emulated: Release | None = None, min_compatibility: Release | None = None
) -> FeatureGates:
    """What all values of --feature-gates set together; of two settings of one gate the later counts.

    Raises:
        ValueError: A pair is no setting or names another component than kube, or the gates are wrong together.
    """
    settings: dict[str, bool] = {}
    components = set()
    for component, setting in pairs:
        if component not in {"", _COMPONENT}:
            raise ValueError(f"component not registered: {component}")
        components.add(component)
        if len(components) > 1:
            raise ValueError(
                "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use"
            )
        if not setting:
            continue
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for {name}")
        try:
            settings[name] = parse_bool(value)
        except ValueError as error:
            raise ValueError(f"invalid value of {name}={value}, err: {error}") from error
    gates = FeatureGates(MappingProxyType(settings), emulated or RELEASE, min_compatibility)
    if errors := gates.validate():
        raise ValueError(aggregate(errors))
    return gates


def aggregate(errors: Sequence[str]) -> str:
    """One text of several errors, as apimachinery's Aggregate prints them: each once, in brackets if more than one."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _go(value: bool) -> str:
    return "true" if value else "false"
