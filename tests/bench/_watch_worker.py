"""A worker of the bench `watch`, in a process of its own: it claims and polls the rounds of one cluster.

It prints a line of JSON per round that it polled. `--list` leaves the watch out: each round reads the complete list.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from fleet.monitoring.evidence import PRESENCE, Timing
from fleet.monitoring.pollers import worker as worker_module
from fleet.monitoring.pollers.loaded_source import load_source
from fleet.monitoring.pollers.worker import PollingSettings, Worker
from fleet.monitoring.state.codec import unpack_feed
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.rounds import Rounds
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.processes import garbage
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.clusters import TELEPORT_SERVER_NAME

CLUSTER = "teleport"
#: Share of a round for its requests.
_DEADLINE_SHARE = 0.8
#: Seconds between two looks at the clock.
_TICK = 0.02


def main() -> None:
    """Poll until the process is ended."""
    parser = argparse.ArgumentParser()
    for name in ("url", "prefix", "address", "key", "certificate", "authority"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--list", action="store_true", dest="has_lists_only")
    options = parser.parse_args()
    garbage.collect_less()  # as the worker does
    if options.has_lists_only:
        loaded_source = load_source("teleport")
        without_watch = replace(loaded_source, polling=replace(loaded_source.polling, watch=None))
        worker_module.load_source = lambda _slug: without_watch  # type: ignore[assignment]  # its cache is not used
    redis = connect(options.url)
    writer, rounds = Writer(redis, options.prefix), Rounds(redis, options.prefix)
    timing = Timing(round_interval=options.interval)
    worker = Worker(writer, PollingSettings(timing, deadline=options.interval * _DEADLINE_SHARE))
    tls = TLSFiles(
        authority=Path(options.authority),
        certificate=Path(options.certificate),
        key=Path(options.key),
        server_name=TELEPORT_SERVER_NAME,
    )
    writer.create(CLUSTER, RecordSeed())
    previous_number = 0
    while True:
        number = int(time.time() // options.interval)
        if number == previous_number:
            time.sleep(_TICK)
            continue
        previous_number = number
        if not rounds.claim(CLUSTER, number):
            continue
        at = time.time()
        handle = worker.open_record(CLUSTER, writer.epoch(CLUSTER))
        worker.poll_shard(handle, number, (), [options.address], tls, "teleport")
        feed = unpack_feed(writer.feed(CLUSTER, PRESENCE))
        report = {
            "at": at,
            "epoch": feed.epoch,
            "revision": feed.revision,
            "responded_at": feed.freshness.responded_at,
        }
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
