// Peers that work with PostgreSQL. Rows of the area `durable` start it:
//
//   node main.js PEER WORKLOAD URL TASKS PERMITS
//
// does a workload once, with an empty database, and prints three numbers: the tasks that were done, the seconds that this took, and
// the seconds of CPU time. A worker runs at most PERMITS tasks at a time.

import { makeWorkerUtils, run, runMigrations, Logger } from "graphile-worker";
import pg from "pg";
import PgBoss from "pg-boss";

// Those who store tasks at once, and the connections that they share.
const SPAWNERS = 64;
const CONNECTIONS = 10;

const NAME = "job";

// About a hundred bytes, as with the others.
const payload = (number) => ({ number, text: String(number).padStart(80, "0") });

const silent = new Logger(() => () => {});

// graphile-worker. With `batches`, its workers take jobs from a queue in memory, and report several ends at once.
const graphile = (batches) => ({
  async open(connectionString) {
    await runMigrations({ connectionString, logger: silent });
    const pool = new pg.Pool({ connectionString, max: CONNECTIONS });
    const utils = await makeWorkerUtils({ pgPool: pool, logger: silent });
    return { connectionString, pool, utils };
  },

  store: ({ utils }, number) => utils.addJob(NAME, payload(number)),

  storeAll: ({ pool }, tasks) =>
    pool.query(
      `SELECT count(graphile_worker.add_job('${NAME}',
         json_build_object('number', number, 'text', lpad(number::text, 80, '0'))))
       FROM generate_series(0, $1::int - 1) AS number`,
      [tasks],
    ),

  async drain({ connectionString }, tasks, permits) {
    let ran = 0;
    const ended = withResolvers();
    const tuned = batches ? { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {};
    const runner = await run({
      preset: {
        worker: {
          connectionString,
          concurrentJobs: permits,
          maxPoolSize: Math.min(permits + 2, 80),
          logger: silent,
          ...tuned,
        },
      },
      taskList: {
        [NAME]: async () => {
          ran += 1;
          if (ran === tasks) ended.resolve();
        },
      },
    });
    await ended.promise;
    // This waits until the ends are stored.
    await runner.stop();
  },

  left: async ({ pool }) => {
    const { rows } = await pool.query("SELECT count(*)::int AS left FROM graphile_worker._private_jobs");
    return rows[0].left;
  },
});

// pg-boss. A worker of it asks every half second, so jobs are taken and ended by the calls that a worker makes.
const boss = {
  async open(connectionString) {
    const boss = new PgBoss({ connectionString, max: CONNECTIONS, supervise: false, schedule: false });
    await boss.start();
    await boss.createQueue(NAME);
    return { boss };
  },

  store: ({ boss }, number) => boss.send(NAME, payload(number)),

  async storeAll({ boss }, tasks) {
    for (let first = 0; first < tasks; first += 1_000) {
      const length = Math.min(1_000, tasks - first);
      await boss.insert(Array.from({ length }, (_, index) => ({ name: NAME, data: payload(first + index) })));
    }
  },

  async drain({ boss }, tasks, permits) {
    for (let ran = 0; ran < tasks; ) {
      const jobs = await boss.fetch(NAME, { batchSize: permits });
      ran += jobs.length;
      const ids = jobs.map((job) => job.id);
      if (ids.length > 0) await boss.complete(NAME, ids);
    }
  },

  left: ({ boss }) => boss.getQueueSize(NAME),
};

function withResolvers() {
  const ended = {};
  ended.promise = new Promise((resolve) => (ended.resolve = resolve));
  return ended;
}

const peers = { "graphile-worker": graphile(false), "graphile-batches": graphile(true), "pg-boss": boss };

const workloads = {
  async drain(peer, opened, tasks, permits) {
    await peer.storeAll(opened, tasks);
    const meter = startMeter();
    await peer.drain(opened, tasks, permits);
    meter.stop(tasks);
    const left = await peer.left(opened);
    if (left !== 0) throw new Error(`${left} jobs are left`);
  },

  async "spawn-64"(peer, opened, tasks) {
    const share = Math.ceil(tasks / SPAWNERS);
    const meter = startMeter();
    const spawner = async (first) => {
      for (let number = first; number < first + share; number += 1) {
        await peer.store(opened, number);
      }
    };
    await Promise.all(Array.from({ length: SPAWNERS }, (_, index) => spawner(index * share)));
    meter.stop(share * SPAWNERS);
  },
};

function startMeter() {
  const [begin, cpu] = [process.hrtime.bigint(), process.cpuUsage()];
  return {
    stop(tasks) {
      const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
      const { user, system } = process.cpuUsage(cpu);
      console.log(`${tasks} ${seconds} ${(user + system) / 1e6}`);
    },
  };
}

const [name, workload, url, tasks, permits] = process.argv.slice(2);
const peer = peers[name];
await workloads[workload](peer, await peer.open(url), Number(tasks), Number(permits));
process.exit(0);
