"""What /configz shows: the options in the shape of the reference's KubeControllerManagerConfiguration.

component_config.json has that shape; a text in it that begins with two dashes stands for the value of that flag.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from kcm.command_line import FLAGS, flag_values
from kcm.flags import DURATION
from kcm.options import Options, resolve_aliases

GROUP = "kubecontrollermanager.config.k8s.io"


def component_config(options: Options) -> dict[str, Any]:
    """The whole body of /configz."""
    values: dict[str, Any] = dict(flag_values(options))
    for flag in FLAGS:
        if flag.value_type is DURATION:
            values[flag.long] = DURATION.write(values[flag.long])
    values["controllers"] = resolve_aliases(options.generic.controllers)
    shape = json.loads(files("kcm").joinpath("component_config.json").read_text())
    return {
        GROUP: {
            "kind": "KubeControllerManagerConfiguration",
            "apiVersion": f"{GROUP}/v1alpha1",
            **{section: _fill(fields, values) for section, fields in shape.items()},
        }
    }


def _fill(shape: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(shape, dict):
        return {name: _fill(part, values) for name, part in shape.items()}
    return values[shape[2:]] if isinstance(shape, str) and shape.startswith("--") else shape
