//! The program with `--store`, in PostgreSQL: what becomes of it when the server ends, and of two states in one database.

use super::postgres_server::{Server, is_installed};
use super::runs::{State, assert_independent, ended, files};

#[test]
fn postgresql_is_installed() {
    assert!(
        is_installed(),
        "install PostgreSQL to run the tests of its store: on Debian, `apt-get install postgresql`"
    );
}

/// The server has written everything that it has answered: what was done before it was killed is not done again.
#[test]
fn a_server_that_is_killed_and_comes_back_costs_nothing_that_was_done() {
    if is_installed() {
        let server = Server::start();
        let state = State::with(Some(server.address()));
        let (program, errors) = state.start(30);
        server.crash();
        server.restart();
        state.assert_whole(&ended(program, errors), 0);
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    if is_installed() {
        let (corpus, server) = (files(1), Server::start());
        let state = State::with(Some(server.address()));
        server.crash();
        state.fails(corpus.path(), "the store is not available");
        server.restart();
        assert_eq!(state.run(corpus.path()).code, Some(0));
    }
}

#[test]
fn two_states_in_one_database_are_two() {
    if is_installed() {
        let address = Server::shared().address();
        assert_independent([(); 2].map(|()| State::with(Some(address.clone()))));
    }
}
