"""Promises about starting the gateway, its HTTP side, and the machine that it runs on."""

from tests.compat.promise import (
    CLIENTS,
    DEBUGGING,
    ERRORS,
    OURS,
    Promise,
)

START = (
    Promise(
        id="start.demo",
        sentence="The demo runs the real Codex without an account, and prints a curl line and Python that work.",
        source=OURS,
    ),
    Promise(
        id="start.examples",
        sentence="The examples of the documentation run as they stand.",
        source=OURS,
    ),
    Promise(
        id="start.package",
        sentence="The wheel works with `uv tool install`, `uvx --from`, and `pipx`, and messages name the right one.",
        source=OURS,
    ),
    Promise(
        id="start.again",
        sentence="A second start has the same key, and examines Codex no more; it writes only to its data directory.",
        source=OURS,
    ),
    Promise(
        id="start.own-home",
        sentence=(
            "Of the user's Codex home, only the login and what concerns models and providers is used; sessions, MCP "
            "servers, skills, hooks and AGENTS.md are not."
        ),
        source=OURS,
    ),
    Promise(
        id="start.users-home",
        sentence="Nothing is written to the user's Codex home except the login, by Codex itself.",
        source=OURS,
    ),
    Promise(
        id="start.small-home",
        sentence="The gateway's own home keeps no sessions, which would slow down each turn, and no endless log.",
        source=OURS,
    ),
    Promise(
        id="start.no-login",
        sentence=(
            "Without a login the server starts, `/readyz` says why to key holders, and requests get 401 "
            "`codex_login_required` with the command that helps."
        ),
        source=OURS,
    ),
    Promise(
        id="start.login-command",
        sentence="That command can be pasted, also without a Codex home and with spaces in paths; it is printed first.",
        source=OURS,
    ),
    Promise(
        id="start.proxy",
        sentence="It becomes ready behind any proxy that the environment names: Codex reaches loopback directly.",
        source=OURS,
    ),
    Promise(
        id="start.unheard",
        sentence="The gateway serves even if its output and log cannot be written.",
        source=OURS,
    ),
    Promise(
        id="start.reasons",
        sentence="`/readyz` and the log give the reason why Codex does not start, once.",
        source=OURS,
    ),
    Promise(
        id="start.no-provider-key",
        sentence="A provider's `env_key` that is not set is 401 `codex_login_required`; the message names it.",
        source=OURS,
    ),
    Promise(
        id="start.later-login",
        sentence="A login that comes later counts at once, without a restart.",
        source=OURS,
    ),
    Promise(
        id="start.settings.unknown",
        sentence="A variable that looks like a setting and is none is reported, with the nearest name.",
        source=OURS,
    ),
    Promise(
        id="start.settings.empty",
        sentence="An empty variable is an unset one.",
        source=OURS,
    ),
    Promise(
        id="start.settings.bad",
        sentence="A bad value is refused at the start by the name of its setting.",
        source=OURS,
    ),
    Promise(
        id="start.certificates",
        sentence="Codex trusts the authorities of the system and those that `CODEX_CA_CERTIFICATE` or `SSL_CERT_FILE` "
        "name; a provider that it does not trust is an error that says so.",
        source=OURS,
    ),
)

