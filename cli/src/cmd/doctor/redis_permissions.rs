//! Asks a Redis server which commands its user may send.

use redis::aio::MultiplexedConnection;

use super::Diagnosis;
use super::redis_server::ask;

/// The commands that the clients and the scripts of a store need, one per line. `KEY` is a key of the store. The channels are
/// not checked here: without them, workers poll, and `writes.rs` detects that.
const COMMANDS: &str = include_str!("commands.txt");

/// The command with which a client follows a slot that moves to another node of a cluster. Without `CLUSTER SLOTS`, no store is opened.
const CLUSTER_COMMAND: &str = "ASKING";

/// The number of refused commands in a finding.
const MAX_NAMES: usize = 5;

/// Returns the commands that the user may not send.
pub(super) async fn examine(
    connection: &mut MultiplexedConnection,
    namespace: &str,
    is_cluster: bool,
) -> Option<Diagnosis> {
    let user: String = ask(connection, redis::cmd("ACL").arg("WHOAMI")).await?;
    let mut refused = Vec::new();
    for command in COMMANDS
        .lines()
        .chain(is_cluster.then_some(CLUSTER_COMMAND))
    {
        let mut dry_run = redis::cmd("ACL");
        dry_run
            .arg("DRYRUN")
            .arg(&user)
            .arg(words(command, namespace));
        // A server before 7.0 does not answer, and neither does one whose user may not ask.
        let answer: String = ask(connection, &dry_run).await?;
        if answer != "OK" {
            refused.push(name_of(command));
        }
    }
    finding(&user, &refused)
}

fn words(command: &str, namespace: &str) -> Vec<String> {
    let key = format!("throng:{{{namespace}:0}}:meta");
    let word = |word: &str| match word {
        "KEY" => key.clone(),
        word => word.to_owned(),
    };
    command.split(' ').map(word).collect()
}

fn name_of(command: &str) -> &str {
    command.split(' ').next().unwrap_or(command)
}

fn finding(user: &str, refused: &[&str]) -> Option<Diagnosis> {
    let names = refused.get(..MAX_NAMES).unwrap_or(refused).join(", ");
    let more = match refused.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more commands"),
    };
    (!refused.is_empty()).then(|| {
        Diagnosis::warn(
            "redis.permissions",
            format!("the user {user} may not send {names}{more}, so it can at most observe the store"),
            "workers need these commands: see the section \"Permissions\" of the documentation of `RedisStore`",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// A script that uses another command must have it checked.
    #[test]
    fn each_command_of_the_scripts_is_checked() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/durable/store/redis/lua");
        let call = regex::Regex::new(r"\bp?call\((?:call, )?'?([A-Z]+)\b").unwrap();
        let checked: BTreeSet<_> = COMMANDS.lines().map(name_of).collect();
        let mut used = BTreeSet::new();
        for file in fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|it| it == "lua") {
                let script = fs::read_to_string(path).unwrap();
                let names = call.captures_iter(&script).map(|it| it[1].to_owned());
                used.extend(names);
            }
        }
        assert!(used.len() > 40, "{used:?}");
        // Its name is a constant, since on a cluster it is another command. `writes.rs` checks the channels.
        assert!(used.remove("PUBLISH"), "{used:?}");
        let missing: Vec<_> = used
            .iter()
            .filter(|it| !checked.contains(it.as_str()))
            .collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn a_long_list_of_refused_commands_is_cut() {
        assert_eq!(finding("ada", &[]), None);
        let refused = ["A", "B", "C", "D", "E", "F", "G"];
        let what = |number: usize| finding("ada", &refused[..number]).unwrap().what;
        assert!(
            what(5).contains("may not send A, B, C, D, E, so"),
            "{}",
            what(5)
        );
        assert!(
            what(7).contains("D, E and 2 more commands, so"),
            "{}",
            what(7)
        );
    }
}
