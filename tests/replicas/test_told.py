"""What answers, `/readyz` and metrics tell of a replica, with a real Redis that is killed."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest
from structlog.testing import capture_logs

from tests.replicas.fleet import replicas
from tests.support.redis_server import RedisServer
from tests.support.waiting import until
from tests.web.asgi_driver import call
from turnbridge.app import Probes, build_app
from turnbridge.gauges import observe
from turnbridge.web.bodies import Bodies
from turnbridge.web.middleware.keyring import Keyring
from turnbridge.web.middleware.meter import Meter
from turnbridge.web.middleware.observability import Metrics
from turnbridge.web.middleware.rate_limit import RequestRates

pytestmark = pytest.mark.anyio

AWAY_SINCE = "turnbridge_redis_away_since_timestamp_seconds"


@pytest.mark.promise("replicas.redis-away")
async def test_a_replica_without_its_redis_is_ready_and_says_that_it_is_degraded(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    async with server.running(), replicas(server.url, 2) as fleet:
        metrics, parts = Metrics(), MagicMock(replica=fleet[0].replica)
        observe(metrics, MagicMock(), parts, ())
        app = build_app(
            [],
            probes=Probes(lambda _: "", lambda _: "exact"),
            replica=fleet[0].replica,
            keyring=Keyring("a-key"),
            metrics=metrics,
            metrics_token=None,
            allowed_origins=(),
            rates=RequestRates(None),
            meter=Meter(None),
            bodies=Bodies(1000),
        )
        whole = await call(app, "GET", "/readyz")
        assert (whole.status, whole.json()) == (200, {"status": "ready", "fidelity": "exact"})
        assert whole.header("x-turnbridge-replica") == "replica-0"
        assert metrics.registry.get_sample_value(AWAY_SINCE) == 0
        with capture_logs():
            await server.kill()
            await until(lambda: fleet[0].redis.is_away)
            lacking = await call(app, "GET", "/readyz")
        assert lacking.status == 200
        assert b'"status":"ready"' in lacking.body
        assert b"this replica holds 1/2 of every limit" in lacking.body
        assert metrics.registry.get_sample_value(AWAY_SINCE) == fleet[0].redis.away_since