INGRESS = (
    Promise(
        id="ingress.routes",
        sentence="Both generation routes and both model routes are served, with and without `/v1`.",
        source=CLIENTS,
    ),
    Promise(
        id="ingress.probes",
        sentence="`/healthz`, `/livez` and `/readyz` need no key under a name of the server's, by their exact path.",
        source=OURS,
    ),
    Promise(
        id="ingress.probes.reason",
        sentence="`/readyz` gives the reason, which may name paths, only to requests with the key.",
        source=OURS,
    ),
    Promise(
        id="ingress.old-http",
        sentence="An HTTP/1.0 client gets no chunks; an answer without a length ends with the connection.",
        source=CLIENTS,
    ),
    Promise(
        id="ingress.websockets",
        sentence="A request for a WebSocket is a 426 on every route but `/v1/responses`.",
        source=OURS,
    ),
    Promise(
        id="ingress.unknown-routes",
        sentence="Any other route is a 404, and a wrong verb a 405 with `Allow`, both as OpenAI's error object.",
        source=ERRORS,
    ),
    Promise(
        id="ingress.unserved",
        sentence="What OpenAI serves and Codex cannot is a 404 `not_served` that says why, and what to do instead.",
        source=OURS,
    ),
    Promise(
        id="ingress.sdk",
        sentence="Every method of the official Python SDK works, or raises an error with a code and the reason.",
        source=CLIENTS,
    ),
    Promise(
        id="ingress.base-url",
        sentence="A route behind a wrong base URL, such as a doubled `/v1`, is a 404 with the right path.",
        source=CLIENTS,
    ),
    Promise(
        id="ingress.offers",
        sentence="A client that offers HTTP/2 in plain text, as Java's own does, is answered in HTTP/1.1.",
        source=CLIENTS,
    ),
    Promise(
        id="ingress.request-id",
        sentence="Every answer has `x-request-id`: the client's own if it sent one, else a fresh one.",
        source=DEBUGGING,
    ),
    Promise(
        id="ingress.key",
        sentence="A missing or wrong key is a 401 on every route but the probes, unknown routes too.",
        source=CLIENTS,
    ),
    Promise(
        id="ingress.key.made",
        sentence="Without `PROXY_API_KEY` a key is made at the first start, and kept with mode 0600.",
        source=OURS,
    ),
    Promise(
        id="ingress.key.chosen",
        sentence="A key that the user chose is never printed, and a generated one to a terminal only.",
        source=OURS,
    ),
    Promise(
        id="ingress.loopback",
        sentence="It listens on 127.0.0.1, and elsewhere only with a key that the user chose.",
        source=OURS,
    ),
    Promise(
        id="ingress.log",
        sentence="Each request is one structured log line: ids, client, peer, route, model, status, tokens, times.",
        source=OURS,
    ),
    Promise(
        id="ingress.log.private",
        sentence="Logs hold no prompts, answers, paths, queries or keys.",
        source=OURS,
    ),
    Promise(
        id="ingress.cors",
        sentence="Pages on loopback, Obsidian and those that the operator names may call; others may not.",
        source=CLIENTS,
    ),
    Promise(
        id="ingress.cors.preflight",
        sentence="A preflight needs no key and allows the SDKs' headers; a page may read all of ours.",
        source=CLIENTS,
    ),
    Promise(
        id="ingress.openapi",
        sentence="`/openapi.json` describes every route that is served, with bodies, answers and errors, to "
        "whoever has the key.",
        source=OURS,
    ),
    Promise(
        id="ingress.metrics",
        sentence="`/metrics` counts requests, times, tokens and errors in Prometheus' format.",
        source=OURS,
    ),
    Promise(
        id="ingress.metrics.labels",
        sentence="Its labels are bounded: routes by template, models by Codex's own names, errors by known codes "
        "and by whether the client, the gateway or the provider is their source.",
        source=OURS,
    ),
    Promise(
        id="ingress.metrics.access",
        sentence="`/metrics` asks everyone for `PROXY_METRICS_TOKEN`; without one, for the key.",
        source=OURS,
    ),
)

SAFETY = (
    Promise(
        id="safety.built-ins",
        sentence="A model that calls a tool of Codex's own gets nothing executed on the host.",
        source=OURS,
    ),
    Promise(
        id="safety.scripts",
        sentence="A model's script finds no tool of the host's and no module.",
        source=OURS,
    ),
    Promise(
        id="safety.surroundings",
        sentence="Nothing of the host's starts or reaches the model: MCP servers, hooks, skills, notifiers, AGENTS.md.",
        source=OURS,
    ),
    Promise(
        id="safety.stopped",
        sentence="A turn in which Codex acts on the host is stopped.",
        source=OURS,
    ),
    Promise(
        id="safety.declined",
        sentence="Every request of Codex's for approval, input or elicitation is declined at once, counted and logged.",
        source=OURS,
    ),
    Promise(
        id="safety.switched-off",
        sentence="Every feature of Codex's that could act is switched off, and the binary knows each switch.",
        source=OURS,
    ),
    Promise(
        id="safety.connections",
        sentence="Codex calls its provider and nobody else: no plugins, apps or analytics, and no `git`.",
        source=OURS,
        divergence="With a ChatGPT login it also asks the account's own server where requests go.",
    ),
    Promise(
        id="safety.secrets",
        sentence="Codex gets none of the gateway's own secrets.",
        source=OURS,
    ),
    Promise(
        id="safety.addresses",
        sentence="No private, link-local or otherwise internal address is fetched, however it is written.",
        source=OURS,
        divergence="OpenAI fetches from its own network; here the gateway stands in the user's.",
    ),
    Promise(
        id="safety.redirects",
        sentence="Neither a redirect nor a name that changes its address leads there.",
        source=OURS,
    ),
    Promise(
        id="safety.schemas",
        sentence="Nothing that a client's schema refers to is read.",
        source=OURS,
    ),
)
