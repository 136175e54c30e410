//! Whose jobs a thread is inside of, and what it is left with after them.
//!
//! Executors have no names, so two of the same name are not taken for one another; and nothing of a
//! thread is exchanged while it runs a job: what is its own, a job sees and leaves as it was.

use std::thread;

use throng::SerialExecutor;

use throng::serial::OnPanic;

use crate::occupied::occupy;

use crate::support::{join, ready};

#[test]
fn clones_are_one_executor_and_a_thread_outside_is_inside_of_none() {
    let executor = SerialExecutor::new(());
    let clones = [executor.clone(), executor.clone()];
    assert!(clones.iter().all(|clone| !clone.is_current()));
    let inside = executor.submit({
        let clones = clones.clone();
        move |()| {
            let here = clones.iter().all(SerialExecutor::is_current);
            let elsewhere = thread::scope(|scope| {
                let looks = scope.spawn(|| clones.iter().any(SerialExecutor::is_current));
                looks.join().unwrap()
            });
            (here, elsewhere)
        }
    });
    assert_eq!(ready(inside).unwrap(), (true, false));
    assert!(clones.iter().all(|clone| !clone.is_current()));
}

#[test]
fn after_a_job_its_thread_is_what_it_was() {
    tokio::task_local! {
        static WHOSE: &'static str;
    }
    let whose = |_: &mut ()| WHOSE.try_with(|whose| *whose).unwrap_or("nobody's");
    let executor = SerialExecutor::builder()
        .on_panic(OnPanic::Continue)
        .build(())
        .unwrap();
    let inner = SerialExecutor::new(());
    WHOSE.sync_scope("the caller's", || {
        assert_eq!(ready(executor.submit(whose)).unwrap(), "the caller's");
        let (again, other) = (executor.clone(), inner.clone());
        let nested = executor.submit(move |_| {
            let told = other.submit(move |state| WHOSE.sync_scope("a job's", || whose(state)));
            (ready(told).unwrap(), again.is_current(), other.is_current())
        });
        // Inside the outer one still, and not inside the inner one any more.
        assert_eq!(ready(nested).unwrap(), ("a job's", true, false));
        let panics = executor.submit(|()| -> () { WHOSE.sync_scope("a job's", || panic!()) });
        assert!(ready(panics).unwrap_err().is_panic());
        assert_eq!(WHOSE.get(), "the caller's");
        assert!(!executor.is_current() && !inner.is_current());
    });

    // On another thread, that thread's: the submitter's do not go with a job that is queued.
    let busy = occupy(&executor);
    let queued = WHOSE.sync_scope("the caller's", || executor.submit(whose));
    busy.release();
    assert_eq!(join(queued).unwrap(), "nobody's");
}
