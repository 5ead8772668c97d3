"""The brake on guessing keys: whom it counts, for how long, and how much it remembers."""

import pytest

from turnbridge.turn.errors import RateLimited
from turnbridge.web.middleware.auth import (
    MOST_REMEMBERED,
    MOST_WRONG_KEYS,
    WINDOW_S,
    KeyBrake,
)

FAR = "203.0.113.9"


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def guess(brake: KeyBrake, address: str = FAR, count: int = MOST_WRONG_KEYS) -> None:
    for _ in range(count):
        brake.judge(address, None)


def test_a_peer_may_guess_again_when_its_minute_is_over() -> None:
    clock = Clock()
    brake = KeyBrake(clock)
    guess(brake)
    clock.now += WINDOW_S - 1
    with pytest.raises(RateLimited) as refused:
        brake.judge(FAR, None)
    assert refused.value.retry_after == pytest.approx(1)
    clock.now += 1
    guess(brake)
    with pytest.raises(RateLimited):
        brake.judge(FAR, None)


def test_refused_guesses_do_not_make_the_wait_longer() -> None:
    clock = Clock()
    brake = KeyBrake(clock)
    guess(brake)
    for _ in range(100):
        with pytest.raises(RateLimited):
            brake.judge(FAR, None)
    clock.now += WINDOW_S
    brake.judge(FAR, "a client")


def test_wrong_keys_now_and_then_are_no_guesses() -> None:
    clock = Clock()
    brake = KeyBrake(clock)
    for _ in range(10):
        guess(brake, count=MOST_WRONG_KEYS - 1)
        clock.now += WINDOW_S


def test_another_address_of_the_same_ipv6_network_is_the_same_peer() -> None:
    brake = KeyBrake()
    for number in range(MOST_WRONG_KEYS):
        brake.judge(f"2001:db8::{number:x}", None)
    with pytest.raises(RateLimited):
        brake.judge("2001:db8::ffff", None)
    brake.judge("2001:db8:0:1::1", None)


def test_a_key_that_was_right_elsewhere_is_not_known_here() -> None:
    brake = KeyBrake()
    brake.judge("198.51.100.7", "a client")
    guess(brake)
    with pytest.raises(RateLimited):
        brake.judge(FAR, "a client")


def test_what_is_remembered_is_bounded() -> None:
    brake = KeyBrake()
    for number in range(2 * MOST_REMEMBERED):
        address = f"2001:db8:{number >> 8:x}:{number & 0xFF:x}::1"
        brake.judge(address, None)
        brake.judge(address, "a client")
    assert len(brake._wrong) == len(brake._right) == MOST_REMEMBERED
