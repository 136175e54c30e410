//! Tasks of which the store has lost a part.

use super::*;
use crate::durable::DeadReason;
use crate::durable::context::Stop;
use crate::durable::executor::app_runner::{AppRunner, TaskRunner};
use crate::durable::executor::registry::TypeRegistry;
use crate::durable::progress::RunProgress;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{Claimed, StepWait, Verdict};

fn runner() -> AppRunner<App> {
    let mut registry = TypeRegistry::new();
    registry.register::<Number>();
    AppRunner {
        registry,
        set: set(),
        app: StdArc::new(App::new(|number, _| async move { Ok(number) })),
        client: client_of(&MemoryStore::new()),
        retry: Retry::exponential().attempts(1),
        #[cfg(feature = "tower")]
        layers: None,
    }
}

async fn verdict(name: &str, payload: &[u8]) -> Verdict {
    verdict_of(&runner(), name, payload).await
}

async fn verdict_of(runner: &AppRunner<App>, name: &str, payload: &[u8]) -> Verdict {
    let claimed = Claimed {
        id: id(1),
        name: name.into(),
        group: None,
        payload: Ok(payload.to_vec()),
        failures: 0,
        failing_for: None,
        waited: None,
        crashes: 0,
        lost: 0,
        quarantined: false,
        steps: 0,
        wait: StepWait::Over,
    };
    let (sender, _reports) = tokio::sync::mpsc::unbounded_channel();
    let progress = RunProgress::new(claimed.id, 1, sender);
    let started = runner.run(&QueueName::DEFAULT, claimed, 1, Stop::default(), progress);
    started.run.await.verdict
}

/// No worker ever claims it again, so it must not wait for another one.
#[tokio::test]
async fn a_task_that_its_worker_cannot_read_is_damaged() {
    let is_damaged = |verdict: &Verdict| matches!(verdict, Verdict::Dead { reason, .. } if *reason == DeadReason::Damaged);
    let traced = [&b"\x02\x01\x01"[..], &[0; 25], b"7"].concat();
    for payload in [&b"\x017"[..], b"\x02\x00\x017", &traced] {
        let Verdict::Done(mut output) = verdict("number", payload).await else {
            panic!("{payload:?} can be read");
        };
        // The run has taken some milliseconds on a busy machine.
        output[1..5].fill(0);
        assert_eq!(output, b"\x01\0\0\0\0\x00\x06number7", "{payload:?}");
    }
    for (name, payload) in [
        ("number", &b""[..]),
        ("number", b"\x007"),
        ("number", b"7"),
        ("number", b"\x02\x01\x017"),
        ("number", b"\x02\x00\x007"),
        ("number", b"\x02\x00\x027"),
        ("numbe?", b"\x017"),
    ] {
        let verdict = verdict(name, payload).await;
        assert!(is_damaged(&verdict), "{name} {payload:?}: {verdict:?}");
    }
}

#[cfg(feature = "tower")]
mod layers {
    use std::future::{Ready, ready};
    use std::task::{Context, Poll};

    use tower_service::Service;

    use super::*;
    use crate::durable::{RunOutput, RunRequest, RunService};

    /// A layer that fails.
    #[derive(Clone)]
    struct Refuses;

    impl Service<RunRequest<App>> for Refuses {
        type Response = RunOutput;
        type Error = &'static str;
        type Future = Ready<Result<RunOutput, &'static str>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: RunRequest<App>) -> Self::Future {
            ready(Err("refused"))
        }
    }

    #[tokio::test]
    async fn a_damaged_task_does_not_reach_the_layers() {
        let mut runner = runner();
        runner.layers = Some(StdArc::new(RunService::layered(Refuses)));
        for (payload, expected) in [(&b"\x017"[..], "refused"), (b"\x007", "its payload")] {
            match verdict_of(&runner, "number", payload).await {
                Verdict::Dead { error, .. } => assert!(error.contains(expected), "{error}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
