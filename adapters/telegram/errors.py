"""Turns errors of the library into those of the contract. No message holds the token, which is part of every URL."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)

from adapters.base import DeliveryError, TryLater, Unauthorized, Undeliverable
from adapters.telegram.transport import NeverSent


class TelegramRefusal(Undeliverable):
    """Telegram refuses this call as it is. `reason` is its own description."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason.lower()


class Contested(TryLater):
    """Another program polls for this bot. Which of the two gets an update is random."""


class Moved(TryLater):
    """The group became a supergroup. The next try goes there."""

    def __init__(self, chat_id: int) -> None:
        super().__init__("The group became a supergroup; the message goes there.", after=0)
        self.chat_id = str(chat_id)


@dataclass(frozen=True, slots=True)
class Translation:
    """`with translation():` turns errors of the library into those of the contract."""

    token: str

    @contextmanager
    def __call__(self) -> Generator[None]:
        try:
            yield
        except TelegramError as error:
            raise self._translate(error) from None  # the cause's text and frames hold the URL
        except (KeyError, TypeError, ValueError):  # the library parses answers without checking them
            raise TryLater("Telegram gave an answer of an unknown shape.", ambiguous=True) from None

    def _translate(self, error: TelegramError) -> DeliveryError:
        said = error.message.partition(". Parsing the server response ")[0].replace(self.token, "<token>")
        match error:
            case RetryAfter():
                seconds = _seconds(error.retry_after)
                return TryLater(f"Telegram asks to wait {seconds:.0f} seconds.", after=seconds)
            case ChatMigrated():
                return Moved(error.new_chat_id)
            # The library raises it for every 404 too, also of a method that this server does not know.
            case InvalidToken() if "not found" not in said.lower():
                return Unauthorized(
                    "Telegram does not accept the token. Get the present one from @BotFather and set platforms.telegram.token."
                )
            case Forbidden() | BadRequest() | EndPointNotFound() | InvalidToken():
                return TelegramRefusal(f"Telegram refuses this: {said}", said)
            case Conflict():
                return Contested(
                    "Another program receives this bot's messages (409). Stop it, or give one of the two a token of its own."
                )
            case NetworkError() if "too large" in said.lower():  # 413
                return TelegramRefusal("The file is larger than Telegram takes.", said)
            case NetworkError():
                return self._unreachable(error, said)
            case _:
                return TryLater(f"Telegram gave an answer that cannot be read: {said}", ambiguous=True)

    def _unreachable(self, error: NetworkError, said: str) -> TryLater:
        # Without a cause of the transport it is an answer with a 5xx status, readable or not.
        if error.__cause__ is None or isinstance(error.__cause__, TelegramError):
            return TryLater(f"Telegram has an outage: {said}")
        what = "did not answer in time" if isinstance(error, TimedOut) else "cannot be reached"
        ambiguous = not isinstance(error, NeverSent)
        return TryLater(f"Telegram {what} ({type(error.__cause__).__name__}).", ambiguous=ambiguous)


def _seconds(period: float | timedelta) -> float:
    return period.total_seconds() if isinstance(period, timedelta) else float(period)
