"""The gateway's counts since it started, as Prometheus reads them.

Source: Prometheus' documentation, "Exposition formats", "Text-based format". Counts are of this process and are lost with it,
as Prometheus expects; what has to stay is in the ledger and in the report.
"""

from collections.abc import Iterable, Mapping

import msgspec

from turnwise.gateway.refusals import DoorReason
from turnwise.wire.profiles import FamilyName

MOST_MODELS = (
    200  # that no file names: a client may name any model, and each name is a time series that Prometheus keeps
)
OTHER = "(other)"
LONGEST_LABEL = 120  # characters


class Metric(msgspec.Struct, frozen=True):
    """One metric: what it is, and the labels that tell its values apart."""

    help: str
    labels: tuple[str, ...]
    type: str = "counter"


METRICS: dict[str, Metric] = {
    "turnwise_gateway_requests_total": Metric(
        "Requests of clients that have ended, by how: whole, fault (an error was the answer, or its end), left, refused "
        "(at the doors).",
        ("family", "kind", "status", "end"),
    ),
    "turnwise_gateway_refusals_total": Metric("Requests that the doors refused, by reason.", ("reason",)),
    "turnwise_gateway_open_requests": Metric("Requests of clients that are being served.", (), "gauge"),
    "turnwise_gateway_answer_bytes": Metric("Bytes of the answers that are under way.", (), "gauge"),
    "turnwise_gateway_request_seconds_total": Metric("Seconds that requests of clients took.", ("family", "kind")),
    "turnwise_gateway_upstream_requests_total": Metric(
        "Requests to providers, by purpose and outcome.", ("provider", "model", "purpose", "outcome")
    ),
    "turnwise_gateway_requests_without_usage_total": Metric(
        "Requests to providers whose tokens nobody told: they are in no sum of tokens.",
        ("provider", "model", "purpose"),
    ),
    "turnwise_gateway_tokens_total": Metric("Tokens that providers reported.", ("provider", "model", "kind")),
    "turnwise_gateway_repairs_total": Metric("What was mended, by kind.", ("provider", "model", "kind")),
}


class GatewayCounts:
    """Only the event loop's thread changes them."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in METRICS}
        self._values["turnwise_gateway_open_requests"][()] = self._values["turnwise_gateway_answer_bytes"][()] = 0
        self._configured: frozenset[str] = frozenset()
        self._served: dict[tuple[str, str], None] = {}  # the one that was used last comes last

    def configure(self, models: Iterable[str]) -> None:
        """These names, which the configuration has, are labels always."""
        self._configured = frozenset(models)

    def add(self, name: str, *labels: str, amount: float = 1) -> None:
        values = self._values[name]
        values[labels] = values.get(labels, 0) + amount

    def set(self, name: str, amount: float) -> None:
        self._values[name][()] = amount

    def refused(self, reason: DoorReason, *, family: FamilyName, kind: str, status: int) -> None:
        """The doors have refused a request."""
        self.add("turnwise_gateway_refusals_total", reason)
        self.add("turnwise_gateway_requests_total", family, kind, str(status), "refused")

    def model_label(self, provider: str, model: str, *, has_served: bool) -> str:
        """The model's name, or the one for all others: so are names called that no file has and for which no upstream has
        answered. `has_served` says that one just has. Past `MOST_MODELS` of them the one that was idle longest gives way."""
        label = model[:LONGEST_LABEL]
        if model in self._configured:
            return label
        key = (provider, label)
        if key not in self._served and not has_served:
            return OTHER
        self._served.pop(key, None)
        self._served[key] = None
        if len(self._served) > MOST_MODELS:
            self._fold(*next(iter(self._served)))
        return label

    def _fold(self, provider: str, label: str) -> None:
        """What was counted of a model goes to the others, so sums over models never fall."""
        del self._served[provider, label]
        for name, metric in METRICS.items():
            if metric.labels[:2] != ("provider", "model"):
                continue
            values = self._values[name]
            for labels in [labels for labels in values if labels[:2] == (provider, label)]:
                self.add(name, provider, OTHER, *labels[2:], amount=values.pop(labels))

    def text(self) -> bytes:
        """All of them in the text format."""
        lines: list[str] = []
        for name, metric in METRICS.items():
            lines += (f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.type}")
            lines += [
                f"{name}{_labels(dict(zip(metric.labels, labels, strict=True)))} {_number(value)}"
                for labels, value in self._values[name].items()
            ]
        return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()]) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}"
