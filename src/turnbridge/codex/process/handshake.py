"""The handshake with an app-server, and what it tells of its login, configuration and models."""

import asyncio
from typing import NamedTuple

import msgspec

from turnbridge.codex.process.connection import CallRefused, CodexFaulted, Connection
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.capabilities import Capabilities
from turnbridge.codex.protocol.catalog import listed_models, model_offer
from turnbridge.codex.protocol.encode import initialize_params
from turnbridge.engine.ports import Model, ModelOffer
from turnbridge.turn.items import JsonObject

# What Codex says of a valid login while it cannot reach the account's server.
ACCOUNT_UNREACHABLE = "workspace routing discovery failed"
# More than any catalogue has, so that one page holds it.
MODEL_PAGE = 1000


class Greeted(NamedTuple):
    """What an app-server tells in its handshake."""

    login_missing: bool
    makes_images: bool
    models: tuple[Model, ...]
    offer: ModelOffer
    config: schema.ConfiguredModel


async def greet(
    connection: Connection, known: Capabilities, version: str, model: str | None, catalog: JsonObject | None
) -> Greeted:
    """Introduce the gateway of this version; `catalog` is that of Codex, without models that only it is configured for.

    `model` is the default one, if it is not that of the configuration.
    """
    greeting = initialize_params(version, opt_out=known.opt_out, wanted=older_notifications(known))
    await connection.call("initialize", known.supported("initialize", greeting), dict[str, msgspec.Raw])
    connection.notify("initialized")
    page = known.supported("model/list", {"includeHidden": True, "limit": MODEL_PAGE})
    (login_missing, makes_images), listed, answer = await asyncio.gather(
        _login(connection),
        connection.call("model/list", page, schema.ModelListResult),
        connection.call("config/read", {}, schema.ConfigReadResult),
    )
    config = answer.config
    default = model or config.model
    models = listed_models(listed.data, catalog, default=default, effort=config.model_reasoning_effort)
    offer = model_offer(models, config, default=default, catalog=catalog)
    return Greeted(login_missing, makes_images, models, offer, config)


def older_notifications(capabilities: Capabilities) -> dict[str, type[schema.OlderNotification]]:
    """Return the notifications that only a Codex that does not tell usage by itself is read for."""
    return {} if capabilities.raw_usage else schema.OLDER_NOTIFICATIONS


async def _login(connection: Connection) -> tuple[bool, bool]:
    """Tell whether a login is missing, and whether it is one with which Codex makes images."""
    try:
        account = await connection.call("account/read", {}, schema.AccountReadResult)
    except (CallRefused, CodexFaulted) as refused:
        # Codex has a login file, and either cannot use it or cannot reach the account's server.
        return ACCOUNT_UNREACHABLE not in refused.message, False
    kind = account.account and account.account.type
    return account.requires_openai_auth and kind is None, account.requires_openai_auth and kind == "chatgpt"
