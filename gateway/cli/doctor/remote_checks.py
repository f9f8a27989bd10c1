"""Checks that ask others: the model's endpoint, the chat platforms, and the way from a platform to our webhook."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, cast

from adapters.base import DeliveryError, TryLater, Unauthorized
from adapters.registry import Unavailable, build, manifest
from gateway.agent.models.endpoint import ask_ollama
from gateway.cli.doctor.checks import CheckTarget, Diagnosis, note, problem, warning
from gateway.config.model_choice import ChosenModel, choose_model
from gateway.config.reading import Loaded
from sessions import people, workers
from sessions.workers import WorkerState

TIMEOUT_SECONDS = 10.0
MOST_SKEW_SECONDS = 60
SMALL_WINDOW = 8_192


async def model(target: CheckTarget) -> AsyncIterator[Diagnosis]:
    if target.loaded is None:
        return
    chosen = await asyncio.to_thread(choose_model, target.loaded.config, target.loaded.variables, ask_ollama)
    if chosen.provider == "practice":
        yield note("model.practice", "The practice model answers; it is a demo and no real AI.", "hermes setup")
        return
    try:
        status, named, date = await _models_of(chosen)
    except (OSError, TimeoutError) as error:
        what = f"The model at {chosen.where} cannot be reached: {str(error) or 'no answer'}."
        yield problem(
            "model.unreachable", what, "Check model.base_url and the network; answers wait and go on by themselves."
        )
        return
    if status in {401, 403}:
        yield problem(
            "model.unauthorized", f"The key for {chosen.where} is not accepted.", "hermes config set model.api_key -"
        )
    elif named and chosen.name not in named:
        what = f"{chosen.where} does not list a model {chosen.name!r}."
        near = ", ".join(sorted(named)[:5])
        yield warning("model.unknown", what, f"hermes config set model.name NAME   (there are: {near})")
    elif (window := await _window(target.loaded, chosen)) < SMALL_WINDOW:
        what = f"{chosen.name} has a window of {window:,} tokens: some tools and most of the past do not fit into it."
        yield warning("model.small_window", what, "Serve it with a larger one: num_ctx in Ollama, -c in llama.cpp.")
    if date is not None and abs(skew := (datetime.now(UTC) - date).total_seconds()) > MOST_SKEW_SECONDS:
        what = f"The clock of this machine is {abs(skew):.0f} seconds {'ahead' if skew > 0 else 'behind'}."
        yield warning("clock.skew", what, "Switch on time synchronisation: timedatectl set-ntp true")


async def _window(loaded: Loaded, chosen: ChosenModel) -> int:
    """In tokens, as the endpoint names it, else as configured."""
    from gateway.agent.models.chat_completions import OpenAIModel
    from gateway.agent.models.endpoint import model_settings

    model = OpenAIModel(model_settings(loaded.config, chosen))
    try:
        await model.learn_window()
        return model.window()
    finally:
        await model.aclose()


async def _models_of(chosen: ChosenModel) -> tuple[int, frozenset[str], datetime | None]:
    """Returns the status, the models that the endpoint lists, and its time. Raises OSError or TimeoutError."""
    import aiohttp

    headers = {"Authorization": f"Bearer {chosen.api_key}"} if chosen.api_key else {}
    limit = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    async with (
        aiohttp.ClientSession(headers=headers, timeout=limit) as http,
        http.get(f"{chosen.base_url.rstrip('/')}/models") as answer,
    ):
        date = answer.headers.get("Date")
        listed: Any = await answer.json(content_type=None) if answer.status == 200 else {}
        rows: Any = cast(dict[str, Any], listed).get("data") if isinstance(listed, dict) else None
        names = frozenset(str(row.get("id")) for row in cast(list[dict[str, Any]], rows or []))
        return answer.status, names, parsedate_to_datetime(date) if date else None


async def platforms(target: CheckTarget) -> AsyncIterator[Diagnosis]:
    """Asks each enabled platform who the bot is, and checks that somebody may talk to it."""
    if target.loaded is None:
        return
    for name in target.loaded.config.platforms.in_use():
        async for finding in _platform(target, target.loaded, name):
            yield finding


async def _platform(target: CheckTarget, loaded: Loaded, name: str) -> AsyncIterator[Diagnosis]:
    title, section = manifest(name).title, loaded.config.platforms.in_use()[name]
    try:
        adapter = build(name, section, webhook_url=f"{loaded.config.api.public_url}/webhooks/{name}")
    except Unavailable as error:
        yield problem(f"{name}.not_installed", f"{title} cannot be used.", str(error))
        return
    works = False
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await adapter.check()
        works = True
        if not section.require_mention and not adapter.hears_everything():
            what = f"{title} gives the bot only mentions and replies in groups, though require_mention is false."
            yield warning(
                f"{name}.privacy_mode", what, "BotFather: /setprivacy → Disable; then add the bot to the group anew"
            )
    except Unauthorized as error:
        yield problem(f"{name}.unauthorized", f"{title}: {error}", f"hermes setup {name}")
    except (TryLater, TimeoutError) as error:
        yield problem(f"{name}.unreachable", f"{title}: {error}", "Check the network; messages wait meanwhile.")
    except DeliveryError as error:
        yield problem(f"{name}.setup", f"{title}: {error}", f"docs/platforms/{name}.md")
    finally:
        await adapter.close()
    if works and (trouble := _trouble_of_gateway(target, name)):
        # A token that is good now may have been refused when the gateway connected, and some things only a connection shows.
        yield problem(
            f"{name}.not_connected", f"{title}, says the running gateway: {trouble}", f"docs/platforms/{name}.md"
        )
    if manifest(name).is_called(section):
        if not loaded.config.api.public_url:
            what = f"{title} cannot call this gateway: api.public_url is empty."
            yield problem(f"{name}.webhook", what, "hermes config set api.public_url https://…")
        elif target.is_running and (why := await why_unreachable(webhook_url(loaded, name))):
            what = f"{title} would not reach this gateway at {webhook_url(loaded, name)}: {why}."
            yield problem(f"{name}.webhook", what, "Look at the proxy in front of it: docs/how-to/behind-a-proxy.md")
    paired = target.database.read_now(people.everybody) if target.database is not None else []
    if not section.allowed_users and not any(person.platform == name for person in paired):
        yield warning(
            f"{name}.nobody",
            f"{title}: nobody may talk to the bot yet.",
            f"hermes setup {name}   shows a code; or   hermes pair approve CODE",
        )


def _trouble_of_gateway(target: CheckTarget, name: str) -> str:
    """Returns why the running gateway is not connected to the platform; empty: it is, or is about to be, or none runs."""
    rows = target.database.read_now(workers.everyone) if target.database is not None else []
    parts = [row.report.get("parts", {}).get(name, {}) for row in rows if row.state_at(target.now) is WorkerState.READY]
    states = {part.get("state", ""): part.get("words", "") for part in parts}
    if not states or states.keys() & {"connected", "starting", ""}:
        return ""
    return next((words for state, words in states.items() if state != "standby"), "")


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
