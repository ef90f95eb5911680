"""What the OpenAPI document cannot say, for Schemathesis: a token, tasks that exist, and rules between two fields.

Only requests that are meant to be good are changed. Those that are meant to be bad go out as they were made.
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
KEPT_QUEUES = ("enterprise_exclusive", "vip_short", "vip_long")

# Durations as people and as ISO 8601 write them.
schemathesis.openapi.format("time-span", st.sampled_from(["30s", "PT30S", "1h 30m", "PT1H30M", "250ms"]))
# The years of the stores.
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
    """Some that have ended, some that wait: made when they are first needed."""
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
    name_a_task(case)
    mend_query(case)
    mend_headers(case)
    mend_body(case)


def name_a_task(case):
    given = case.path_parameters or {}
    if "{id}" in case.path and "tasks" in case.path and "id" in given:
        known = existing_tasks(case)
        # The same request is about the same task in every run, and now and then about one that is not there.
        place = uuid.UUID(str(given["id"])).int % (len(known) + 1)
        if place < len(known):
            given["id"] = known[place]


def mend_query(case):
    query = case.query
    if query is None:
        return
    # What a page gave is opaque.
    query.pop("cursor", None)
    # A span has its start before its end, and not too long before.
    if "from" in query:
        query |= {"from": "2026-03-01T00:00:00Z", "to": "2026-03-02T00:00:00Z"}
    for name in NAMES:
        if isinstance(query.get(name), str):
            query[name] = query[name][:NAME_CHARACTERS]
    if "/bulk/" in case.path and not FILTERS & query.keys():
        query["status"] = "QUEUED"


def mend_headers(case):
    # A key that was used with another body is refused, and short ones come again.
    for name in list(case.headers or {}):
        if name.lower() == "idempotency-key":
            case.headers[name] = str(uuid.uuid4())


def mend_body(case):
    body = case.body
    if not isinstance(body, dict):
        return
    for one in body.get("tasks", []) if "tasks" in body else [body]:
        if not isinstance(one, dict):
            continue
        if "taskType" in one:
            one["taskType"] = "sample.echo"
        # Another tier is not the caller's to say, nor a queue that is kept for one: nodes tell the names of all.
        if one.get("tier") is not None:
            one["tier"] = "free"
        if one.get("queue") in KEPT_QUEUES:
            one["queue"] = "free_default"
        if one.get("runAt") is not None:
            one.pop("delay", None)
        for name in NAMES:
            if isinstance(one.get(name), str):
                one[name] = one[name][:NAME_CHARACTERS]
    is_change = case.method == "PATCH" or case.path.endswith("/reschedule")
    if is_change and all(value is None for value in body.values()):
        body["priority"] = 3
