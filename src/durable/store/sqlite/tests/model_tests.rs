//! Sends the same random requests to this store and to the model, with payloads and outputs of all sizes, and
//! compares the answers and the tables.

use super::*;
use crate::durable::queue::{QueueSettings, Rate};
use crate::durable::store::QueueChange;
use crate::durable::store::kind::TypeSet;

const SESSIONS: usize = 4;

/// A store in a file and a store in memory, which get the same requests.
#[tokio::test]
async fn it_behaves_like_the_model() {
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let file = File::new();
        let clock = Clock::manual();
        let memory = Store::from(MemoryStore::with_clock(&clock)).0;
        let sqlite = SqliteStore::open_with(&file.path, clock.clone())
            .await
            .unwrap();
        let sqlite: Arc<dyn Backend> = Arc::new(sqlite);
        let mut pair = Pair::new(memory, sqlite).await;
        for _ in 0..400 {
            pair.step(&mut random, &clock).await;
        }
        pair.compare(&file).await;
    }
}

struct Pair {
    stores: [Arc<dyn Backend>; 2],
    sessions: Vec<(SessionId, SessionId)>,
    number: u64,
    /// The epochs in each of the stores.
    epochs: BTreeMap<u64, u64>,
    claims: Vec<Claim>,
    last: Option<(usize, Vec<Verdicts>)>,
}

impl Pair {
    async fn new(one: Arc<dyn Backend>, two: Arc<dyn Backend>) -> Self {
        let mut sessions = Vec::new();
        for n in 0..SESSIONS {
            let pair = (
                one.open_session(set_of(n)).await,
                two.open_session(set_of(n)).await,
            );
            sessions.push((pair.0.unwrap(), pair.1.unwrap()));
        }
        let mut pair = Self {
            stores: [one, two],
            sessions,
            number: 1,
            epochs: BTreeMap::new(),
            claims: Vec::new(),
            last: None,
        };
        // The store in a file counts the turns of the priorities only from the first task with another priority.
        let mut first = task(0).0;
        first.priority = Priority::Low;
        pair.enqueue_all(0, vec![first]).await;
        pair
    }

    async fn step(&mut self, random: &mut fastrand::Rng, clock: &Clock) {
        match random.u32(..21) {
            0..6 => self.enqueue(random).await,
            6..14 => self.turn(random).await,
            14 => self.renew(random).await,
            15 => self.cancel(random).await,
            16 => self.dead_letters(random).await,
            17 => {
                let budget = random.usize(1..10);
                let [one, two] = &self.stores;
                assert_eq!(
                    one.maintain(budget).await.unwrap(),
                    two.maintain(budget).await.unwrap()
                );
            }
            18 => self.reopen(random).await,
            19 => self.change_queue(random).await,
            _ => clock.advance(Duration::from_millis(random.u64(..5000))),
        }
    }

    async fn enqueue(&mut self, random: &mut fastrand::Rng) {
        self.number += u64::from(random.u32(..10) != 0);
        let tasks: Vec<_> = (0..random.usize(0..8)).map(|_| any_task(random)).collect();
        self.enqueue_all(random.usize(..SESSIONS), tasks).await;
    }

    async fn enqueue_all(&mut self, session: usize, tasks: Vec<NewTask>) {
        let session = self.sessions[session];
        let [one, two] = [session.0, session.1].map(|session| {
            Arc::new(Enqueue {
                session,
                number: self.number,
                batch: Arc::new(tasks.clone().into()),
            })
        });
        let one = self.stores[0].enqueue(one).await.map_err(|it| it.cause);
        let two = self.stores[1].enqueue(two).await.map_err(|it| it.cause);
        assert_eq!(one, two);
    }

