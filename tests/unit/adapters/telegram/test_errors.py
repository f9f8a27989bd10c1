import aiohttp
import pytest
from telegram.error import NetworkError, TimedOut

from adapters.base import TryLater
from adapters.telegram.errors import Translation
from adapters.telegram.transport import NeverSent


@pytest.mark.parametrize(
    ("error", "ambiguous"), [(NeverSent("x"), False), (TimedOut(), True), (NetworkError("x"), True)]
)
def test_only_what_may_have_been_written_is_ambiguous(error: NetworkError, ambiguous: bool) -> None:
    with pytest.raises(TryLater) as raised, Translation("1:secret")():
        raise error from aiohttp.ClientError("https://example.org/bot1:secret")
    assert raised.value.ambiguous is ambiguous
    assert raised.value.__suppress_context__  # the cause holds the URL, and with it the token
