//! Simulated customers, who send mails by requests to the site.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use throng::CompletionStream;
use throng::watch::Registry;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use super::Result;
use super::delivery::BLOCKED;
use super::http::post;

/// The number of requests of all customers that may be unanswered.
const MAX_OUTSTANDING: usize = 4;
/// The pause between two requests of a customer.
const PAUSE: Duration = Duration::from_millis(250);
/// One of this many requests is a newsletter.
const NEWSLETTER_EVERY: u64 = 20;

/// Sends mails for customers until they leave. Returns the number of requests that were answered.
pub(crate) async fn send_mails(
    address: SocketAddr,
    customers: u32,
    registry: Registry,
    leave: CancellationToken,
) -> Result<u64> {
    let (requests, mut answers) = CompletionStream::builder()
        .max_outstanding(MAX_OUTSTANDING)
        .build()?;
    registry.watch("customers", &answers);
    let send = async {
        let mut ticks = interval(PAUSE);
        for number in 0.. {
            tokio::select! {
                () = leave.cancelled() => break,
                _ = ticks.tick() => {}
            }
            for customer in 0..customers {
                let request = post(address, "/mails", mails(customer, number));
                // If the stream is full, this waits for an answer.
                requests.submit(customer, request).await.ok();
            }
        }
        requests.close();
    };
    let receive = async {
        let mut answered = 0;
        while let Some(answer) = answers.next().await {
            match answer.outcome {
                Ok(Ok(())) => answered += 1,
                Ok(Err(error)) => eprintln!("customer {}: {error}", answer.tag),
                Err(error) => eprintln!("customer {}: {error}", answer.tag),
            }
        }
        answered
    };
    Ok(tokio::join!(send, receive).1)
}

/// A request: a mail that a user waits for, or a newsletter.
fn mails(customer: u32, number: u64) -> Value {
    let is_newsletter = number.is_multiple_of(NEWSLETTER_EVERY);
    let reader = || match fastrand::u8(0..30) {
        0 => BLOCKED.to_owned(),
        1..15 => format!("reader-{}@example.org", fastrand::u16(..)),
        _ => format!("reader-{}@example.net", fastrand::u16(..)),
    };
    let readers = if is_newsletter { 40 } else { 1 };
    json!({
        "customer": format!("customer-{customer}"),
        "to": (0..readers).map(|_| reader()).collect::<Vec<_>>(),
        "subject": if is_newsletter { "News" } else { "Your code" },
        "is_urgent": !is_newsletter,
    })
}
