//! [`SentinelProblems`]: the reasons why no Sentinel has led to a primary.

use std::io;

use redis::RedisError;

use super::address::ServerAddress;
use super::error::{invalid_address, is_denied, not_connected};
use crate::durable::failure::{Cause, Effect, Failure};

/// The reasons why no Sentinel has led to a primary.
pub(super) struct SentinelProblems<'a> {
    /// The Sentinels' name for the server.
    name: &'a str,
    found: Vec<(ServerAddress, Problem)>,
}

/// The reason why a Sentinel has not led to a primary.
#[derive(Debug)]
pub(super) enum Problem {
    /// The Sentinel cannot be reached.
    Unreachable(RedisError),
    /// The Sentinel does not answer in time.
    Silent,
    /// The Sentinel refuses the login or the command.
    Refuses(RedisError),
    /// The Sentinel watches no server with this name.
    UnknownName,
    /// Another Sentinel knows of a later failover.
    OutOfDate,
    /// The Sentinel names this server, which is a replica.
    IsReplica(ServerAddress),
    /// The Sentinel names this server, to which there is no connection.
    NoConnection(ServerAddress, RedisError),
}

impl Problem {
    /// Returns the problem of a request to a Sentinel that has failed.
    pub(super) fn from_sentinel(error: RedisError) -> Self {
        match error.code().is_some() || is_denied(&error) {
            true => Self::Refuses(error),
            false => Self::Unreachable(error),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Unreachable(error) => format!("cannot be reached: {error}"),
            Self::Silent => String::from("does not answer"),
            Self::Refuses(error) => format!("refuses: {error}"),
            Self::UnknownName => String::from("does not know the name"),
            Self::OutOfDate => String::from("does not know of the last failover yet"),
            Self::IsReplica(server) => format!("names {server}, which is a replica"),
            Self::NoConnection(server, error) => format!("names {server}: {error}"),
        }
    }
}

impl<'a> SentinelProblems<'a> {
    pub(super) fn new(name: &'a str) -> Self {
        Self {
            name,
            found: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, sentinel: &ServerAddress, problem: Problem) {
        self.found.push((sentinel.clone(), problem));
    }

    /// Returns `true` if another Sentinel has named this server, and it is no primary or cannot be reached.
    pub(super) fn has_failed(&self, server: &ServerAddress) -> bool {
        self.found.iter().any(|(_, problem)| {
            matches!(problem, Problem::IsReplica(it) | Problem::NoConnection(it, _) if it == server)
        })
    }

    /// Returns `true` if all Sentinels have answered, and all are out of date.
    pub(super) fn are_out_of_date(&self) -> bool {
        let mut problems = self.found.iter().map(|(_, problem)| problem);
        problems.all(|it| matches!(it, Problem::OutOfDate))
    }

    /// Returns the failure of the attempt to connect: the problem of the Sentinel that has come nearest to leading to a primary.
    pub(super) fn into_failure(self) -> Failure {
        let has = |is: fn(&Problem) -> bool| self.found.iter().any(|(_, problem)| is(problem));
        let (name, listed) = (self.name, self.listed());
        if has(|it| matches!(it, Problem::NoConnection(..))) {
            return self.no_connection();
        }
        if has(|it| matches!(it, Problem::IsReplica(_))) {
            return unavailable(format!(
                "the Sentinels name no primary for {name:?}: if no failover is in progress, check their configuration. {listed}"
            ));
        }
        if has(|it| matches!(it, Problem::UnknownName)) {
            return invalid_address(format!(
                "no Sentinel watches a server with the name {name:?}: use the name in their configuration \
                 (`sentinel monitor`). {listed}"
            ));
        }
        if has(|it| matches!(it, Problem::Refuses(error) if is_denied(error))) {
            let text = format!("the Sentinels need the login that `sentinel_login` sets. {listed}");
            return Failure::new(Effect::None, Cause::Denied).with_source(io::Error::other(text));
        }
        unavailable(format!(
            "no Sentinel answers: check that they run, and that these are their addresses. {listed}"
        ))
    }

    /// Returns the failure of the connection to the server that the Sentinels name.
    fn no_connection(self) -> Failure {
        let listed = self.listed();
        let errors = self
            .found
            .into_iter()
            .filter_map(|(_, problem)| match problem {
                Problem::NoConnection(_, error) => Some(not_connected(error)),
                _ => None,
            });
        // For another cause, such as a wrong password, waiting is no remedy.
        let mut others = errors.filter(|it| it.cause != Cause::Unavailable);
        others.next().unwrap_or_else(|| {
            unavailable(format!(
                "the primary cannot be reached: unless it answers again, the Sentinels promote a replica. {listed}"
            ))
        })
    }

    /// Returns what each Sentinel has said.
    fn listed(&self) -> String {
        let found = self.found.iter();
        let found = found.map(|(sentinel, problem)| format!("{sentinel} {}", problem.text()));
        found.collect::<Vec<_>>().join("; ")
    }
}

fn unavailable(text: String) -> Failure {
    Failure::new(Effect::None, Cause::Unavailable).with_source(io::Error::other(text))
}
