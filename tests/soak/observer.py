"""Samples what the console shows and what users find, in a thread, as long as a soak runs."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import Any, Self

from tests.soak.console import SoakConsole, UnavailableError
from tests.soak.fleet import SoakFleet
from tests.soak.invariants import Sample, SeenIncident

_PAUSE = 2.0
_PATIENCE = 120.0


class Observer:
    """Somebody who looks at the pages again and again, and dials every agent meanwhile."""

    def __init__(self, fleet: SoakFleet, console: SoakConsole) -> None:
        #: Incidents that were firing and not inhibited at some time, by id.
        self.incidents: dict[str, SeenIncident] = {}
        self.newest = Sample(0.0, 0.0)
        self._fleet = fleet
        self._console = console
        self._samples: list[Sample] = []
        self._proxies_by_agent: dict[str, list[str]] = {}
        self._open_ids: set[str] = set()
        self._flapping_ids: set[str] = set()
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_event.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def samples_since(self, moment: float) -> list[Sample]:
        """Return the samples that began after a moment."""
        return [sample for sample in self._samples if sample.begin > moment]

    def proxies_by_agent(self) -> dict[str, list[str]]:
        """Return the names of the proxies of each agent, as last shown."""
        return dict(self._proxies_by_agent)

    def open_incidents(self) -> list[SeenIncident]:
        """Return the incidents that were open when they were last read."""
        return [self.incidents[number] for number in self._open_ids if number in self.incidents]

    @property
    def is_quiet(self) -> bool:
        """Whether no incident is open but those that flap, which stay open for half an hour."""
        return self._open_ids <= self._flapping_ids

    def _watch(self) -> None:
        try:
            while not self._stop_event.wait(_PAUSE):
                self.newest = self._take_sample()
                self._samples.append(self.newest)
        except Exception as error:  # noqa: BLE001 - raised where the soak ends
            self._error = error

    def _take_sample(self) -> Sample:
        begin = time.monotonic()
        try:
            agents = self._console.get("agents?limit=1000")["agents"]
            instances = self._console.get("instances")["instances"]
            self._read_incidents(self._console.get("incidents?state=open&limit=500")["incidents"])
        except UnavailableError:
            return Sample(begin, time.monotonic())
        for agent in agents:
            proxies = [proxy["name"] for proxy in agent["proxies"]]
            if proxies:
                self._proxies_by_agent[agent["name"]] = proxies
        reachable = self._fleet.find_reachable(
            {agent["name"]: self._proxies_by_agent.get(agent["name"], []) for agent in agents},
            {agent["name"]: agent["id"] for agent in agents},
        )
        return Sample(
            begin,
            time.monotonic(),
            {agent["name"]: agent["state"] for agent in agents},
            reachable,
            {instance["name"]: instance["state"] for instance in instances},
            {instance["name"]: instance["cause"] for instance in instances},
        )

    def _read_incidents(self, incidents: list[dict[str, Any]]) -> None:
        self._open_ids = {incident["id"] for incident in incidents}
        self._flapping_ids = {incident["id"] for incident in incidents if incident["is_flapping"]}
        for incident in incidents:
            if incident["state"] == "firing" and not incident["inhibited_by"]:
                self.incidents.setdefault(
                    incident["id"],
                    SeenIncident(
                        incident["id"],
                        incident["cause_kind"],
                        incident["cause"],
                        datetime.fromisoformat(incident["opened_at"]).timestamp(),
                    ),
                )
