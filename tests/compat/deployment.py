"""What is promised of the files in `deploy/`, of upgrades and of moving the store."""

from tests.compat.promise import OURS, Promise

DEPLOYMENT = (
    Promise(
        id="deploy.proxies",
        sentence="Behind the nginx and Caddy files of `deploy/`, streams arrive unbuffered, WebSockets work, large "
        "bodies pass, and `/metrics` is closed.",
        source=OURS,
    ),
    Promise(
        id="deploy.container",
        sentence="The image runs as a user without rights, from locked packages, and its health check asks `/livez`.",
        source=OURS,
    ),
    Promise(
        id="deploy.systemd",
        sentence="The systemd unit is valid, and systemd rates it as little exposed.",
        source=OURS,
    ),
    Promise(
        id="deploy.hand-over",
        sentence="On a socket that a service manager passes on, a successor takes over: no request is refused, no "
        "stream is cut, and connections wait while no gateway runs.",
        source=OURS,
    ),
    Promise(
        id="deploy.store-copy",
        sentence="`store copy` and `store import` move every row between SQLite and Postgres, resume after an "
        "interruption, and never write over another store's entries.",
        source=OURS,
    ),
    Promise(
        id="deploy.monitoring",
        sentence="Prometheus scrapes the gateway with the given file; dashboard and alerts use metrics that exist.",
        source=OURS,
    ),
    Promise(
        id="deploy.replicas",
        sentence="HAProxy accepts its file for two to four replicas, and the parts of the Kustomize base fit one "
        "another: drain, probes, one login per pod, as many pods as the balancer knows.",
        source=OURS,
    ),
)
