//! The classification of errors, in the words of each version of the server.

use redis::parse_redis_value;

use super::super::error::{Fault, fault};
use super::*;

/// Classifies an answer.
fn read(answer: &str) -> Fault {
    let answer = parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
    fault(answer.extract_error().expect_err("it is an error"))
}

#[derive(Debug, PartialEq)]
enum Then {
    SendWhole,
    Wait,
    Reconnect,
    /// Ask the node with this address.
    Elsewhere(String, bool),
    Fail,
}

#[track_caller]
fn check(answer: &str, then: &Then, cause: &Cause, effect: Effect) {
    let fault = read(answer);
    let found = match &fault {
        Fault::NoScript => Then::SendWhole,
        Fault::Wait(_) => Then::Wait,
        Fault::Broken(_) => Then::Reconnect,
        Fault::Elsewhere(to, _) => Then::Elsewhere(to.address.clone(), to.is_asking),
        Fault::Final(_) => Then::Fail,
    };
    let failure = fault.into_failure();
    assert_eq!(
        (&found, &failure.cause, failure.effect),
        (then, cause, effect),
        "{answer}"
    );
}

#[test]
fn a_request_waits_for_a_server_that_is_not_ready() {
    for answer in [
        "LOADING Redis is loading the dataset in memory",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN Hash slot not served",
        "CLUSTERDOWN The cluster is down",
        "NOREPLICAS Not enough good replicas to write.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. \
         script: 14606b1b, on @user_script:1.",
    ] {
        check(answer, &Then::Wait, &Cause::Unavailable, Effect::None);
    }
    let busy =
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    check(busy, &Then::Wait, &Cause::Busy, Effect::None);
    let forgotten = "NOSCRIPT No matching script. Please use EVAL.";
    check(
        forgotten,
        &Then::SendWhole,
        &Cause::Unavailable,
        Effect::None,
    );
}

#[test]
fn a_connection_to_a_replica_is_closed() {
    let read_only = "READONLY You can't write against a read only replica.";
    check(read_only, &Then::Reconnect, &Cause::ReadOnly, Effect::None);
    let down = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    check(down, &Then::Reconnect, &Cause::Unavailable, Effect::None);
    let unknown = "NOAUTH Authentication required.";
    check(unknown, &Then::Reconnect, &Cause::Denied, Effect::None);
}

#[test]
fn a_cluster_node_names_the_owner_of_a_slot() {
    let ask = "ASK 866 127.0.0.1:7001";
    let there = |is_asking| Then::Elsewhere(String::from("127.0.0.1:7001"), is_asking);
    check(ask, &there(true), &Cause::Unavailable, Effect::None);
    let fault = read("MOVED 866 127.0.0.1:7001");
    let Fault::Elsewhere(to, _) = &fault else {
        panic!("{fault:?}");
    };
    assert_eq!((&*to.address, to.is_asking), ("127.0.0.1:7001", false));
    let failure = fault.into_failure();
    assert_eq!(failure.effect, Effect::None);
    assert!(matches!(failure.cause, Cause::Unfit(_)), "{failure}");
    let text = failure.to_string();
    assert!(
        text.contains("slot 866") && text.contains("127.0.0.1:7001"),
        "{text}"
    );
}

/// Errors in the middle of a script: Redis 7 and Valkey report the position after the error, Redis 6.2 before it.
#[test]
fn an_error_in_a_script_is_recognized_in_every_version() {
    let in_each_version = |what: &str| {
        [
            format!("{what} script: 14606b1b8cac, on @user_script:1."),
            format!("{what} script: on @user_script:1."),
            format!(
                "ERR Error running script (call to f_14606b1b): @user_script:38: @user_script: 38: -{what}"
            ),
            format!("ERR Error running script (call to f_14606b1b): @user_script:1: {what}"),
        ]
    };
    let cases = [
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            Then::Fail,
            Cause::Full,
            Effect::None,
        ),
        (
            "READONLY You can't write against a read only replica.",
            Then::Reconnect,
            Cause::ReadOnly,
            Effect::None,
        ),
        (
            "MISCONF Errors writing to the AOF file: No space left",
            Then::Wait,
            Cause::Unavailable,
            Effect::None,
        ),
        (
            "WRONGTYPE Operation against a key holding",
            Then::Fail,
            Cause::Corrupt,
            Effect::Unknown,
        ),
        (
            "NOPERM this user has no permissions",
            Then::Fail,
            Cause::Denied,
            Effect::Unknown,
        ),
        (
            "ERR The user executing the script can't run this",
            Then::Fail,
            Cause::Denied,
            Effect::Unknown,
        ),
        (
            "ERR user_script:1: attempt to perform arithmetic",
            Then::Fail,
            Cause::Unavailable,
            Effect::Unknown,
        ),
    ];
    for (what, then, cause, effect) in cases {
        for answer in in_each_version(what) {
            check(&answer, &then, &cause, effect);
        }
    }
    let valkey =
        "ERR ACL failure in script: User default has no permissions to run the 'hset' command";
    check(valkey, &Then::Fail, &Cause::Denied, Effect::Unknown);
}

#[test]
fn a_request_refused_by_a_script_had_no_effect() {
    check(
        "NOSESSION it has ended",
        &Then::Fail,
        &Cause::NoSession,
        Effect::None,
    );
    let older = Cause::OlderLayout { found: 1, known: 2 };
    check("LAYOUT 1 2", &Then::Fail, &older, Effect::None);
    let newer = Cause::NewerLayout { found: 7, known: 2 };
    check("LAYOUT 7 2", &Then::Fail, &newer, Effect::None);
    check(
        "LAYOUT 7 2 script: 14606b1b, on @user_script:1.",
        &Then::Fail,
        &newer,
        Effect::None,
    );
}
