"""Writes docs/metrics.md, the table of what is exposed: `python -m tools.metrics_table`."""

from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from kcm.features import FeatureGates
from kcm.metrics import BareCounter, Metrics

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
HEAD = """\
# Metrics

What `/metrics` shows, in Prometheus' text format. Names without `kcm_` are the stock manager's, with its types, labels and
buckets; those of a controller are there when it is enabled. Besides them stand the usual `process_*` metrics.

This table is made from the code by `python -m tools.metrics_table`.

| name | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    metrics = Metrics()
    metrics.replica_set.register()
    metrics.stateful_set.register()
    metrics.feature_gates(FeatureGates())
    rows = []
    for collector in metrics.registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase):
            (family,) = collector.describe()
            is_bare = family.type != "counter" or isinstance(collector, BareCounter)
            name = family.name if is_bare else f"{family.name}_total"
            labels = ", ".join(collector._labelnames) if len(collector._labelnames) < 9 else "those of the version"
            rows.append(f"| `{name}` | {family.type} | {labels} | {family.documentation.replace('|', '')} |")
    return HEAD + "\n".join(sorted(rows)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