    async fn turn(&mut self, random: &mut fastrand::Rng) {
        let is_again = random.u32(..8) == 0;
        self.number += u64::from(!is_again);
        let session = match (&self.last, is_again) {
            (Some((session, _)), true) => *session,
            _ => random.usize(..SESSIONS),
        };
        let verdicts = self.verdicts(random);
        let want = random.usize(..6);
        let theirs = verdicts.iter().map(|verdicts| Verdicts {
            epoch: self.epochs[&verdicts.epoch],
            tasks: verdicts.tasks.clone(),
        });
        let turn = |session, verdicts| {
            Arc::new(Turn {
                session,
                number: self.number,
                verdicts,
                received: None,
                floor: 0,
                want,
                want_bytes: 2000,
                lease: LEASE,
                quarantined: true,
                go_idle: true,
                pushes: ClaimPushes::default(),
            })
        };
        let sessions = self.sessions[session];
        let two = turn(sessions.1, theirs.collect());
        let one = turn(sessions.0, verdicts);
        let one = self.stores[0].turn(one).await.map_err(|it| it.cause);
        let mut two = self.stores[1].turn(two).await.map_err(|it| it.cause);
        self.last = Some((session, Vec::new()));
        if let (Ok(one), Ok(two)) = (&one, &mut two)
            && let (Some(one), Some(two)) = (&one.claim, &mut two.claim)
        {
            self.epochs.insert(one.epoch, two.epoch);
            two.epoch = one.epoch;
            self.claims.push(one.clone());
        }
        assert_eq!(one, two);
    }

    /// Makes verdicts on some tasks of some claims, which may have ended long ago.
    fn verdicts(&mut self, random: &mut fastrand::Rng) -> Vec<Verdicts> {
        let mut all = Vec::new();
        for _ in 0..random.usize(..3) {
            if self.claims.is_empty() {
                break;
            }
            let count = self.claims.len();
            let newest = count.saturating_sub(6);
            let claim = &mut self.claims[random.usize(newest..count)];
            let epoch = claim.epoch;
            random.shuffle(&mut claim.tasks);
            let some = random.usize(..=claim.tasks.len());
            let tasks = claim.tasks[..some].iter();
            let tasks = tasks.map(|task| (task.id, any_verdict(random))).collect();
            all.push(Verdicts { epoch, tasks });
        }
        all
    }

    async fn renew(&mut self, random: &mut fastrand::Rng) {
        let mut epochs: Vec<_> = self.epochs.keys().copied().collect();
        random.shuffle(&mut epochs);
        epochs.truncate(5);
        let theirs = epochs.iter().map(|epoch| self.epochs[epoch]).collect();
        let one = self.stores[0].renew(epochs.clone()).await.unwrap();
        let two = self.stores[1].renew(theirs).await.unwrap();
        assert_eq!(one.cancelled, two.cancelled);
        let lost: Vec<_> = one.lost.iter().map(|epoch| self.epochs[epoch]).collect();
        assert_eq!(lost, two.lost);
    }

    async fn cancel(&mut self, random: &mut fastrand::Rng) {
        let ids: Vec<_> = (0..5).map(|_| id(random.u64(..60))).collect();
        let [one, two] = &self.stores;
        let one = one.cancel(ids.clone()).await.unwrap();
        assert_eq!(one, two.cancel(ids).await.unwrap());
    }

    async fn dead_letters(&mut self, random: &mut fastrand::Rng) {
        let filter = match random.u32(..3) {
            0 => DeadFilter::all(),
            1 => DeadFilter::name("a"),
            _ => DeadFilter::ids((0..30).map(id)),
        };
        let [one, two] = &self.stores;
        let limit = random.usize(..10);
        assert_eq!(
            one.dead_letters(filter.clone(), limit).await.unwrap(),
            two.dead_letters(filter.clone(), limit).await.unwrap()
        );
        let (one, two) = match random.bool() {
            true => (
                one.replay_dead_letters(filter.clone()),
                two.replay_dead_letters(filter),
            ),
            false => (
                one.delete_dead_letters(filter.clone()),
                two.delete_dead_letters(filter),
            ),
        };
        assert_eq!(one.await.unwrap(), two.await.unwrap());
    }

    async fn reopen(&mut self, random: &mut fastrand::Rng) {
        if random.u32(..4) != 0 {
            return;
        }
        let n = random.usize(..SESSIONS);
        let session = &mut self.sessions[n];
        let [one, two] = &self.stores;
        one.close_session(session.0).await.unwrap();
        two.close_session(session.1).await.unwrap();
        *session = (
            one.open_session(set_of(n)).await.unwrap(),
            two.open_session(set_of(n)).await.unwrap(),
        );
        self.last = None;
    }

