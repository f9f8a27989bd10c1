"""Endpoints for deployments and their threads: create, list, change, delete."""

import asyncio
import shutil
from typing import Any

from sqlalchemy import Connection

from gateway.api.http.callers import Scope
from gateway.api.http.endpoint import ApiCall, EndpointAnswer, NoFields, endpoint
from gateway.api.http.errors import ApiError, not_found
from gateway.api.http.idempotency import IDEMPOTENCY_HEADERS, run_once
from gateway.api.threads.schemas import (
    ChangedThread,
    DeploymentChange,
    DeploymentList,
    DeploymentRow,
    MessageRow,
    NewDeployment,
    NewThread,
    NewThreadRow,
    Page,
    ThreadChange,
    ThreadList,
    ThreadRow,
    WholeThread,
)
from sessions import audit, deployments, runs, store
from sessions.deployments import MAIN, Deployment
from sessions.erase import erase
from sessions.errors import NotFound


async def deployment_of(call: ApiCall[Any, Any]) -> Deployment:
    """Returns the deployment in the address. Raises ApiError when it does not exist or this key may not see it."""
    return await deployment_named(call, call.path["deployment_id"])


async def deployment_named(call: ApiCall[Any, Any], wanted: str) -> Deployment:
    """Returns the deployment of this id. Raises ApiError when it does not exist or this key may not see it."""
    try:
        found = await (_main(call) if wanted == MAIN else call.server.app.database.read(deployments.get, wanted))
    except NotFound:
        raise not_found("deployment") from None
    if not call.key.sees(found.id, found.created_by):
        raise not_found("deployment")
    return found


@endpoint(
    "POST",
    "/v1/deployments",
    "A new agent",
    tag="Deployments",
    scopes=(Scope.ADMIN,),
    responses={201: DeploymentRow},
    refusals=(413, 422),
    headers=IDEMPOTENCY_HEADERS,
)
async def create_deployment(call: ApiCall[NewDeployment, NoFields]) -> EndpointAnswer:
    def create(conn: Connection, now: int) -> str:
        made = deployments.create(conn, now, created_by=call.key.name, **call.body.model_dump())
        audit.record(conn, now, call.key.account, "deployment.created", made.id)
        return made.id

    made = await call.server.app.database.read(deployments.get, await run_once(call, create))
    return EndpointAnswer(status=201, body=DeploymentRow.of(made))


@endpoint(
    "GET",
    "/v1/deployments",
    "The agents that this key sees",
    tag="Deployments",
    scopes=(Scope.READ, Scope.ADMIN),
    responses={200: DeploymentList},
)
async def list_deployments(call: ApiCall[NoFields, Page]) -> EndpointAnswer:
    app, page = call.server.app, call.query
    if Scope.ADMIN in call.key.scopes or MAIN in call.key.deployments:
        await _main(call)
    everything = Scope.ADMIN in call.key.scopes
    found = await app.database.read(
        deployments.listing,
        seen_by=None if everything else call.key.name,
        among=sorted(call.key.deployments),
        limit=page.limit + 1,
        after=page.after,
    )
    shown = found[: page.limit]
    more = f"{shown[-1].created_at}.{shown[-1].id}" if len(found) > page.limit else None
    return EndpointAnswer(body=DeploymentList(data=[DeploymentRow.of(each) for each in shown], next_cursor=more))


async def _main(call: ApiCall[Any, Any]) -> Deployment:
    """Returns the deployment of the configured agent. Its row is made when it is first asked for; a read finds it from then on."""
    app = call.server.app
    try:
        return await app.database.read(deployments.get, MAIN)
    except NotFound:
        return await app.database.write(deployments.ensure_main, app.clock())


