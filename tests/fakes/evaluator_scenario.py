"""The evaluator of a small fleet with a database and a simulated clock."""

from __future__ import annotations

import time
from typing import cast

import numpy as np

from fleet.alerts.evaluator import Evaluator
from fleet.models import Cluster
from fleet.models.alerting import Channel, Delivery, Route
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import NO_CAUSE, Reason, State
from tests.fakes.reader import FakeReader


class StrandedFleetReader(FakeReader):
    """A fake reader in which one proxy causes all stranded agents."""

    #: Index of that proxy: 2 is proxy-1, 3 is proxy-2.
    cause_index = 2

    def table(self, cluster: str, now: float) -> FleetTable:
        """See Reader."""
        table = super().table(cluster, now)
        is_stranded = table.verdicts["state"] == State.STRANDED
        table.verdicts["cause"] = np.where(is_stranded, self.cause_index, NO_CAUSE)
        table.verdicts["reason_and_recovery"] = Reason.PROXY_UNHEALTHY
        return table


class EvaluatorScenario:
    """An evaluator of a small fleet with a simulated clock."""

    def __init__(self) -> None:
        Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
        self.channel = Channel.objects.create(
            name="ops", kind="webhook", config={"url": "https://example.com"}
        )
        Route.objects.get(name="Everything").channels.add(self.channel)
        self.now = time.time()
        self.reader = StrandedFleetReader([State.HEALTHY] * 40)
        self.evaluator = Evaluator(cast("Reader", self.reader), "me", "https://console.example.com/")

    def run(
        self,
        seconds: int,
        *,
        stranded_count: int = 0,
        is_polling: bool = True,
        step: int = 5,
        is_proxy_sick: bool = False,
    ) -> None:
        """Evaluate every `step` seconds while `stranded_count` agents are stranded or their proxy is sick."""
        self.reader.states = [State.STRANDED] * stranded_count + [State.HEALTHY] * (40 - stranded_count)
        self.reader.proxy_state = (
            InstanceState.SILENT if stranded_count or is_proxy_sick else InstanceState.OK
        )
        for _ in range(0, seconds, step):
            self.now += step
            if is_polling:
                self.reader.as_of = self.now
            self.evaluator.evaluate_cluster("default", self.now)

    @property
    def delivery_kinds(self) -> list[str]:
        """The kinds of the deliveries in the outbox."""
        return list(Delivery.objects.order_by("pk").values_list("kind", flat=True))
