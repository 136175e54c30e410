//! Models of the handle: blocking on it, and aborting it from elsewhere.

use loom::thread;

use super::JoinHandle;
use crate::task::{Task, Thunk};

#[test]
fn loom_blocking_join_against_run() {
    loom::model(|| {
        let (task, join_ref) = Task::<()>::joinable(Thunk(|| 7));
        let runner = thread::spawn(move || task.run(&mut ()));
        assert_eq!(JoinHandle::waiting(join_ref).blocking_join().unwrap(), 7);
        runner.join().unwrap();
    });
}

/// A late abort, through a handle that outlives the task and its `JoinHandle`, does nothing.
#[test]
fn loom_a_late_abort() {
    loom::model(|| {
        let (task, join_ref) = Task::<()>::joinable(Thunk(|| 7));
        let handle = JoinHandle::waiting(join_ref);
        let abort = handle.abort_handle();
        let runner = thread::spawn(move || task.run(&mut ()));
        let joined = thread::spawn(move || handle.blocking_join());
        let outcome = joined.join().unwrap();
        abort.abort();
        assert!(abort.is_finished());
        assert_eq!(outcome.unwrap(), 7);
        runner.join().unwrap();
    });
}
