"""The HTTPS port: is the process well, and what has it done.

Serves /healthz and /metrics as the stock manager does, and /livez and /readyz, which that one lacks, for probes. There is no
plain HTTP. Only reading is possible, and nothing here waits for the API server or for the controllers' loop.
"""

from kcm.serving.certificates import ServingError
from kcm.serving.healthz import Check
from kcm.serving.secure_serving import SecureServer

__all__ = ["Check", "SecureServer", "ServingError"]
