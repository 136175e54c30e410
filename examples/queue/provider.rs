//! [`Provider`]: delivers mails that it receives over TCP, and records what the workers request.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::{BURST, CUSTOMERS, Event, RATE, Result, ensure};

/// The mail provider, which is a part of the main process.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    mailer: Arc<Mailer>,
    server: AbortHandle,
}

/// The answer of the provider.
pub(crate) enum Answer {
    Done(String),
    /// The mails of the customer are to wait for this time.
    Busy(Duration),
}

/// The number of mails of the first customer after which the provider asks for a break.
const BREAK_AFTER: usize = 20;
/// The duration of the break.
const BREAK: Duration = Duration::from_millis(1500);
const SECOND: Duration = Duration::from_secs(1);

/// Sends a request to the provider.
///
/// # Errors
///
/// The provider does not answer.
pub(crate) async fn ask(provider: SocketAddr, request: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(provider).await?;
    stream.write_all(format!("{request}\n").as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    match line.trim_end().split_once(' ') {
        Some(("done", text)) => Ok(Answer::Done(text.to_owned())),
        Some(("busy", millis)) => Ok(Answer::Busy(Duration::from_millis(millis.parse()?))),
        _ => Err("the provider does not answer".into()),
    }
}

impl Provider {
    pub(crate) async fn start(events: UnboundedSender<Event>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mailer = Arc::new(Mailer {
            ledger: Mutex::default(),
            sent: watch::Sender::new(0),
            events,
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&mailer))).abort_handle();
        Ok(Self {
            address,
            mailer,
            server,
        })
    }

    /// Returns a receiver of the number of delivered mails.
    pub(crate) fn sent(&self) -> watch::Receiver<usize> {
        self.mailer.sent.subscribe()
    }

    /// Ends the provider, and returns what it has recorded.
    pub(crate) fn finish(self) -> Audit {
        self.server.abort();
        std::mem::take(&mut self.mailer.ledger().audit)
    }
}

async fn serve(listener: TcpListener, mailer: Arc<Mailer>) {
    while let Ok((stream, _)) = listener.accept().await {
        let mailer = Arc::clone(&mailer);
        tokio::spawn(async move { mailer.serve(stream).await });
    }
}

/// Answers requests.
struct Mailer {
    ledger: Mutex<Ledger>,
    sent: watch::Sender<usize>,
    events: UnboundedSender<Event>,
}

#[derive(Default)]
struct Ledger {
    /// The idempotency keys of the delivered mails.
    keys: HashSet<String>,
    /// The times at which the mails of the last second were delivered.
    recent: VecDeque<Instant>,
    /// The end of the break of the first customer, if it has begun.
    break_ends: Option<Instant>,
    audit: Audit,
}

/// The numbers that the provider has recorded.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// The number of mails of each customer.
    sent: HashMap<String, usize>,
    /// The number of requests for mails that were delivered before.
    repeated: usize,
    /// The number of requests that were refused in the break.
    refused: usize,
    /// The maximum number of mails in one second.
    most: usize,
    /// The number of mails that were delivered up to, and including, the last one of the second customer.
    last_of_second: usize,
    /// The number of mails of the second customer that were delivered in the break of the first one.
    in_break: usize,
}

impl Mailer {
    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nobody has panicked")
    }

    async fn serve(&self, mut stream: TcpStream) -> Result<()> {
        let mut line = String::new();
        BufReader::new(&mut stream).read_line(&mut line).await?;
        let answer = match line.trim_end().split_once(' ') {
            Some(("mail", mail)) => {
                let (key, customer) = mail.split_once(' ').ok_or("no customer")?;
                self.deliver(key, customer)
            }
            _ => format!("done {} mails", self.ledger().keys.len()),
        };
        stream.write_all(format!("{answer}\n").as_bytes()).await?;
        Ok(())
    }

    /// Delivers a mail, unless it was delivered before or its customer has a break. Returns the answer.
    fn deliver(&self, key: &str, customer: &str) -> String {
        let mut ledger = self.ledger();
        if ledger.has_break(customer) {
            ledger.audit.refused += 1;
            self.events.send(Event::Refused(customer.into())).ok();
            return format!("busy {}", BREAK.as_millis());
        }
        if !ledger.keys.insert(key.to_owned()) {
            ledger.audit.repeated += 1;
            return "done before".into();
        }
        ledger.record(customer);
        self.sent.send_replace(ledger.keys.len());
        self.events.send(Event::Sent(customer.into())).ok();
        "done now".into()
    }
}

impl Ledger {
    /// Returns `true` if the mails of the customer are to wait.
    fn has_break(&mut self, customer: &str) -> bool {
        let (first, now) = (CUSTOMERS[0].0, Instant::now());
        if customer != first {
            return false;
        }
        let sent = self.audit.sent.get(first).copied().unwrap_or_default();
        if sent >= BREAK_AFTER && self.break_ends.is_none() {
            self.break_ends = Some(now + BREAK);
        }
        self.break_ends.is_some_and(|end| now < end)
    }

    fn record(&mut self, customer: &str) {
        let now = Instant::now();
        self.recent.push_back(now);
        while self
            .recent
            .front()
            .is_some_and(|&first| now - first >= SECOND)
        {
            self.recent.pop_front();
        }
        self.audit.most = self.audit.most.max(self.recent.len());
        *self.audit.sent.entry(customer.to_owned()).or_default() += 1;
        if customer == CUSTOMERS[1].0 {
            self.audit.last_of_second = self.keys.len();
            self.audit.in_break += usize::from(self.break_ends.is_some_and(|end| now < end));
        }
    }
}

impl Audit {
    /// Fails if a mail is missing or was requested again, or if the rate, the hold or the groups had no effect.
    pub(crate) fn check(&self) -> Result<()> {
        let sent = |nth: usize| self.sent.get(CUSTOMERS[nth].0).copied().unwrap_or_default();
        let counts = [sent(0), sent(1)];
        // The second customer also has a mail that resets a password.
        ensure(
            counts == [CUSTOMERS[0].1, CUSTOMERS[1].1 + 1],
            "mails are missing",
        )?;
        ensure(self.repeated == 0, "mails were sent twice")?;
        // Requests that are sent within two seconds may arrive within one.
        let most = (RATE + BURST) as usize * 3 / 2;
        ensure(self.most <= most, "the mails came too fast")?;
        ensure(self.refused > 0, "the provider has not asked for a break")?;
        ensure(
            self.refused <= 20,
            "the first customer did not wait in the break",
        )?;
        ensure(
            self.in_break >= 20,
            "the second customer waited in the break of the first",
        )?;
        ensure(
            self.last_of_second < 100,
            "the second customer had to wait for the first",
        )
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sent: usize = self.sent.values().sum();
        write!(
            f,
            "{sent} mails, at most {} of them in one second; {} requests refused in the break; the last mail of {} was number {}",
            self.most, self.refused, CUSTOMERS[1].0, self.last_of_second
        )
    }
}
