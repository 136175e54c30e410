//! The engine on a store that loses requests and answers.

use std::collections::HashMap;
use std::sync::Arc as StdArc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use self::faulty::{Faulty, Held, lost};
use crate::durable::store::{Answer, Event, TaskState};
use crate::durable::{
    DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, SpawnOptions, TaskContext,
    TaskError, TaskId,
};
use crate::retry::Retry;
use crate::sync::{Mutex, lock};

mod faulty;
mod lost_answers_tests;
mod replays_tests;
mod resend_tests;
mod schedules_tests;
mod spawn_queue_tests;
mod steps_tests;
mod verdicts_tests;
mod waiters_tests;

#[derive(Serialize, Deserialize)]
struct Number(u64);

impl DurableTask for Number {
    const NAME: &'static str = "number";
    type Output = u64;
}

/// The number of times that each has succeeded.
type Runs = Mutex<HashMap<u64, u32>>;
