"""Promises about the versions of Codex that are supported, and about the dialects in which they are spoken to."""

from tests.compat.promise import OURS, Promise

VERSIONS = (
    Promise(
        id="versions.both-routes",
        sentence="With every Codex from 0.92 on, both routes answer, stream each delta once and count tokens.",
        source=OURS,
    ),
    Promise(
        id="versions.history",
        sentence="A Codex that takes no items gets the history as one input, each text once and in order; no text can "
        "forge its marks.",
        source=OURS,
        divergence="System and developer messages lose their place, and reasoning that is given back is left out.",
    ),
    Promise(
        id="versions.instructions",
        sentence="With every supported Codex, instructions stand before the question and are not the user's.",
        source=OURS,
    ),
    Promise(
        id="versions.images",
        sentence="With every supported Codex, images stay images, in their place between the texts.",
        source=OURS,
    ),
    Promise(
        id="versions.tools",
        sentence="With every supported Codex, calls go to the client and their outputs to the model.",
        source=OURS,
    ),
    Promise(
        id="versions.tools.in-words",
        sentence="Functions, or parts of their schemas, that a Codex cannot declare are explained to the model in "
        "words; calls in its text become calls to the client.",
        source=OURS,
    ),
    Promise(
        id="versions.structured",
        sentence="With every supported Codex, an answer has the format that was asked for.",
        source=OURS,
    ),
    Promise(
        id="versions.errors",
        sentence="With every supported Codex, a failure of the provider has its own status and code.",
        source=OURS,
    ),
    Promise(
        id="versions.disconnect",
        sentence="With every supported Codex, a client that disconnects ends its turn.",
        source=OURS,
    ),
    Promise(
        id="versions.host",
        sentence="With every supported Codex, the model neither reads nor writes a file of the host, and no session is "
        "written.",
        source=OURS,
    ),
    Promise(
        id="versions.fidelity",
        sentence="`x-turnbridge-fidelity` says whether the history was flattened, and what Codex added to it.",
        source=OURS,
    ),
    Promise(
        id="versions.dialect",
        sentence="`PROXY_APP_SERVER_DIALECT` forces a dialect; a Codex that does not speak it is refused, with those "
        "that it speaks.",
        source=OURS,
    ),
)
