"""Images and files that cost more to read than to send."""

import pytest

from soak.hostile_bodies import bodies, data_url, png
from tests.hostile.site import Site

pytestmark = [pytest.mark.anyio, pytest.mark.real]

REFUSED = {
    "image: cut off": "invalid_image",
    "image: no image": "invalid_image_format",
    "image: of four gigapixels": "image_too_large",
    "pdf: much in little": "unsupported_file",
    "pdf: no PDF": "unsupported_file",
    "pdf: pages without an end": "unsupported_file",
}

SIDE = 7_000
"""An image with sides of so many pixels is just below the largest that is taken."""


@pytest.fixture(scope="module")
def hostile_bodies() -> dict[str, bytes]:
    return bodies()


@pytest.mark.promise("media.file.pdf-limits")
@pytest.mark.parametrize("name", REFUSED)
async def test_a_file_that_is_made_to_be_slow_keeps_nobody_waiting(
    site: Site, hostile_bodies: dict[str, bytes], name: str
) -> None:
    async def ask() -> None:
        answer = await site.hostile.post("/v1/responses", content=hostile_bodies[name])
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, REFUSED[name])

    await site.assert_undisturbed(ask)


@pytest.mark.promise("limits.body")
async def test_the_largest_images_that_are_taken_keep_nobody_waiting(site: Site) -> None:
    part = {"type": "input_image", "image_url": data_url("image/png", png(SIDE, SIDE, rows=SIDE))}

    async def ask() -> None:
        body = {"model": "gpt-5.5", "input": [{"role": "user", "content": [part, part, part]}], "store": False}
        assert (await site.hostile.post("/v1/responses", json=body)).status_code == 200

    await site.assert_undisturbed(ask)
