import httpx
import pytest
from telegram.error import NetworkError, TimedOut

from adapters.base import TryLater
from adapters.telegram.errors import Translation


@pytest.mark.parametrize(
    ("cause", "ambiguous"),
    [
        (httpx.ConnectTimeout("x"), False),
        (httpx.ConnectError("x"), False),
        (httpx.PoolTimeout("x"), False),
        (httpx.ReadTimeout("x"), True),
        (httpx.WriteTimeout("x"), True),
        (httpx.RemoteProtocolError("x"), True),
    ],
)
def test_only_what_may_have_been_written_is_ambiguous(cause: httpx.HTTPError, ambiguous: bool) -> None:
    with pytest.raises(TryLater) as raised, Translation("1:secret")():
        raise (TimedOut() if isinstance(cause, httpx.TimeoutException) else NetworkError("x")) from cause
    assert raised.value.ambiguous is ambiguous
    assert raised.value.__suppress_context__  # the cause holds the URL, and with it the token
