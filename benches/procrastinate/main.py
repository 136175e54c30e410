"""Procrastinate, a peer of the area `durable` that works with PostgreSQL.

`main.py WORKLOAD URL TASKS PERMITS` does a workload once, with an empty database, and prints three numbers: the tasks that were done, the
seconds that this took, and the seconds of CPU time. A worker runs at most PERMITS tasks at a time.
"""

import asyncio
import logging
import sys
import time

import procrastinate

# Those who store tasks at once, and the connections that they share.
SPAWNERS = 64
CONNECTIONS = 10

logging.disable(logging.CRITICAL)

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=sys.argv[2], max_size=CONNECTIONS))


@app.task(name="job")
async def job(number, text):
    pass


def payload(number):
    """About a hundred bytes, as with the others."""
    return {"number": number, "text": f"{number:080}"}


async def drain(tasks, permits):
    for first in range(0, tasks, 1_000):
        chunk = range(first, min(first + 1_000, tasks))
        await job.batch_defer_async(*(payload(number) for number in chunk))
    meter = start_meter()
    await app.run_worker_async(concurrency=permits, wait=False, listen_notify=False, install_signal_handlers=False)
    report(meter, tasks)
    left = await app.connector.execute_query_one_async(
        "SELECT count(*) AS left FROM procrastinate_jobs WHERE status <> 'succeeded'"
    )
    if left["left"]:
        raise RuntimeError(f"{left} jobs are left")


async def spawn(tasks, _):
    share = -(-tasks // SPAWNERS)

    async def spawner(first):
        for number in range(first, first + share):
            await job.defer_async(**payload(number))

    meter = start_meter()
    await asyncio.gather(*(spawner(first * share) for first in range(SPAWNERS)))
    report(meter, share * SPAWNERS)


def start_meter():
    return time.perf_counter(), time.process_time()


def report(meter, tasks):
    print(tasks, time.perf_counter() - meter[0], time.process_time() - meter[1], flush=True)


async def main():
    workload, _, tasks, permits = sys.argv[1:]
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await {"drain": drain, "spawn-64": spawn}[workload](int(tasks), int(permits))


asyncio.run(main())
