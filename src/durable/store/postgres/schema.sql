-- The tables of a store in PostgreSQL. The schema can have another name: the store replaces `throng.` in each statement.
--
-- All times are in milliseconds. A name that a user chooses is stored as `text.rs` says, since a text cannot contain a zero byte.

-- The row about the whole store. Only transactions that hold the lock of the store exclusively change it.
CREATE TABLE throng.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    layout bigint NOT NULL,
    -- The store time that was last recorded, and the time since 1970 at which it was recorded: see `meta.rs`.
    aged bigint NOT NULL CHECK (aged BETWEEN 0 AND 1000000000000000),
    aged_at bigint NOT NULL,
    -- The time of the last pass of maintenance that left nothing to do, by the same clock.
    passed bigint,
    -- True as soon as a task with another priority than the normal one was stored.
    uses_priorities boolean NOT NULL DEFAULT false,
    -- The limits of what is kept of ended tasks: see `Limits`.
    dead_for bigint NOT NULL,
    dead_most bigint NOT NULL,
    kept_most bigint NOT NULL,
    dead_since bigint NOT NULL
);

CREATE SEQUENCE throng.session_id;
CREATE SEQUENCE throng.epoch;
-- The places of waiting tasks: new ones go behind all others, and those that were given back before all others.
CREATE SEQUENCE throng.back MINVALUE 1;
CREATE SEQUENCE throng.front INCREMENT -1 MAXVALUE -1;
CREATE SEQUENCE throng.turn;

