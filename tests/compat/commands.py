"""Promises about the commands with which an owner operates the gateway."""

from tests.compat.promise import OURS, Promise

COMMANDS = (
    Promise(
        id="commands.login.browser",
        sentence="`turnbridge login` shows a page to log in on, and ends when the browser has done so.",
        source=OURS,
    ),
    Promise(
        id="commands.login.device",
        sentence="`turnbridge login --device` shows a code that can be entered in a browser on another machine.",
        source=OURS,
    ),
    Promise(
        id="commands.login.api-key",
        sentence="`turnbridge login --api-key` reads the key from a pipe or a prompt, never from its arguments.",
        source=OURS,
    ),
    Promise(
        id="commands.login.access-token",
        sentence="`turnbridge login --access-token` stores an access token of ChatGPT, by Codex's own command.",
        source=OURS,
    ),
    Promise(
        id="commands.login.cancel",
        sentence="Ctrl-C cancels a login, and leaves the former one as it was.",
        source=OURS,
    ),
    Promise(
        id="commands.login.noticed",
        sentence="A running gateway uses a new login, and no longer an old one, without a restart.",
        source=OURS,
    ),
    Promise(
        id="commands.logout",
        sentence="`turnbridge logout` revokes the login at its issuer, and removes it from the user's Codex home.",
        source=OURS,
    ),
    Promise(
        id="commands.whoami",
        sentence="`turnbridge whoami` shows the account, or that none is needed, and the use of the plan's windows.",
        source=OURS,
    ),
    Promise(
        id="commands.accounts",
        sentence="`--account` logs in to another Codex account and out of it, and makes keys that use it.",
        source=OURS,
    ),
    Promise(
        id="commands.status",
        sentence="`turnbridge` alone shows whether a gateway serves, who is logged in, and what to do next.",
        source=OURS,
    ),
    Promise(
        id="commands.ask",
        sentence="`turnbridge ask` streams an answer through the running gateway, or through one that ends with it.",
        source=OURS,
    ),
    Promise(
        id="commands.models",
        sentence="`turnbridge models` lists what `/v1/models` lists.",
        source=OURS,
    ),
    Promise(
        id="commands.config",
        sentence="`turnbridge config` shows each setting and where it comes from, and masks secrets.",
        source=OURS,
    ),
    Promise(
        id="commands.help",
        sentence="`-h` is `--help` everywhere, and neither it nor `--version` imports the server.",
        source=OURS,
    ),
    Promise(
        id="commands.doctor",
        sentence="`turnbridge doctor` checks what a gateway needs, and says how to correct what is wrong.",
        source=OURS,
    ),
    Promise(
        id="commands.keys",
        sentence="`turnbridge keys` makes, lists, limits, rotates and revokes keys; each is shown once.",
        source=OURS,
    ),
    Promise(
        id="commands.codex-use",
        sentence="`turnbridge codex use VERSION` installs another Codex and checks it; nothing changes if that fails.",
        source=OURS,
    ),
    Promise(
        id="commands.connect.show",
        sentence="`turnbridge connect CLIENT` shows the settings of a client; the key is shown on a terminal only.",
        source=OURS,
    ),
    Promise(
        id="commands.connect.write",
        sentence="`--write` keeps all else in a settings file, and its key private; `--undo` restores it exactly.",
        source=OURS,
    ),
    Promise(
        id="commands.connect.own-key",
        sentence="`--own-key` makes a key that is named after the client, once, and keeps it in a private file.",
        source=OURS,
    ),
    Promise(
        id="commands.connect.test",
        sentence="`--test` sends a call as the client does, and says what arrived.",
        source=OURS,
    ),
    Promise(
        id="commands.serve.offer",
        sentence="On a terminal without a login, `turnbridge serve` offers one, or the demo; elsewhere never.",
        source=OURS,
    ),
    Promise(
        id="commands.serve.reload",
        sentence="SIGHUP without a terminal reloads Codex's configuration and `PROXY_MODEL_ALIASES`, names what needs "
        "a restart, and cuts no stream. From a terminal, it stops the gateway gracefully.",
        source=OURS,
    ),
    Promise(
        id="commands.serve.lines",
        sentence="On a terminal each request is one line; `PROXY_LOG_FORMAT` and `NO_COLOR` decide otherwise.",
        source=OURS,
    ),
    Promise(
        id="commands.trace",
        sentence="`turnbridge trace --last` shows the last request that asked a model, and `--list` the latest ones.",
        source=OURS,
    ),
    Promise(
        id="commands.completion",
        sentence="`turnbridge completion SHELL` makes bash, zsh and fish complete commands and options.",
        source=OURS,
    ),
    Promise(
        id="commands.service",
        sentence="`turnbridge service install` writes and starts a service of this user, again without effect; never "
        "for root unasked, never with a secret in its file. `remove` undoes it.",
        source=OURS,
    ),
)
