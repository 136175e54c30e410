//! The program with `--store`, in Redis: what becomes of it when the server ends, and of two states in one
//! server.

use super::redis_server::Server;
use super::runs::{State, assert_independent, ended, files};

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

#[test]
fn two_states_in_one_server_are_two() {
    needs_redis!();
    let server = Server::start();
    assert_independent([(); 2].map(|()| State::with(Some(server.url()))));
}