-- The numbers of tasks by state, and the totals. Each process adds to a row of its own, so no two wait for one another. A number may be
-- negative: only the sums over all rows have a meaning.
CREATE TABLE throng.total (
    endpoint bigint PRIMARY KEY,
    waiting bigint NOT NULL,
    delayed bigint NOT NULL,
    running bigint NOT NULL,
    results bigint NOT NULL,
    dead bigint NOT NULL,
    stored bigint NOT NULL,
    claimed bigint NOT NULL,
    done bigint NOT NULL,
    retried bigint NOT NULL,
    snoozed bigint NOT NULL,
    died bigint NOT NULL,
    released bigint NOT NULL,
    crashed bigint NOT NULL,
    lost bigint NOT NULL,
    cancelled bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE throng.session (
    id bigint PRIMARY KEY,
    -- The process, which receives the notifications of its channel.
    endpoint bigint NOT NULL,
    -- The newest layout that its process knows, and the id of that process in its system.
    layout bigint NOT NULL,
    process bigint NOT NULL,
    -- The types of the tasks that it claims, in a queue. A session without them claims nothing.
    types bigint[],
    queue text COLLATE "C",
    -- The number of its last request, the claim of its last turn, and the first task of its last enqueue.
    number bigint NOT NULL DEFAULT 0,
    claim bigint,
    first uuid,
    -- The number of its last enqueue that had conflicts, and the answer to it.
    answer bytea,
    opened bigint NOT NULL,
    -- The time of its last request or renewal, which is recorded now and then. A session that is silent for long is removed.
    seen bigint NOT NULL,
    -- The description of its worker: see `WorkerCard`.
    card bytea
) WITH (fillfactor = 70);
CREATE INDEX session_endpoint ON throng.session (endpoint);
CREATE INDEX session_card ON throng.session (id) WHERE card IS NOT NULL;

-- The processes that receive notifications: each holds the lock of its number.
CREATE VIEW throng.listener AS
    SELECT (classid::bigint << 32) | objid::bigint AS endpoint FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND database = (
        SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database());

-- The tasks that were claimed together, as far as they are still held.
CREATE TABLE throng.claim (
    epoch bigint PRIMARY KEY,
    session bigint NOT NULL,
    until bigint NOT NULL,
    lease bigint NOT NULL,
    -- 0; 1 if the lease has expired; 2 if the session has made a request since, so its worker lives and does not have the claim.
    suspect smallint NOT NULL DEFAULT 0,
    -- True if the claim is known to have arrived.
    delivered boolean NOT NULL DEFAULT false,
    -- True if one of the tasks is to be cancelled.
    cancels boolean NOT NULL DEFAULT false,
    queue text COLLATE "C",
    claimed_at bigint NOT NULL,
    held uuid[] NOT NULL CHECK (array_position(held, NULL) IS NULL)
) WITH (fillfactor = 70);
-- The largest claim fits into a page, and is written with each turn.
ALTER TABLE throng.claim ALTER COLUMN held SET STORAGE MAIN;
CREATE INDEX claim_session ON throng.claim (session);
CREATE INDEX claim_until ON throng.claim (until);
CREATE INDEX claim_queue ON throng.claim (queue) WHERE queue IS NOT NULL;

-- The waiting tasks, in the order in which they are to run. The group is empty for tasks without one. Rows are never updated.
CREATE TABLE throng.ready (
    kind bigint NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (kind, group_name, place)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

CREATE TABLE throng.task (
    id uuid PRIMARY KEY,
    -- 0: waits or runs; 1: delayed; 3: done; 4: dead; 5: cancelled. An active task waits if it has a row in `ready`; otherwise a claim
    -- holds it. A claim does not change the row of the task.
    state smallint NOT NULL CHECK (state IN (0, 1, 3, 4, 5)),
    place bigint,
    -- Of a delayed task: when it is due. Of a dead letter: when it died. Of another ended task: the end of its retention. The last two
    -- are in store time.
    at bigint,
    -- When it became ready to run, or is due.
    ready_at bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    kind bigint NOT NULL,
    failures integer NOT NULL DEFAULT 0,
    failing_since bigint,
    crashes integer NOT NULL DEFAULT 0,
    lost integer NOT NULL DEFAULT 0,
    cancel boolean NOT NULL DEFAULT false,
    max_crashes bigint NOT NULL,
    retention bigint NOT NULL,
    -- `NULL` for the default queue.
    queue text COLLATE "C",
    group_name text COLLATE "C",
    priority smallint NOT NULL,
    -- The key. If the task holds it only until a worker claims the task, it was stored at `key_since`, and the claim sets both to `NULL`.
    -- If the key has a window, that ends at `key_until`.
    key bytea,
    key_since bigint,
    key_until bigint,
    parent uuid,
    payload bytea,
    output bytea,
    error text,
    reason smallint,
    -- The duration of the last run.
    took bigint
) WITH (fillfactor = 70);
CREATE INDEX task_at ON throng.task (state, at, id) WHERE at IS NOT NULL;
CREATE INDEX task_key ON throng.task (key) WHERE key IS NOT NULL AND state < 2;
CREATE INDEX task_window ON throng.task (key, key_until) WHERE key IS NOT NULL AND key_until IS NOT NULL;

-- The tasks with the column `now`: as `state`, but 2 for a task that runs.
--
-- Here and in other statements, `OFFSET 0` says that the server is to look up one row. Otherwise, some versions read the whole table into a
-- hash table for it.
CREATE VIEW throng.task_now AS
    SELECT task.*, CASE
        WHEN state = 0 AND NOT EXISTS (
            SELECT 1 FROM throng.ready
            WHERE ready.kind = task.kind AND ready.group_name = coalesce(task.group_name, '')
                AND ready.place = task.place AND ready.id = task.id OFFSET 0
        ) THEN 2::smallint ELSE state
    END AS now FROM throng.task;

-- The errors of attempts after which the task was tried again.
CREATE TABLE throng.error (
    id uuid NOT NULL,
    attempt integer NOT NULL,
    at bigint NOT NULL,
    error text NOT NULL,
    took bigint,
    PRIMARY KEY (id, attempt)
);

-- The last progress that a run of a task has reported: the epoch of the run, the number of the report, and the progress.
CREATE TABLE throng.progress (
    id uuid PRIMARY KEY,
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    bytes bytea NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX progress_epoch ON throng.progress (epoch);

-- The steps of tasks, which never change. Their numbers rise in the order in which the steps of a task were stored.
CREATE TABLE throng.step (
    id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    at bigint NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (id, name)
);

-- A row for each task that has steps or waits for some: their number and size, the number that makes the delayed task due, and a
-- description of the steps that it waits for.
CREATE TABLE throng.workflow (
    id uuid PRIMARY KEY,
    steps integer NOT NULL,
    bytes bigint NOT NULL,
    until integer,
    waits_for text
) WITH (fillfactor = 70);

-- The queues that have limits, are paused, or have claimed tasks while tasks have priorities. The times are in microseconds. The name of
-- the default queue is empty.
CREATE TABLE throng.queue (
    name text COLLATE "C" PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    max_running bigint,
    interval bigint,
    burst bigint,
    group_max bigint,
    quantum bigint NOT NULL DEFAULT 1,
    revision bigint NOT NULL DEFAULT 0,
    used_until bigint NOT NULL DEFAULT 0,
    since_normal bigint NOT NULL DEFAULT 0,
    since_low bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- The lines of groups: a row for each kind and group of which tasks wait. All lines of a group with one priority have the same turn, which
-- is `NULL` while none of its tasks may start. Among the groups of a queue and a priority, the one with the lowest turn is served next.
CREATE TABLE throng.group_line (
    kind bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    turn bigint,
    PRIMARY KEY (kind, name)
);
CREATE INDEX group_line_turn ON throng.group_line (kind, turn, name) WHERE turn IS NOT NULL;
CREATE INDEX group_line_group ON throng.group_line (queue, name);

-- The running tasks that have a group.
CREATE TABLE throng.group_run (
    id uuid PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL
);
CREATE INDEX group_run_name ON throng.group_run (queue, name);

-- The groups that are held until a time since 1970.
CREATE TABLE throng.group_hold (
    queue text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (queue, name)
);
CREATE INDEX group_hold_until ON throng.group_hold (queue, until);

-- The paused types.
CREATE TABLE throng.paused (name text COLLATE "C" PRIMARY KEY);

-- The schedules: see `ScheduleRow`. A schedule is handed out at `hand_out`, which is `NULL` if `time` is.
CREATE TABLE throng.schedule (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    needs smallint NOT NULL,
    time bigint,
    hand_out bigint,
    started bigint NOT NULL,
    skipped bigint NOT NULL,
    last_task uuid,
    body bytea NOT NULL
);
CREATE INDEX schedule_hand_out ON throng.schedule (needs, hand_out) WHERE hand_out IS NOT NULL;

-- The statistics of runs: see `store/stats.rs`. A bucket is a minute or, if `hours`, an hour since 1970. The name is empty in the row of all
-- other types.
CREATE TABLE throng.stat (
    hours boolean NOT NULL,
    bucket bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    started bigint NOT NULL,
    done bigint NOT NULL,
    retried bigint NOT NULL,
    died bigint NOT NULL,
    cancelled bigint NOT NULL,
    micros bigint NOT NULL,
    PRIMARY KEY (hours, bucket, name, queue)
);

-- The number and the time of the last report of each process.
CREATE TABLE throng.stat_report (
    reporter bigint PRIMARY KEY,
    number bigint NOT NULL,
    at bigint NOT NULL
);
CREATE INDEX stat_report_at ON throng.stat_report (at);

-- The tasks that transactions of users store: see `outbox.rs`. Other programs write only to this table, so its columns never change.
CREATE TABLE throng.outbox (
    id bytea PRIMARY KEY,
    body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- The idle sessions, which wait to be woken. Their kinds are those of the tasks that they claim. A crash of the server empties this table
-- and the next one: sessions also check from time to time, and so do those who await tasks.
CREATE UNLOGGED TABLE throng.park (
    session bigint PRIMARY KEY,
    endpoint bigint NOT NULL,
    kinds bigint[] NOT NULL
);

-- The processes that await the ends of tasks.
CREATE UNLOGGED TABLE throng.watch (
    id uuid NOT NULL,
    endpoint bigint NOT NULL,
    PRIMARY KEY (id, endpoint)
);