    async fn change_queue(&self, random: &mut fastrand::Rng) {
        let change = match random.u32(..6) {
            0 => QueueChange::Paused(true),
            1 | 2 => QueueChange::Paused(false),
            _ => QueueChange::Settings(any_settings(random)),
        };
        let [one, two] = &self.stores;
        assert_eq!(
            one.change_queue(queue(), change).await.unwrap(),
            two.change_queue(queue(), change).await.unwrap()
        );
        assert_eq!(
            one.queue(queue()).await.unwrap(),
            two.queue(queue()).await.unwrap()
        );
    }

    async fn compare(&self, file: &File) {
        let [one, two] = &self.stores;
        for queue in [queue(), QueueName::DEFAULT] {
            let info = one.queue(queue.clone()).await.unwrap();
            assert_eq!(info, two.queue(queue).await.unwrap());
        }
        let ids: Vec<_> = (0..60).map(id).collect();
        assert_eq!(
            one.status(ids.clone()).await.unwrap(),
            two.status(ids).await.unwrap()
        );
        assert_eq!(one.counts().await.unwrap(), two.counts().await.unwrap());
        let stray =
            "SELECT count(*) FROM throng_payload WHERE id NOT IN (SELECT id FROM throng_task)";
        assert_eq!(file.number(stray), 0);
        let stray = "SELECT count(*) FROM throng_claim WHERE length(held) = 0";
        assert_eq!(file.number(stray), 0);
        let (counts, running) = (
            one.counts().await.unwrap(),
            "SELECT coalesce(sum(length(held)), 0) / 24 FROM throng_claim",
        );
        assert_eq!(file.number(running), counts.running as i64);
        let waiting = "SELECT count(*) FROM throng_now WHERE now = 0";
        assert_eq!(file.number(waiting), counts.waiting as i64);
        let waiting = "SELECT count(*) FROM throng_ready";
        assert_eq!(file.number(waiting), counts.waiting as i64);
    }
}

fn queue() -> QueueName {
    QueueName::new("mail").unwrap()
}

/// Returns the types of a session, which are in the default queue or in the named one.
fn set_of(session: usize) -> Option<TypeSet> {
    let set = TypeSet::of_tests()?;
    match session % 2 {
        0 => Some(set),
        _ => Some(set.in_queue(queue())),
    }
}

fn any_settings(random: &mut fastrand::Rng) -> QueueSettings {
    let mut settings = QueueSettings::new().revision(random.u32(..2));
    if random.bool() {
        settings = settings.max_running(random.u32(1..8));
    }
    if random.bool() {
        let rate = Rate::every(Duration::from_micros(random.u64(1..2_000_000)));
        settings = settings.rate(rate.burst(random.u32(1..4)));
    }
    settings
}

fn any_task(random: &mut fastrand::Rng) -> NewTask {
    let mut task = task(random.u64(..60));
    task.0.queue = [QueueName::DEFAULT, queue()][random.usize(..2)].clone();
    task.0.priority = Priority::ALL[random.usize(..3)];
    task.0.name = ["a", "b"][random.usize(..2)].into();
    task.0.payload = vec![9; [0, 10, 600, 3000][random.usize(..4)]];
    task.0.delay = Duration::from_millis([0, 0, 0, 700, 4000][random.usize(..5)]);
    task.0.retention = Duration::from_millis([0, 2000, 60_000][random.usize(..3)]);
    task.0.max_crashes = random.u32(..2);
    task.0
}

fn any_verdict(random: &mut fastrand::Rng) -> Verdict {
    let after = Duration::from_millis(random.u64(..3000));
    match random.u32(..6) {
        0 | 1 => Verdict::Done(vec![3; [0, 10, 600][random.usize(..3)]]),
        2 => Verdict::Retry {
            after,
            error: String::from("again"),
            took: None,
        },
        3 => Verdict::Snooze { after },
        4 => Verdict::Dead {
            reason: DeadReason::Attempts,
            error: String::from("enough"),
            took: None,
        },
        _ => Verdict::Release,
    }
}
