//! The program with `--store`: what becomes of it when the server ends, and of two states in one
//! server.

use super::redis_server::Server;
use super::runs::{State, ended, files, hits};

/// It has written everything that it has answered: what was done before it was killed is not done
/// again.
#[test]
fn a_server_that_is_killed_and_comes_back_costs_nothing_that_was_done() {
    needs_redis!();
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let state = State::with(Some(server.url()));
    let (program, errors) = state.start(30);
    server.kill();
    server.run();
    state.assert_whole(&ended(program, errors), 0);
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    needs_redis!();
    let corpus = files(1);
    let mut server = Server::start();
    let state = State::with(Some(server.url()));
    server.kill();
    state.fails(corpus.path(), "the store is not available");
    server.run();
    assert_eq!(state.run(corpus.path()).code, Some(0));
}

/// As two machines have that know nothing of each other. If one ran a batch of the other's, the other
/// would have no segment of it.
#[test]
fn two_states_in_one_server_are_two() {
    needs_redis!();
    let server = Server::start();
    let states = [(); 2].map(|()| State::with(Some(server.url())));
    let corpora = [files(300), files(400)];
    let mut runs = Vec::new();
    for (state, corpus) in states.iter().zip(&corpora) {
        let args = ["--query", super::runs::QUERY];
        let child = state.command(corpus.path()).args(args).spawn();
        runs.push(child.expect("the program starts"));
    }
    for ((run, state), corpus) in runs.into_iter().zip(&states).zip(&corpora) {
        let output = run.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), hits(corpus.path()));
        let again = state.run(corpus.path());
        assert_eq!(again.indexed(), 0);
        assert_eq!(again.ledger("stored"), again.batches());
    }
}
