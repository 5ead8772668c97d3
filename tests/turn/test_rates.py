"""Rate limits as text."""

import pytest

from turnbridge.turn.rates import Rate, parse_rates


@pytest.mark.parametrize(
    ("text", "rates", "words"),
    [
        ("60/minute", [Rate(60, 60)], "60 requests per minute"),
        ("1 per second", [Rate(1, 1)], "1 request per second"),
        ("10 PER 2 Hours", [Rate(10, 7200)], "10 requests per 2 hours"),
        (" 5/90seconds ", [Rate(5, 90)], "5 requests per 90 seconds"),
        ("60/minute;1000/day", [Rate(60, 60), Rate(1000, 86400)], "60 requests per minute"),
        ("2/hour, 3/month | 4/year", [Rate(2, 3600), Rate(3, 2_592_000), Rate(4, 31_104_000)], "2 requests per hour"),
    ],
)
def test_a_text_has_rates_and_a_rate_has_words(text: str, rates: list[Rate], words: str) -> None:
    assert list(parse_rates(text)) == rates
    assert rates[0].described() == words


@pytest.mark.parametrize(
    "text",
    ["", ";", "60", "60/fortnight", "0/minute", "5/0 minutes", "-1/minute", "60/minute;", "1/hour/day", "\uff16/day"],
)
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="60/minute"):
        parse_rates(text)
