"""The whole interface against its own description: what is described is accepted, what is not is refused, nothing breaks."""

import asyncio
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import load_all_checks
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test

from adapters.base import WebhookReply
from gateway.api.http.endpoint import PARAMETERS
from gateway.api.http.idempotency import IDEMPOTENCY
from gateway.api.http.openapi import describe
from gateway.api.http.server import ENDPOINTS
from gateway.api.http.server_state import ApiLimits, Intervals
from gateway.api.openai.agent_calls import HEADER
from gateway.attachments.safe_fetch import Fetcher
from tests.fakes.model_server import ModelServer
from tests.integration.api.serving import OWNER, Gateway, gateway

ACCEPTED = ["2xx", "404", "409"]
"""What is well-formed may still not fit what is there: no such thread; a run that does not wait."""
REFUSED = ["400", "404", "405", "409", "413", "422"]
CONFIG = SchemathesisConfig.from_dict(
    {
        "seed": 1,
        "generation": {"with-security-parameters": False},  # the right key is always sent
        "checks": {
            "positive_data_acceptance": {"expected-statuses": ACCEPTED},
            "negative_data_rejection": {"expected-statuses": REFUSED},
        },
    }
)
DESCRIPTION = describe(ENDPOINTS, "0")
_numbers = count()
ENDLESS = "/v1/deployments/{deployment_id}/events"


@dataclass
class Served:
    """`there` are ids of what is there."""

    url: str
    there: dict[str, str]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway in a thread of its own."""
    home, started, found = tmp_path_factory.mktemp("home"), threading.Event(), list[Served]()
    loop, done = asyncio.new_event_loop(), asyncio.Event()

    async def main() -> None:
        async with ModelServer(fast="ok") as model, gateway(home, model=model, **FRIENDLY) as gw:
            found.append(Served(gw.url, await something(gw)))
            started.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    assert started.wait(60)
    yield found[0]
    loop.call_soon_threadsafe(done.set)
    thread.join(60)
    loop.close()


async def something(gw: Gateway) -> dict[str, str]:
    _, made, _ = await gw.ask("POST", "/v1/deployments", {"name": "there"})
    path = f"/v1/deployments/{made['deployment_id']}"
    _, sent, _ = await gw.ask("POST", f"{path}/messages", {"content": "hi"})
    async with asyncio.timeout(60):
        while (await gw.ask("GET", f"{path}/runs/{sent['run_id']}"))[1]["status"] != "completed":
            await asyncio.sleep(0.01)
    return {"deployment_id": made["deployment_id"], "thread_id": sent["thread_id"], "run_id": sent["run_id"]}


async def nowhere(host: str) -> list[str]:
    raise OSError(f"{host} is not asked for")


async def signed(_: Mapping[str, str], __: bytes) -> WebhookReply:
    return WebhookReply()


FRIENDLY: dict[str, Any] = {
    "limits": ApiLimits(wrong_keys_at_once=1e9, calls_at_once=1e9),
    "sections": {"limits": {"queue_per_chat": 10**6}},
    "intervals": Intervals(shutdown=0.1, heartbeat=0.01),
    "fetcher": Fetcher(resolve=nowhere),
    "webhooks": {"telegram": signed},
    "handshakes": {"telegram": lambda _: WebhookReply(text="1158201444")},
}


def point_at(there: Mapping[str, str], values: dict[str, Any] | None) -> None:
    """A well-formed id becomes one that is there; a malformed one stays."""
    for name in there.keys() & (values or {}).keys():
        if values and re.fullmatch(PARAMETERS[name], str(values[name])):
            values[name] = there[name]


GOOD_JOB = {
    "schedule": ("0 9 * * 1", 200),
    "timezone": ("Europe/London", 64),
    "deliver": ("local", 400),
    "session_id": ("mine", 512),
}
"""What no schema can say of a text of so many characters."""


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else 0


def make_sense(case: Any) -> None:
    """What no schema can say: a key is for one request, and a session wants something new behind the agent's last words."""
    if re.fullmatch("[!-~]{1,256}", str((case.headers or {}).get(IDEMPOTENCY, ""))):
        case.headers[IDEMPOTENCY] = str(next(_numbers))
    if isinstance(case.body, dict) and case.path.startswith("/api/jobs"):
        well_formed = {
            name: good for name, (good, most) in GOOD_JOB.items() if 0 < _length(case.body.get(name)) <= most
        }
        case.body.update(well_formed)
    if case.headers and not says_something_new(case.body):
        case.headers.pop(HEADER, None)


def says_something_new(body: Any) -> bool:
    turns = body.get("messages", body.get("input")) if isinstance(body, dict) else None
    if not isinstance(turns, list):
        return True
    speakers = [str(speaker(turn)) for turn in turns if isinstance(turn, dict)]
    heard = [each for each in speakers if each not in {"system", "developer", "reasoning"}]
    return bool(heard) and heard[-1] != "assistant"


def speaker(turn: dict[str, Any]) -> Any:
    return {"function_call": "assistant", "reasoning": "reasoning"}.get(str(turn.get("type"))) or turn.get("role")


@cache
def schema() -> Any:
    load_all_checks()
    return schemathesis.openapi.from_dict(DESCRIPTION, config=CONFIG)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def keeps_its_description(case: Any, served: Served) -> None:
    if case.method != "DELETE":
        point_at(served.there, case.path_parameters)
        point_at(served.there, case.query)
    make_sense(case)
    headers = {"Authorization": f"Bearer {OWNER.secret}"}
    case.call_and_validate(base_url=served.url, headers=headers, timeout=0.2 if case.path == ENDLESS else 60)


@pytest.mark.parametrize(
    ("path", "method"), [(path, method) for path, item in DESCRIPTION["paths"].items() for method in item]
)
def test_it_keeps_its_description(path: str, method: str, served: Served) -> None:
    # Built here and not by `schema.parametrize()`, which takes 8 s of computing in every process of pytest that collects it.
    test = build_operation_test(
        config=schema().config,
        operation=schema()[path][method],
        test_func=keeps_its_description,
        given_kwargs={},
        feedback=FeedbackSources(),
    )
    test(served=served)
