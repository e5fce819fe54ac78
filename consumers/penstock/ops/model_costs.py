"""What each stream costs the models, for the pages: time, share and money.

Rule: the price of an hour is divided by the shares of the model's time, so that the streams' money
adds up to what is paid, whether the model was busy or not. Several models are added. Owner: the
status.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.pipeline.settings import ModelTerms
from penstock.pipeline.wiring import Track


class ModelCosts:
    def __init__(
        self, tracks: Mapping[str | None, Track], terms: Mapping[str | None, ModelTerms]
    ) -> None:
        self._models = [(track.costs, terms[name].cost_per_hour) for name, track in tracks.items()]

    def fit(self, now_s: float) -> None:
        for costs, _ in self._models:
            costs.fit(now_s)

    @property
    def spent_s(self) -> Mapping[str, float]:
        """For each stream: the models' time that it has taken so far."""
        spent_s = Counter[str]()
        for costs, _ in self._models:
            spent_s.update(costs.spent_s)
        return spent_s

    @property
    def costly(self) -> dict[str, Any] | None:
        """The stream that costs a model most beyond what the others do."""
        found = [costs.costly for costs, _ in self._models if costs.costly is not None]
        most = max(found, key=lambda one: one.times, default=None)
        return None if most is None else most._asdict()

    @property
    def whole(self) -> dict[str, Any]:
        """Of all streams together, and the fixed cost of a call to the default model."""
        streams = {stream for costs, _ in self._models for stream in costs.lately}
        rows_per_s = sum(self._rows_per_s(stream) for stream in streams)
        prices = [price for _, price in self._models if price is not None]
        base_s = self._models[0][0].base_s
        return {
            "call_ms": None if base_s is None else round(base_s * 1000, 3),
            "busy_s": round(self._busy, 3),
            **_money(sum(prices) if prices else None, rows_per_s),
        }

    def of(self, stream: str) -> dict[str, Any]:
        lately = [(costs, price, costs.lately.get(stream)) for costs, price in self._models]
        known = [(costs, price, one) for costs, price, one in lately if one is not None]
        prices = [one.share * price for _, price, one in known if price is not None]
        row_s = sum(one.row_s for _, _, one in known)
        return {
            "row_ms": round(1000 * row_s, 3) if known else None,
            "model_s": round(sum(costs.spent_by(stream) for costs, _ in self._models), 3),
            "model_share": round(self._share(stream), 4),
            **_money(sum(prices) if prices else None, self._rows_per_s(stream)),
        }

    def of_others(self, shown: Iterable[str]) -> dict[str, Any]:
        """Of all streams but those that are shown."""
        rest = max(0.0, 1.0 - sum(map(self._share, shown))) if self._busy else 0.0
        return {"row_ms": None, "model_s": None, "model_share": round(rest, 4), **_money(None, 0.0)}

    @property
    def _busy(self) -> float:
        return sum(costs.busy for costs, _ in self._models)

    def _share(self, stream: str) -> float:
        parts = ((costs.busy, costs.lately.get(stream)) for costs, _ in self._models)
        spent = sum(busy * one.share for busy, one in parts if one is not None)
        return spent / self._busy if spent else 0.0

    def _rows_per_s(self, stream: str) -> float:
        lately = (costs.lately.get(stream) for costs, _ in self._models)
        return sum(one.rows_per_s for one in lately if one is not None)


def _money(per_hour: float | None, rows_per_s: float) -> dict[str, float | None]:
    if per_hour is None:
        return {"cost_per_hour": None, "cost_per_million": None}
    rows = rows_per_s * 3600
    return {
        "cost_per_hour": round(per_hour, 4),
        "cost_per_million": round(per_hour / rows * 1e6, 4) if rows else None,
    }
