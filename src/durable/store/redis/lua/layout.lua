-- The layout of stored rows: byte positions, counted from 1 as `string.sub` counts them. Numbers in rows are big-endian.
--
-- No script contains this file. `names.rs` reads it, and puts the numbers into the scripts in place of the names, since
-- a Lua variable would cost each run of a script time. The module `layout` in `entry.rs` has the same positions in Rust,
-- and a test compares the two.

-- An entry, which is a row of `ready`, `ready:<list>` and `delayed`: id 16, client id of the producer 8, retention 6,
-- maximum number of crashes 2, failures 4, crashes 2, losses 2, time at which it became ready 6, kind 8, flags 1, length of
-- the payload 4, extension if the flags say so, payload if the flags say that it is here, name. The extension: its length,
-- without these bytes, 2; flags 1: 1 in a named queue, 2 with a key, 4 with a group, 8 with a parent. In a named queue: priority 1, length
-- of its name 1, name. With a group: length of its name 1, name. With a parent: its id 16. With a key: key 16, mode 1: 16 times the
-- priority, plus 1 if the task holds the key only until it is claimed.
ENTRY_ID_END = 16
ENTRY_CLIENT = 17
ENTRY_CLIENT_END = 24
ENTRY_RETENTION = 25
ENTRY_RETENTION_END = 30
ENTRY_MAX_CRASHES = 31
ENTRY_FAILURES = 33
ENTRY_CRASHES = 37
ENTRY_READY_AT = 41
ENTRY_KIND = 47
ENTRY_KIND_END = 54
ENTRY_FLAGS = 55
ENTRY_LENGTH = 56
ENTRY_PAYLOAD = 60
ENTRY_EXTENSION = 62
ENTRY_QUEUE_LENGTH = 64
ENTRY_QUEUE = 65

-- A row of `running`: epoch of the claim 16, entry. Verdicts read the entry in place, without copying it.
RUNNING_EPOCH_END = 16
RUNNING_ENTRY = 17
RUNNING_CLIENT = 33
RUNNING_CLIENT_END = 40
RUNNING_RETENTION = 41
RUNNING_RETENTION_END = 46
RUNNING_KIND = 63
RUNNING_KIND_END = 70
RUNNING_FLAGS = 71
RUNNING_PAYLOAD = 76
RUNNING_EXTENSION = 78

-- A row of `alive`: client id of the producer 8, retention 6, kind 8; if the task has a key, a group or a parent: key 16, or zeros;
-- name of the group, or nothing; if the task has a parent: byte 255, id of the parent 16.
ALIVE_CLIENT_END = 8
ALIVE_RETENTION = 9
ALIVE_RETENTION_END = 14
ALIVE_KIND = 15
ALIVE_KIND_END = 22
ALIVE_KEY = 23
ALIVE_KEY_END = 38

-- A row of `held_keys`: id 16. If the task has a window, or holds the key only until it is claimed: end of the window 6 (0: none). If it
-- holds the key only until it is claimed: time at which it was stored 6, copy of its entry.
HELD_ID_END = 16
HELD_UNTIL = 17
HELD_UNTIL_END = 22
HELD_SINCE = 23
HELD_SINCE_END = 28
HELD_ENTRY = 29

-- The owner of a claim, the field `<epoch>o` of `claims`: client id 8, lease in milliseconds 6, time of the claim 6, session in decimal
-- digits.
OWNER_CLIENT_END = 8
OWNER_LEASE = 9
OWNER_CLAIMED_AT = 15
OWNER_SESSION = 21

-- A row of `dead`: reason 1, duration of the last run in milliseconds, or NO_RUN_TIME, 4, length of the error 4, error, entry.
DEAD_TOOK = 2
DEAD_ERROR_LENGTH = 6
DEAD_ERROR = 10

-- A row of `results`: expiry in store time 6, store time of the end 6, state: `c` and the name if the task was cancelled, or `d` and the
-- output.
RESULT_ENDED_AT = 7
RESULT_STATE = 13

-- The field s<set> of `routes`: see `set_lists.lua`.
PLAN_QUEUE_LENGTH = 9
PLAN_QUEUE = 10

-- A row of `schedules`: version 8, bit of the builds that compute its ticks 1, time at which it is handed out (0 while it is
-- paused) 6, number of started tasks 6, number of skipped tasks 6, id of the last task (zeros if there is none) 16, and the body,
-- which scripts do not read: see `schedule/body.rs`.
SCHEDULE_VERSION_END = 8
SCHEDULE_NEEDS = 9
SCHEDULE_TIME = 10
SCHEDULE_STARTED = 16
SCHEDULE_LAST_TASK = 28
SCHEDULE_BODY = 44

-- A row of `progress`: epoch of the run 16, number of the report 6, the progress.
PROGRESS_EPOCH_END = 16
PROGRESS_NUMBER = 17
PROGRESS_NUMBER_END = 22

-- A row of `steps:<id>`: number of the step 4, time at which it was stored 6, value.
STEP_TIME = 5
STEP_VALUE = 11

-- The value of a step that records a replay: nonce of the first request 8, nonce of the last one 8, name of the step from which the task
-- was replayed.
REPLAY_NONCE_END = 18
REPLAY_LAST_NONCE = 19
REPLAY_LAST_NONCE_END = 26
REPLAY_STEP = 27

-- The settings of a queue in `queues`: see `queues.lua`.
SETTINGS_REVISION = 16
SETTINGS_GROUPS = 20
SETTINGS_END = 27

-- A row of `types`: time at which a client recorded the type 6, length of the name of the queue 1, name of the queue, name of the type.
TYPE_QUEUE_LENGTH = 7
TYPE_QUEUE = 8

-- A field of `tombstones`, and some members of `unlisted`: id 16, kind 8, name of the group, or nothing. These determine the list or the
-- sublist.
TOMBSTONE_KIND = 17
TOMBSTONE_KIND_END = 24
