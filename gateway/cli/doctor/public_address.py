"""Whether a platform that calls us would reach this gateway: a call from outside in, over the public address."""

import os
from http import HTTPStatus

from gateway.config.reading import Loaded

TIMEOUT_SECONDS = 10.0


def webhook_url(loaded: Loaded, platform: str) -> str:
    """Returns where the platform calls; a path alone as long as there is no public address."""
    return f"{loaded.config.api.public_url.rstrip('/')}/webhooks/{platform}"


async def why_unreachable(url: str) -> str:
    """Posts an unsigned empty event to a webhook. Returns "" when our own gateway refused it, else what happened, in words."""
    import aiohttp

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as http,
            # A redirect is not followed, because not every platform does.
            http.post(url, data=b"{}", allow_redirects=False) as answer,
        ):
            said = await answer.text(errors="replace")
            # Our own refusal of an unsigned call proves that the whole way works; a proxy's own 401 looks different.
            if answer.status == HTTPStatus.UNAUTHORIZED and "bad_signature" in said:
                return ""
            return f"something else answers there, with status {answer.status}"
    except aiohttp.ClientConnectorDNSError:
        return "no such name is known"
    except aiohttp.ClientConnectorCertificateError:
        return "its certificate is not trusted"
    except aiohttp.ClientConnectorError as error:
        return os.strerror(error.errno).lower() if error.errno else str(error)
    except TimeoutError:
        return f"no answer within {TIMEOUT_SECONDS:.0f} seconds"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return str(error) or type(error).__name__
