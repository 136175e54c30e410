//! Stores whose parts can fail separately: each caller gets the outcome of the parts that have its tasks.

use super::*;

/// Returns a request for the tasks 1 and 2 of two callers.
async fn request_of_two() -> (DurableClient, UnboundedReceiver<Held>, Held, [Spawned; 2]) {
    let (_, client, mut held) = held();
    let first = spawn(&client, 1).await;
    let request = held.recv().await.unwrap();
    let second = spawn(&client, 2).await;
    assert_eq!(request.tasks(), [1, 2]);
    (client, held, request, [first, second])
}

impl Held {
    /// Tells the outcome of the parts of the store that have the tasks at these positions, and answers.
    fn answer_parts<const N: usize>(self, parts: [(&[usize], Option<Failure>); N]) {
        let mut answer = Ok(Enqueued::default());
        for (positions, failure) in parts {
            let stored = failure.map_or(Ok(Vec::new()), Err);
            self.request.batch.end_part(positions, &stored);
            // As far as the store knows, the effect of the whole request is unknown.
            let stored = stored.map_err(|failure| Failure {
                effect: Effect::Unknown,
                ..failure
            });
            answer = answer.and_then(|all| stored.map(|_| all));
        }
        self.answer(answer);
    }

    /// Returns the tasks that are to be sent.
    fn rest(&self) -> Vec<u64> {
        let rest = self.request.batch.rest().into_iter();
        let rest: Vec<_> = rest.map(|(_, task)| task.clone()).collect();
        numbers(&rest)
    }
}

fn ended() -> Failure {
    Failure::new(Effect::None, Cause::NoSession)
}

fn unreachable() -> Failure {
    Failure::new(Effect::None, Cause::Unavailable)
}

fn conflict(position: usize, holder: u64) -> KeyConflict {
    KeyConflict {
        position,
        holder: id(holder),
        resolution: Conflict::Join,
    }
}

// ===== Requests =====

/// The part with the second task loses its first answer.
#[tokio::test]
async fn a_caller_does_not_wait_for_the_parts_of_others() {
    let (_client, mut held, one, [mut first, mut second]) = request_of_two().await;
    one.answer_parts([(&[0], None), (&[1], Some(lost()))]);
    first.stored().await.unwrap();
    let again = held.recv().await.unwrap();
    assert_eq!((again.rest(), again.tasks()), (vec![2], vec![1, 2]));
    assert!(poll!(&mut second.0).is_pending());
    again.answer_parts([(&[1], Some(full()))]);
    let error = second.stored().await.unwrap_err();
    assert!(error.is_full() && error.is_unknown(), "{error}");
}

#[tokio::test]
async fn a_part_that_refuses_its_tasks_is_not_asked_again() {
    let (client, mut held, one, [mut first, mut second]) = request_of_two().await;
    one.answer_parts([(&[0], None), (&[1], Some(full()))]);
    let error = second.stored().await.unwrap_err();
    assert!(error.is_full() && !error.is_unknown(), "{error}");
    first.stored().await.unwrap();
    let _third = spawn(&client, 3).await;
    assert_eq!(held.recv().await.unwrap().tasks(), [3]);
}

#[tokio::test]
async fn a_part_that_refuses_its_tasks_does_not_end_the_attempts_of_others() {
    let (_client, mut held, one, [mut first, mut second]) = request_of_two().await;
    one.answer_parts([(&[0], Some(full())), (&[1], Some(unreachable()))]);
    let again = held.recv().await.unwrap();
    assert_eq!(again.rest(), [2]);
    let error = first.stored().await.unwrap_err();
    assert!(error.is_full() && !error.is_unknown(), "{error}");
    again.answer_parts([(&[1], None)]);
    second.stored().await.unwrap();
}

/// A part does not recognize its tasks under the number of another session, so it would store them again.
#[tokio::test]
async fn only_the_part_that_has_no_session_is_asked_in_another() {
    let (_client, mut held, one, [mut first, mut second]) = request_of_two().await;
    let session = one.request.session;
    one.answer_parts([(&[0], None), (&[1], Some(ended()))]);
    first.stored().await.unwrap();
    let again = held.recv().await.unwrap();
    assert_ne!(again.request.session, session);
    assert_eq!(again.rest(), [2]);
    again.answer_parts([(&[1], None)]);
    second.stored().await.unwrap();
}

#[tokio::test]
async fn a_part_without_a_session_waits_for_those_that_may_have_the_request() {
    let (_client, mut held, one, [mut first, mut second]) = request_of_two().await;
    let session = one.request.session;
    one.answer_parts([(&[0], Some(ended())), (&[1], Some(lost()))]);
    let again = held.recv().await.unwrap();
    assert_eq!((again.rest(), again.request.session), (vec![1, 2], session));
    again.answer_parts([(&[0], Some(ended())), (&[1], None)]);
    second.stored().await.unwrap();
    let elsewhere = held.recv().await.unwrap();
    assert_ne!(elsewhere.request.session, session);
    assert_eq!(elsewhere.rest(), [1]);
    elsewhere.answer_parts([(&[0], None)]);
    first.stored().await.unwrap();
}

