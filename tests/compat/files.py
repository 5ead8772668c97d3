"""Promises about uploaded files."""

from tests.compat.promise import CLIENTS, FILES, OURS, Promise

UPLOADED_FILES = (
    Promise(
        id="files.sdks",
        sentence="The official SDKs upload, list, read and delete files.",
        source=CLIENTS,
        divergence="Purposes `user_data`, `vision`, `assistants`; at most 20 MB each; no `uploads`, no vector stores.",
    ),
    Promise(
        id="files.expiry",
        sentence="A file is there until it expires, also after a restart; then it is gone at once, and deleted soon.",
        source=FILES,
        divergence="At the latest it expires with everything else that is stored; `expires_at` says when.",
    ),
    Promise(
        id="files.errors",
        sentence="A `file_id` that is unknown, expired or another key's is a 404 `file_not_found` that names the part.",
        source=OURS,
    ),
    Promise(
        id="files.off",
        sentence="Where nothing is stored, an upload is a 400 that says so.",
        source=OURS,
    ),
)
