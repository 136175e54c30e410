//! What a job sees of the thread that runs it, and what it leaves behind.

use std::thread;

use throng::SerialExecutor;

use crate::occupied::occupy;

use crate::support::{join, ready};

#[test]
fn is_current_is_the_same_for_all_clones_and_false_on_other_threads() {
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
fn a_job_sees_the_task_locals_of_its_thread_and_leaves_them_unchanged() {
    tokio::task_local! {
        static WHOSE: &'static str;
    }
    let whose = |_: &mut ()| WHOSE.try_with(|whose| *whose).unwrap_or("none");
    let executor = SerialExecutor::builder()
        .poison_on_panic(false)
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
        // The inner job has ended, and the outer one has not.
        assert_eq!(ready(nested).unwrap(), ("a job's", true, false));
        let panics = executor.submit(|()| -> () { WHOSE.sync_scope("a job's", || panic!()) });
        assert!(ready(panics).unwrap_err().is_panic());
        assert_eq!(WHOSE.get(), "the caller's");
        assert!(!executor.is_current() && !inner.is_current());
    });

    // On another thread it sees those of that thread, not those of its submitter.
    let busy = occupy(&executor);
    let queued = WHOSE.sync_scope("the caller's", || executor.submit(whose));
    busy.release();
    assert_eq!(join(queued).unwrap(), "none");
}