@endpoint(
    "GET",
    "/v1/deployments/{deployment_id}",
    "One agent",
    tag="Deployments",
    scopes=tuple(Scope),
    responses={200: DeploymentRow},
)
async def get_deployment(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    return EndpointAnswer(body=DeploymentRow.of(await deployment_of(call)))


@endpoint(
    "PATCH",
    "/v1/deployments/{deployment_id}",
    "Change it",
    tag="Deployments",
    scopes=(Scope.ADMIN,),
    responses={200: DeploymentRow},
    refusals=(409, 413),
)
async def change_deployment(call: ApiCall[DeploymentChange, NoFields]) -> EndpointAnswer:
    found = await deployment_of(call)
    _not_main(found)
    # null takes a field away, but not the name.
    values = {
        name: value for name, value in call.body.model_dump(exclude_unset=True).items() if name != "name" or value
    }
    app = call.server.app

    def change(conn: Connection) -> Deployment:
        audit.record(conn, app.clock(), call.key.account, "deployment.changed", found.id, ", ".join(sorted(values)))
        return deployments.change(conn, found.id, values)

    changed = await app.database.write(change)
    return EndpointAnswer(body=DeploymentRow.of(changed))


@endpoint(
    "DELETE",
    "/v1/deployments/{deployment_id}",
    "Delete it with everything it knows",
    tag="Deployments",
    scopes=(Scope.ADMIN,),
    responses={204: None},
    refusals=(409,),
)
async def delete_deployment(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    found = await deployment_of(call)
    _not_main(found)
    app = call.server.app
    for thread_id in await app.database.read(deployments.thread_ids, found.id):
        await _erase_thread(call, found, thread_id)

    def remove(conn: Connection) -> None:
        deployments.remove(conn, found.id)
        audit.record(conn, app.clock(), call.key.account, "deployment.deleted", found.id)

    await app.database.write(remove)
    if app.files is not None:
        await app.files.forget(f"agent:{found.agent}")
    folder = app.workspace(f"agent:{found.agent}")
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return EndpointAnswer(status=204)


def _not_main(found: Deployment) -> None:
    if found.id == MAIN:
        raise ApiError(409, f"{MAIN} is agents.main of the configuration. Change it there.", code="configured")


# --- threads ------------------------------------------------------------------------------------------------------------------


@endpoint(
    "POST",
    "/v1/deployments/{deployment_id}/threads",
    "A new thread",
    tag="Threads",
    scopes=(Scope.CHAT,),
    responses={201: NewThreadRow},
    refusals=(413, 422),
    headers=IDEMPOTENCY_HEADERS,
)
async def create_thread(call: ApiCall[NewThread, NoFields]) -> EndpointAnswer:
    found = await deployment_of(call)

    def open_thread(conn: Connection, now: int) -> str:
        return deployments.open_thread(conn, found, now, title=call.body.title)

    made = await call.server.app.database.read(deployments.thread, found.id, await run_once(call, open_thread))
    return EndpointAnswer(status=201, body=NewThreadRow.of(made, found.id))


@endpoint(
    "GET",
    "/v1/deployments/{deployment_id}/threads",
    "Its threads",
    tag="Threads",
    scopes=(Scope.READ,),
    responses={200: ThreadList},
)
async def list_threads(call: ApiCall[NoFields, Page]) -> EndpointAnswer:
    found, page = await deployment_of(call), call.query
    rows = await call.server.app.database.read(deployments.threads, found.id, limit=page.limit + 1, after=page.after)
    shown = rows[: page.limit]
    more = f"{shown[-1].created_at}.{shown[-1].id}" if len(rows) > page.limit else None
    return EndpointAnswer(body=ThreadList(data=[ThreadRow.of(row) for row in shown], next_cursor=more))


@endpoint(
    "GET",
    "/v1/deployments/{deployment_id}/threads/{thread_id}",
    "One thread and what was said",
    tag="Threads",
    scopes=(Scope.CHAT, Scope.READ),
    responses={200: WholeThread},
)
async def get_thread(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    found, thread_id = await deployment_of(call), call.path["thread_id"]

    def whole(conn: Connection) -> WholeThread:
        thread = deployments.thread(conn, found.id, thread_id)
        turns = deployments.turns(conn, deployments.sessions_of(conn, found.id, thread_id))
        return WholeThread.with_facts(thread, found.id, messages=[MessageRow.of(turn) for turn in turns])

    return EndpointAnswer(body=await call.server.app.database.read(whole))


@endpoint(
    "PATCH",
    "/v1/deployments/{deployment_id}/threads/{thread_id}",
    "Give it a title",
    tag="Threads",
    scopes=(Scope.CHAT,),
    responses={200: ChangedThread},
    refusals=(413,),
)
async def rename_thread(call: ApiCall[ThreadChange, NoFields]) -> EndpointAnswer:
    found, thread_id = await deployment_of(call), call.path["thread_id"]

    def rename(conn: Connection) -> ChangedThread:
        deployments.thread(conn, found.id, thread_id)
        for part in deployments.sessions_of(conn, found.id, thread_id):
            store.rename(conn, part.id, call.body.title)
        return ChangedThread.with_facts(deployments.thread(conn, found.id, thread_id), found.id)

    return EndpointAnswer(body=await call.server.app.database.write(rename))


@endpoint(
    "DELETE",
    "/v1/deployments/{deployment_id}/threads/{thread_id}",
    "Delete it",
    tag="Threads",
    scopes=(Scope.ADMIN,),
    responses={204: None},
    refusals=(409,),
)
async def delete_thread(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    found = await deployment_of(call)
    if call.path["thread_id"] == found.default_thread:
        said = "This is the deployment's default thread, where messages without a thread_id go. Delete the deployment, or leave it."
        raise ApiError(409, said, code="default_thread")
    await _erase_thread(call, found, call.path["thread_id"])
    return EndpointAnswer(status=204)


async def _erase_thread(call: ApiCall[Any, Any], found: Deployment, thread_id: str) -> None:
    """Stops the work on the thread, then deletes every word of it."""
    app = call.server.app

    def stop(conn: Connection) -> list[str]:
        parts = deployments.sessions_of(conn, found.id, thread_id)
        if not parts:
            raise NotFound(f"There is no thread {thread_id}.")
        active = runs.active(conn, parts[0].session_key)
        if active is not None:
            runs.stop(conn, active.id, app.clock())
        return [part.id for part in parts]

    parts = await app.database.write(stop)  # a transaction of its own: a session that is worked on is not deleted
    await asyncio.to_thread(erase, app.home, app.database, parts, by=call.key.account, now=app.clock())
