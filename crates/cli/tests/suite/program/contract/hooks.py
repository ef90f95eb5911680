"""Adds to Schemathesis what the OpenAPI document cannot express: a token, existing tasks, rules between two fields.

Only requests that should succeed are changed. Requests that should fail are sent as generated.
"""

import json
import os
import urllib.request
import uuid
from datetime import datetime

import schemathesis
from hypothesis import strategies as st

TOKEN = os.environ["LONGHAUL_TOKEN"]
FILTERS = {"status", "taskType", "queue", "taskKey", "parentTaskId", "userId"}
FILTERS |= {"createdAfter", "createdBefore", "dueAfter", "dueBefore"}
# Names are bounded in bytes, and the document counts characters.
NAMES = ("taskKey", "tier", "correlationId", "userId")
NAME_CHARACTERS = 50
RESERVED_QUEUES = ("enterprise_exclusive", "vip_short", "vip_long")

# Durations in the short form (`5m`) and in ISO 8601.
schemathesis.openapi.format("time-span", st.sampled_from(["30s", "PT30S", "1h 30m", "PT1H30M", "250ms"]))
# The range of times that every store supports.
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 30))
schemathesis.openapi.format("date-time", MOMENTS.map(lambda moment: moment.isoformat() + "Z"))

tasks = []


@schemathesis.auth()
class Token:
    def get(self, case, context):
        return TOKEN

    def set(self, case, data, context):
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {data}"}


def submit(base, body):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base}/api/tasks", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["taskId"]


def existing_tasks(case):
    """Ended and waiting tasks, created at the first call."""
    if not tasks:
        base = case.operation.base_url.rstrip("/")
        for number in range(3):
            tasks.append(submit(base, {"taskType": "sample.echo", "parameters": number}))
            tasks.append(submit(base, {"taskType": "sample.fail", "parameters": {"kind": "fatal"}}))
            tasks.append(submit(base, {"taskType": "sample.echo", "delay": "1d"}))
    return tasks


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    set_task_id(case)
    correct_query(case)
    correct_headers(case)
    correct_body(case)


def set_task_id(case):
    given = case.path_parameters or {}
    if "{id}" in case.path and "tasks" in case.path and "id" in given:
        known = existing_tasks(case)
        # A request names the same task in every run. Some name a task that does not exist.
        index = uuid.UUID(str(given["id"])).int % (len(known) + 1)
        if index < len(known):
            given["id"] = known[index]


def correct_query(case):
    query = case.query
    if query is None:
        return
    # A cursor is opaque: only one from an answer is valid.
    query.pop("cursor", None)
    # The start must precede the end, and the interval is bounded.
    if "from" in query:
        query |= {"from": "2026-03-01T00:00:00Z", "to": "2026-03-02T00:00:00Z"}
    for name in NAMES:
        if isinstance(query.get(name), str):
            query[name] = query[name][:NAME_CHARACTERS]
    if "/bulk/" in case.path and not FILTERS & query.keys():
        query["status"] = "QUEUED"


def correct_headers(case):
    # A key that was used with another body is refused. Generated keys are short and repeat.
    for name in list(case.headers or {}):
        if name.lower() == "idempotency-key":
            case.headers[name] = str(uuid.uuid4())


def correct_body(case):
    body = case.body
    if not isinstance(body, dict):
        return
    for one in body.get("tasks", []) if "tasks" in body else [body]:
        if not isinstance(one, dict):
            continue
        if "taskType" in one:
            one["taskType"] = "sample.echo"
        # A caller may name neither another tier nor a queue that is reserved for one.
        if one.get("tier") is not None:
            one["tier"] = "free"
        if one.get("queue") in RESERVED_QUEUES:
            one["queue"] = "free_default"
        if one.get("runAt") is not None:
            one.pop("delay", None)
        for name in NAMES:
            if isinstance(one.get(name), str):
                one[name] = one[name][:NAME_CHARACTERS]
    is_change = case.method == "PATCH" or case.path.endswith("/reschedule")
    if is_change and all(value is None for value in body.values()):
        body["priority"] = 3
