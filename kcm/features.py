"""Feature gates: which there are, what a command line sets, and what is on.

Follows component-base featuregate/feature_gate.go and compatibility/registry.go. Every gate that a component of the followed
release knows is accepted, whether or not kcm has what it switches, since a control plane passes one list to all of its parts.
The table of gates, feature_gates.json, is made from the reference's sources by tools/feature_gates.py.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Literal

from kcm.gotext import parse_bool
from kcm.logs import get_logger

log = get_logger(__name__)

Stage = Literal["ALPHA", "BETA", "GA", "DEPRECATED"]

_COMPONENT = "kube"
_ALL: Mapping[str, Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate at the followed release: how mature it is, and whether it is on unless set."""

    stage: Stage
    default: bool
    locked: bool = False
    """Setting it to anything but its default is an error."""
    requires: tuple[str, ...] = ()
    """Gates that must be on when this one is."""


@cache
def known_gates() -> Mapping[str, Gate]:
    """Every gate that the followed release knows, by name in alphabetical order."""
    table = json.loads(files("kcm").joinpath("feature_gates.json").read_text())
    return MappingProxyType(
        {name: Gate(**{**gate, "requires": tuple(gate.get("requires", ()))}) for name, gate in table.items()}
    )


@dataclass(frozen=True)
class FeatureGates:
    """What is on. An embedder builds it from the gates that it sets; all others have their defaults."""

    settings: Mapping[str, bool] = field(default_factory=dict)
    """Gates set on their own; AllAlpha and AllBeta stand for those of their stage that are not."""

    def enabled(self, name: str) -> bool:
        """Whether the gate is on.

        Raises:
            KeyError: There is no such gate in the followed release.
        """
        gate = known_gates()[name]
        if name in self.settings:
            return self.settings[name]
        for all_name, stage in _ALL.items():
            if gate.stage == stage and all_name in self.settings and name not in _ALL:
                return self.settings[all_name]
        return gate.default

    def validate(self) -> list[str]:
        """Everything wrong with the settings, in words; an unknown gate hides what else is."""
        gates = known_gates()
        for name in self.settings:
            if name not in gates:
                return [f"unrecognized feature gate: {name}"]
        errors = [
            f"cannot set feature gate {name} to {_go(value)}, feature is locked to {_go(gates[name].default)}"
            for name, value in self.settings.items()
            if gates[name].locked and value != gates[name].default
        ]
        if errors:
            return errors
        for name, gate in gates.items():
            missing = [required for required in gate.requires if not self.enabled(required)]
            if missing and self.enabled(name):
                errors.append(f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]")
        return errors

    def log_settings(self) -> None:
        """Warns of gates that are set against advice: mature ones, which will go away, and alpha ones, which may break."""
        gates = known_gates()
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


def parse_feature_gates(pairs: Iterable[tuple[str, str]]) -> FeatureGates:
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
    gates = FeatureGates(MappingProxyType(settings))
    if errors := gates.validate():
        raise ValueError(aggregate(errors))
    return gates


def aggregate(errors: Sequence[str]) -> str:
    """One text of several errors, as apimachinery's Aggregate prints them: each once, in brackets if more than one."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _go(value: bool) -> str:
    return "true" if value else "false"