// ===== Outcomes =====

#[tokio::test]
async fn a_caller_with_tasks_in_several_parts_gets_one_outcome() {
    let queue = StdArc::new(SpawnQueue::new());
    let mut both = push(&queue, [task(1), task(2)]);
    let batch = next(&queue).await;
    batch.end_part(&[0], &Ok(Vec::new()));
    assert!(both.try_recv().is_err());
    batch.end_part(&[1], &Err(full()));
    let failure = both.await.unwrap().unwrap_err();
    // Some of its tasks are stored.
    assert_eq!(failure.effect, Effect::Unknown);
    assert_eq!(failure.cause, Cause::Full);
    assert!(batch.outcome_of_rest(Err(full())).is_ok());
}

#[tokio::test]
async fn each_caller_gets_the_conflicts_of_its_parts() {
    let queue = StdArc::new(SpawnQueue::new());
    let callers = [0..2, 2..4].map(|numbers| push(&queue, numbers.map(task)));
    let batch = next(&queue).await;
    batch.end_part(&[1, 3], &Ok(vec![conflict(1, 11), conflict(3, 13)]));
    batch.end_part(&[0, 2], &Ok(vec![conflict(0, 10)]));
    let mut answers = Vec::new();
    for stored in callers {
        answers.push(stored.await.unwrap().unwrap().conflicts);
    }
    let first = vec![conflict(0, 10), conflict(1, 11)];
    assert_eq!(answers, [first, vec![conflict(1, 13)]]);
}

/// The request is not sent again.
#[tokio::test]
async fn each_caller_gets_the_last_failure_of_its_own_part() {
    let queue = StdArc::new(SpawnQueue::new());
    let callers = [1, 2, 3, 4].map(|number| one(&queue, number));
    let batch = next(&queue).await;
    let busy = Failure::new(Effect::None, Cause::Busy);
    for (position, failure) in [lost(), busy, ended()].into_iter().enumerate() {
        batch.end_part(&[position], &Err(failure));
    }
    let rest = batch.outcome_of_rest(Err(full())).unwrap_err();
    assert_eq!(
        (rest.effect, rest.cause),
        (Effect::Unknown, Cause::Unavailable)
    );
    // The session could not be replaced. The last part has not answered.
    batch.finish(&Err(full()));
    let mut failures = Vec::new();
    for stored in callers {
        let failure = stored.await.unwrap().unwrap_err();
        failures.push((failure.effect, failure.cause));
    }
    let expected = [
        (Effect::Unknown, Cause::Unavailable),
        (Effect::None, Cause::Busy),
        (Effect::None, Cause::Full),
        (Effect::None, Cause::Full),
    ];
    assert_eq!(failures, expected);
}

/// A part of the store that still answers may store the tasks of the queue.
#[tokio::test(start_paused = true)]
async fn old_requests_do_not_fail_with_a_part() {
    let queue = StdArc::new(SpawnQueue::new());
    let [stored, failed] = [1, 2].map(|number| one(&queue, number));
    let batch = next(&queue).await;
    let mut old = one(&queue, 3);
    advance(2 * STORE_TIMEOUT).await;
    batch.end_part(&[0], &Ok(Vec::new()));
    batch.end_part(&[1], &Err(lost()));
    batch.finish(&Err(lost()));
    stored.await.unwrap().unwrap();
    assert!(failed.await.unwrap().is_err());
    assert!(old.try_recv().is_err());
    assert_eq!(numbers(next(&queue).await.close()), [3]);
}

/// A part of the store answers, but these requests have waited for another part that does not.
#[tokio::test(start_paused = true)]
async fn very_old_requests_fail_with_a_part() {
    let queue = StdArc::new(SpawnQueue::new());
    let _callers = [1, 2].map(|number| one(&queue, number));
    let batch = next(&queue).await;
    let old = one(&queue, 3);
    advance(3 * STORE_TIMEOUT + Duration::from_millis(1)).await;
    let _new = one(&queue, 4);
    batch.end_part(&[0], &Ok(Vec::new()));
    batch.end_part(&[1], &Err(lost()));
    batch.finish(&Err(lost()));
    assert_eq!(old.await.unwrap().unwrap_err().effect, Effect::None);
    assert_eq!(numbers(next(&queue).await.close()), [4]);
}

/// The store panics before it knows the outcome of all parts, and one of them is full when it is asked again.
#[tokio::test]
async fn an_interrupted_attempt_may_have_stored_the_tasks_of_any_part() {
    for has_answered in [false, true] {
        let (_client, mut held, one, [mut first, mut second]) = request_of_two().await;
        if has_answered {
            one.request.batch.end_part(&[0], &Ok(Vec::new()));
        }
        one.answer(Err(lost()));
        let again = held.recv().await.unwrap();
        again.answer_parts([(&[0], None), (&[1], Some(full()))]);
        first.stored().await.unwrap();
        let error = second.stored().await.unwrap_err();
        assert!(error.is_full() && error.is_unknown(), "{error}");
    }
}
