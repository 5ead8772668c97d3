"""Promises about the page for browsers."""

from tests.compat.promise import OURS, Promise

PAGE = (
    Promise(
        id="page.served",
        sentence="`GET /` is a page for browsers, and a few links for programs; it needs no other host, and fits into "
        "100 KB.",
        source=OURS,
    ),
    Promise(
        id="page.off",
        sentence="`PROXY_PAGE=off` switches it off.",
        source=OURS,
    ),
    Promise(
        id="page.code",
        sentence="`serve` prints a link on a terminal whose code opens the page once, within an hour.",
        source=OURS,
    ),
    Promise(
        id="page.session",
        sentence="A session is a strict, same-site, http-only cookie, and a token that only the page's origin knows: "
        "no request works without both. A key may open one, too, and it ends with that key.",
        source=OURS,
    ),
    Promise(
        id="page.host",
        sentence="Under a host name that is not the server's, nor allowed by the operator, there is no page.",
        source=OURS,
    ),
    Promise(
        id="page.policy",
        sentence="A strict content security policy holds: no inline script or style, nothing from elsewhere, no frame.",
        source=OURS,
    ),
    Promise(
        id="page.markup",
        sentence="No name and no text of a model, a client or a key becomes markup.",
        source=OURS,
    ),
    Promise(
        id="page.guests",
        sentence="Keys without `--admin` see the playground, the settings of clients and their own requests; never the "
        "account, the plan, or other clients.",
        source=OURS,
    ),
    Promise(
        id="page.uncounted",
        sentence="The page's own requests are not in the metrics, the log, the wire trace or the list of requests.",
        source=OURS,
    ),
    Promise(
        id="page.state",
        sentence="It says whether turns run, or why not, who is logged in, and how much of the plan is used.",
        source=OURS,
    ),
    Promise(
        id="page.login",
        sentence="The owner can log in from the page, by a code, a URL or an API key, and log out; it notices by "
        "itself that it is done.",
        source=OURS,
    ),
    Promise(
        id="page.accounts",
        sentence="It shows the login and plan of every account, logs in to a new one, and makes keys for each; only "
        "the owner sees them.",
        source=OURS,
    ),
    Promise(
        id="page.playground",
        sentence="The playground streams `/v1/responses` itself over several turns, with reasoning, images, files, "
        "functions, schemas and a stop.",
        source=OURS,
    ),
    Promise(
        id="page.snippets",
        sentence="It shows the last request as a program in curl, Python and node on every API that is served; the "
        "model sees the same.",
        source=OURS,
    ),
    Promise(
        id="page.live",
        sentence="It shows the last 50 requests of all APIs as they end, without a prompt or an answer.",
        source=OURS,
    ),
    Promise(
        id="page.timeline",
        sentence="A click draws what a request waited for: queue, thread, provider, stream. With the wire trace on, "
        "the owner sees both wires, and how what the client sent, Codex was told and the model saw differ.",
        source=OURS,
    ),
    Promise(
        id="page.usage",
        sentence="It draws the tokens of the last 14 days, sums them by client and model, and shows errors by code and "
        "percentiles of latencies; guests see their own.",
        source=OURS,
    ),
    Promise(
        id="page.keys",
        sentence="The owner can make, limit, rotate and revoke keys; a key is shown once.",
        source=OURS,
    ),
    Promise(
        id="page.connect",
        sentence="It shows the settings of every client of `turnbridge connect`, and when its first request arrives.",
        source=OURS,
    ),
    Promise(
        id="page.access",
        sentence="It works by keyboard, for screen readers (axe-core finds nothing serious), in light and dark, and at "
        "360 pixels.",
        source=OURS,
    ),
)
