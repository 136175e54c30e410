//! Runs that do not succeed: what comes next, and what is kept of the error.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng::Retry;
use throng::durable::{DeadFilter, DeadReason, TaskError};

use crate::harness::{TestStore, builder, spawn, start, start_as};
use crate::ledger::assert_balanced;
use crate::support::within;

on_all_stores! {
    attempts_are_counted,
    a_task_that_fails_too_often_is_a_dead_letter_with_its_last_error,
    one_attempt_is_one,
    a_fatal_error_is_the_last,
    a_snooze_counts_nothing,
    every_kind_of_error_can_be_asked_after,
    a_long_error_is_shortened,
    a_long_error_of_an_attempt_is_shortened,
    runs_of_a_task_have_one_key_and_rising_tokens,
}

async fn attempts_are_counted(store: TestStore) {
    let client = store.client().await;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&attempts);
    let executor = start(&client, move |number, cx| {
        seen.lock().unwrap().push((cx.attempt(), cx.crashes()));
        async move {
            match cx.attempt() {
                3 => Ok(number),
                _ => Err(TaskError::retry("not yet")),
            }
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 7).await).await.unwrap(), 7);
    assert_eq!(*attempts.lock().unwrap(), [(1, 0), (2, 0), (3, 0)]);
    let (counts, metrics) = (client.counts().await.unwrap(), executor.metrics());
    assert_eq!((counts.retried, counts.done), (2, 1));
    assert_eq!(
        (metrics.claimed, metrics.retried, metrics.completed),
        (3, 2, 1)
    );
    assert_balanced(&counts);
}

#[derive(Debug)]
struct Outer(u32, io::Error);

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outer {}", self.0)
    }
}

impl Error for Outer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.1)
    }
}

async fn a_task_that_fails_too_often_is_a_dead_letter_with_its_last_error(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, cx| async move {
        Err(Outer(cx.attempt(), io::Error::other("inner")).into())
    })
    .await;
    let handle = spawn(&client, 1).await;
    let id = handle.id();
    let error = within(handle).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Attempts));
    assert!(error.to_string().contains("outer 3: inner"), "{error}");
    let dead_letters = client.dead_letters().list(DeadFilter::all(), 9).await;
    let [dead_letter] = &dead_letters.unwrap()[..] else {
        panic!("there is one dead letter");
    };
    assert_eq!((dead_letter.id, &*dead_letter.name), (id, "number"));
    assert_eq!(
        (dead_letter.reason, dead_letter.crashes),
        (DeadReason::Attempts, 0)
    );
    assert_eq!(dead_letter.error, "outer 3: inner");
    // "How many of its runs have failed."
    assert_eq!(dead_letter.failures, 3);
}

async fn one_attempt_is_one(store: TestStore) {
    let client = store.client().await;
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let _executor = start_as(
        builder(&client).retry(Retry::exponential().attempts(1)),
        move |number, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match number {
                    0 => Err(TaskError::retry("no")),
                    _ => Err(TaskError::retry_after("no", Duration::ZERO)),
                }
            }
        },
    )
    .await;
    for number in 0..2 {
        let error = within(spawn(&client, number).await).await.unwrap_err();
        assert_eq!(error.dead_reason(), Some(DeadReason::Attempts));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

async fn a_fatal_error_is_the_last(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |_, _| async {
        Err(TaskError::fatal("no such card"))
    })
    .await;
    let error = within(spawn(&client, 1).await).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Fatal));
    assert!(error.to_string().contains("no such card"), "{error}");
    let metrics = executor.metrics();
    assert_eq!((metrics.claimed, metrics.died, metrics.retried), (1, 1, 0));
}

async fn a_snooze_counts_nothing(store: TestStore) {
    let client = store.client().await;
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let _executor = start_as(
        builder(&client).retry(Retry::exponential().attempts(1)),
        move |_, cx| {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match run {
                    9 => Ok(cx.attempt().into()),
                    _ => Err(TaskError::snooze(Duration::from_millis(1))),
                }
            }
        },
    )
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 1);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.snoozed, counts.retried, counts.done), (9, 0, 1));
    assert_balanced(&counts);
}

async fn every_kind_of_error_can_be_asked_after(store: TestStore) {
    fn fails(kind: u64) -> Result<u64, Box<dyn Error + Send + Sync>> {
        match kind {
            0 => Err(io::Error::other("of the system").into()),
            1 => Err("of text".into()),
            _ => Ok("of a number".parse()?),
        }
    }
    let client = store.client().await;
    let executor = start_as(
        builder(&client).retry(Retry::exponential().attempts(1)),
        |number, _| async move {
            match number {
                3 => Ok("of a number".parse::<u64>()?),
                4 => Err("of text")?,
                _ => Ok(fails(number)?),
            }
        },
    )
    .await;
    let texts = [
        "of the system",
        "of text",
        "invalid digit",
        "invalid digit",
        "of text",
    ];
    for (number, text) in (0..).zip(texts) {
        let error = within(spawn(&client, number).await).await.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(executor.metrics().died, 5);
}

async fn a_long_error_is_shortened(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, _| async {
        // Not a multiple of the limit, so that a character lies on it.
        Err(TaskError::fatal(format!(
            ".{}",
            "\u{1F980}".repeat(1 << 20)
        )))
    })
    .await;
    let error = within(spawn(&client, 1).await).await.unwrap_err();
    assert!(error.to_string().len() < 3_000);
    let dead_letters = client.dead_letters().list(DeadFilter::all(), 1).await;
    assert_eq!(dead_letters.unwrap()[0].error.len(), 2_045);
}

async fn a_long_error_of_an_attempt_is_shortened(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        match cx.attempt() {
            1 => Err(TaskError::retry(format!(
                ".{}",
                "\u{1F980}".repeat(1 << 20)
            ))),
            2 => Err(TaskError::retry(".".repeat(1_024))),
            3 => Err(TaskError::fatal("the last")),
            _ => Ok(number),
        }
    })
    .await;
    within(spawn(&client, 1).await).await.unwrap_err();
    let dead_letters = client.dead_letters().list(DeadFilter::all(), 1).await;
    let errors = dead_letters.unwrap().remove(0).errors;
    let lengths: Vec<_> = errors.iter().map(|it| it.error.len()).collect();
    assert_eq!(lengths, [1_021, 1_024]);
}

async fn runs_of_a_task_have_one_key_and_rising_tokens(store: TestStore) {
    let client = store.client().await;
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    let _executor = start(&client, move |number, cx| {
        let mut runs = seen.lock().unwrap();
        runs.push((cx.idempotency_key(), cx.fencing_token()));
        let ran = runs.len();
        async move {
            match ran {
                1 => Err(TaskError::retry("not yet")),
                2 => Err(TaskError::snooze(Duration::ZERO)),
                3 => panic!("not yet"),
                _ => Ok(number),
            }
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    let key = handle.id().to_string();
    within(handle).await.unwrap();
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), 4);
    assert!(runs.iter().all(|(other, _)| *other == key), "{runs:?}");
    assert!(
        runs.is_sorted_by(|(_, one), (_, next)| one < next),
        "{runs:?}"
    );
}
