// A producer and a worker of BullMQ. Rows of the area `durable` start it:
//
//   node main.js store URL JOBS          stores JOBS, which is JSON, and ends
//   node main.js produce URL JOBS        says "ready", stores JOBS when there is a line in its input, and says "stored";
//                                        when its input ends, it says when it was about to store which job
//   node main.js work URL CONCURRENCY    says "ready", and runs jobs from the first line of its input until that ends;
//                                        then it says when which job has begun
//
// Connections, workers and jobs have the defaults of BullMQ, except for the concurrency.

import { setTimeout as sleep } from "node:timers/promises";

import { Queue, Worker } from "bullmq";

const QUEUE = "q";

// Jobs that are stored with one call, and calls that store a single job at the same time.
const CHUNK = 1_000;
const CALLS = 50;

// About a hundred bytes, as with the others.
const payload = (number) => ({ number, text: String(number).padStart(80, "0") });

// The time at which a job becomes due, or a schedule fires first, in milliseconds since 1970.
const dueOf = ({ first_ms, spread_ms, tasks }, number) => first_ms + Math.floor((number * spread_ms) / tasks);

// When which job was about to be stored, or has begun.
const times = [];

const store = {
  async plain(queue, { tasks }) {
    const job = (number) => ({ name: "job", data: payload(number) });
    await eachOf(tasks, CHUNK, (numbers) => queue.addBulk(numbers.map(job)));
  },

  async single(queue, { tasks }) {
    for (let number = 0; number < tasks; number += 1) {
      await queue.add("job", payload(number));
    }
  },

  async paced(queue, { tasks, pause_ms }) {
    for (let number = 0; number < tasks; number += 1) {
      await sleep(pause_ms);
      times.push([number, process.hrtime.bigint()]);
      await queue.add("job", payload(number));
    }
  },

  async delayed(queue, jobs) {
    await eachOf(jobs.tasks, CALLS, (numbers) =>
      Promise.all(
        numbers.map((number) => queue.add("job", payload(number), { delay: dueOf(jobs, number) - Date.now() })),
      ),
    );
  },

  async prioritized(queue, { tasks }) {
    const job = (number) => ({ name: "job", data: payload(number), opts: { priority: 1 + (number % 3) } });
    await eachOf(tasks, CHUNK, (numbers) => queue.addBulk(numbers.map(job)));
  },

  async limited(queue, { tasks, limit }) {
    await queue.setGlobalConcurrency(limit);
    const job = (number) => ({ name: "job", data: payload(number) });
    await eachOf(tasks, CHUNK, (numbers) => queue.addBulk(numbers.map(job)));
  },

  async scheduled(queue, jobs) {
    const upsert = (number) =>
      queue.upsertJobScheduler(
        `schedule-${number}`,
        { every: 1_000, startDate: dueOf(jobs, number) },
        { name: "job", data: payload(number) },
      );
    await eachOf(jobs.tasks, CALLS, (numbers) => Promise.all(numbers.map(upsert)));
  },
};

// Calls `work` with groups of the numbers below `end`, one group after another.
async function eachOf(end, size, work) {
  for (let first = 0; first < end; first += size) {
    await work(Array.from({ length: Math.min(size, end - first) }, (_, index) => first + index));
  }
}

async function runStore(connection, order) {
  const queue = new Queue(QUEUE, { connection });
  const jobs = JSON.parse(order);
  await store[jobs.kind](queue, jobs);
  await queue.close();
}

async function runProduce(connection, order) {
  const queue = new Queue(QUEUE, { connection });
  await queue.waitUntilReady();
  const jobs = JSON.parse(order);
  process.stdin.once("data", async () => {
    await store[jobs.kind](queue, jobs).catch(fail);
    console.log("stored");
  });
  process.stdin.on("end", async () => {
    await queue.close();
    printTimes();
  });
  console.log("ready");
}

// The number of a job. A job of a schedule is known by its tick, with which BullMQ ends its id.
const numberOf = (job) => (job.repeatJobKey ? job.id.slice(job.id.lastIndexOf(":") + 1) : job.data.number);

async function runWorker(connection, concurrency) {
  const handler = async (job) => {
    times.push([numberOf(job), process.hrtime.bigint()]);
  };
  const options = { connection, concurrency: Number(concurrency), autorun: false };
  const worker = new Worker(QUEUE, handler, options);
  worker.on("error", fail);
  worker.on("failed", (_, error) => fail(error));
  await worker.waitUntilReady();
  process.stdin.once("data", () => worker.run().catch(fail));
  process.stdin.on("end", async () => {
    await worker.close();
    printTimes();
  });
  console.log("ready");
}

function printTimes() {
  process.stdout.write(times.map(([number, at]) => `${number} ${at}\n`).join(""));
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

const [role, url, argument] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);
const run = { store: runStore, produce: runProduce, work: runWorker }[role];
await run({ host, port: Number(port) }, argument);
