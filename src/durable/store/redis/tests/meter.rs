//! [`Meter`]: measures the run times of scripts.

use std::path::PathBuf;
use std::time::Duration;

use redis::{Connection, Value};

use super::server::Server;

/// The maximum time of a script. The server is blocked meanwhile.
pub(super) const LIMIT: Duration = Duration::from_millis(10);

/// Does what the scripts do, always the same: small commands, large values, and Lua.
const REFERENCE: &str = r"
local key, large = 'throng:{reference:0}:', string.rep('x', 65536)
for n = 1, 500 do
  redis.call('HSET', key .. 'rows', n, key .. n)
  redis.call('RPUSH', key .. 'list', n)
  redis.call('HMGET', key .. 'rows', n, n - 1)
end
for n = 1, 8 do
  redis.call('HSET', key .. 'large', n, large .. n)
  large = redis.call('HGET', key .. 'large', n)
end
redis.call('DEL', key .. 'rows', key .. 'list', key .. 'large')
return large";

/// The time of the reference on the machine for which the limits are set, while nothing else runs there.
const REFERENCE_TIME: Duration = Duration::from_millis(7);

/// Plays a deterministic scene, which returns the times of its scripts, repeatedly until none of them was too long. The time of a script
/// is the minimum of all runs, since other processes may have delayed it.
pub(super) async fn in_scripts_of(limit: Duration, play: impl AsyncFn() -> Vec<Duration>) {
    let mut least: Vec<Duration> = Vec::new();
    for _ in 0..8 {
        let taken = play().await;
        least.resize(taken.len().max(least.len()), Duration::MAX);
        for (least, taken) in least.iter_mut().zip(taken) {
            *least = taken.min(*least);
        }
        let longest = least.iter().max();
        println!("the longest script: {longest:?}");
        if longest.is_some_and(|longest| *longest <= limit) {
            return;
        }
    }
    panic!("a script takes {:?}", least.iter().max());
}

/// Measures scripts, one after the other.
pub(super) struct Meter {
    server: Connection,
    /// The file in which the system reports the run time of the server's thread.
    ran: PathBuf,
    /// The time of each script.
    pub(super) taken: Vec<Duration>,
}

impl Meter {
    pub(super) fn new(server: &Server) -> Self {
        // If permitted, the server gets priority over other processes.
        server.hurry();
        let client = redis::Client::open(server.url()).unwrap();
        let id = server.process().as_raw_pid();
        let mut meter = Self {
            server: client.get_connection().unwrap(),
            ran: format!("/proc/{id}/task/{id}/schedstat").into(),
            taken: Vec::new(),
        };
        let () = meter.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "500"]);
        let () = meter.ask(&["SLOWLOG", "RESET"]);
        meter
    }

    /// Measures a script. Its time is at most that in the server's log, and at most the run time of the server's
    /// thread, since the log also counts the time of other processes on a slow machine.
    ///
    /// A long time is divided by how much longer the reference takes right afterwards than it should: caches and cores
    /// that other processes use make every script slower.
    pub(super) async fn measure<T>(&mut self, script: impl Future<Output = T>) -> T {
        let before = self.ran();
        let answer = script.await;
        let mut taken = self.taken_since(before);
        if taken > LIMIT / 2 {
            let before = self.ran();
            let _: Value = self.ask(&["EVAL", REFERENCE, "0"]);
            let slowness = self.taken_since(before).div_duration_f64(REFERENCE_TIME);
            taken = taken.div_f64(slowness.max(1.0));
        }
        self.taken.push(taken);
        answer
    }

    /// Returns the time of the script that has run since then.
    fn taken_since(&mut self, before: Option<Duration>) -> Duration {
        let logged = self.logged();
        let ran = self.ran().zip(before).map(|(after, before)| after - before);
        logged.min(ran.unwrap_or(Duration::MAX))
    }

    /// Returns the longest script that the server has logged since the last call.
    fn logged(&mut self) -> Duration {
        let entries: Vec<Vec<Value>> = self.ask(&["SLOWLOG", "GET", "128"]);
        let scripts = entries.iter().filter(|entry| is_script(&entry[3]));
        let micros = scripts.filter_map(|entry| match entry[2] {
            Value::Int(micros) => u64::try_from(micros).ok(),
            _ => None,
        });
        let longest = Duration::from_micros(micros.max().unwrap_or_default());
        let () = self.ask(&["SLOWLOG", "RESET"]);
        longest
    }

    /// Returns the run time of the server, if the system reports it.
    fn ran(&self) -> Option<Duration> {
        let text = std::fs::read_to_string(&self.ran).ok()?;
        let nanos = text.split_whitespace().next()?.parse();
        nanos.ok().map(Duration::from_nanos)
    }

    fn ask<T: redis::FromRedisValue>(&mut self, command: &[&str]) -> T {
        let mut asked = redis::Cmd::new();
        command.iter().for_each(|part| _ = asked.arg(*part));
        asked.query(&mut self.server).expect("the server answers")
    }
}

fn is_script(command: &Value) -> bool {
    match command {
        Value::Array(words) => {
            matches!(&words[0], Value::BulkString(name) if name.starts_with(b"EVAL"))
        }
        _ => false,
    }
}
