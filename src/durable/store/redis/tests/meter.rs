//! How long the scripts of a server take.

use std::path::PathBuf;
use std::time::Duration;

use redis::{Connection, Value};

use super::server::Server;

/// No script may take longer: meanwhile, the server does nothing else.
pub(super) const LIMIT: Duration = Duration::from_millis(10);

/// Measures scripts, one after the other.
pub(super) struct Meter {
    server: Connection,
    /// Where the system says for how long the server's thread has run.
    ran: PathBuf,
    /// How long each script has taken.
    pub(super) taken: Vec<Duration>,
}

impl Meter {
    pub(super) fn new(server: &Server) -> Self {
        // Where it is allowed, the server comes before all else on a machine that has much to do.
        server.hurry();
        let client = redis::Client::open(server.url()).unwrap();
        let id = server.process().as_raw_pid();
        let mut meter = Self {
            server: client.get_connection().unwrap(),
            ran: format!("/proc/{id}/task/{id}/schedstat").into(),
            taken: Vec::new(),
        };
        let () = meter.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "500"]);
        meter
    }

    /// Measures a script. It has taken no longer than the server's log says, and no longer than the
    /// server has run: on a machine that has much else to do, the log alone says little.
    pub(super) async fn measure<T>(&mut self, script: impl Future<Output = T>) -> T {
        let before = self.ran();
        let answer = script.await;
        let logged = self.logged();
        let ran = self.ran().zip(before).map(|(after, before)| after - before);
        let taken = logged.min(ran.unwrap_or(Duration::MAX));
        self.taken.push(taken);
        answer
    }

    /// The longest script that the server has logged since the last look.
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

    /// For how long the server has run; unknown where the system does not say so.
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
