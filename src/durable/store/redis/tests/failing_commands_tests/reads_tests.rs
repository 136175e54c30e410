//! Commands fail in scripts that only read.

use super::super::workers_tests::carded;
use super::*;
use crate::durable::Status;
use crate::durable::store::{Answer, CheckedFilter, ListTasks};

/// Returns all keys of a store, with their values. The order of the fields of a hash, and of the members of a set, depends on
/// earlier reads, so both are sorted.
const ALL: &str = "
local keys = redis.call('KEYS', ARGV[1] .. '*')
table.sort(keys)
local function value_of(key)
  local type = redis.call('TYPE', key).ok
  if type ~= 'hash' and type ~= 'set' then return redis.call('DUMP', key) end
  local values = redis.call(type == 'hash' and 'HKEYS' or 'SMEMBERS', key)
  table.sort(values)
  for i, it in ipairs(values) do values[i] = { it, type == 'hash' and redis.call('HGET', key, it) } end
  return values
end
local all = {}
for i, key in ipairs(keys) do all[i] = { key, value_of(key) } end
return all";

/// The requests change nothing, so one scene suffices.
#[tokio::test]
async fn a_read_is_correct_or_fails() {
    needs_redis!();
    let scene = Scene::new().await;
    let store = &scene.worker.store;
    scene.worker.turn(all_verdicts(&scene.claim), 0).await;
    // Some tasks wait in a draining list, and the type of one is unknown to all workers.
    let set = TypeSet::of_names(["job"]);
    store.open_session(set.ok()).await.unwrap();
    scene.other.enqueue([named(NEW, "unknown")]).await;

    store.open_session_with(carded("")).await.unwrap();
    let workers = assert_correct_or_failed(&scene, || store.workers(None, 9)).await;
    assert_eq!(workers.unwrap().workers.len(), 1);
    let counts = assert_correct_or_failed(&scene, || store.counts()).await;
    assert_eq!((counts.unserved, counts.dead), (1, 1), "{counts:?}");
    let diagnosed = assert_correct_or_failed(&scene, || store.diagnose()).await;
    assert_eq!(diagnosed.partitions[0].unclaimed.len(), 1);
    let progress = || store.progress([10, 11, 30].map(id).to_vec());
    let progress = assert_correct_or_failed(&scene, progress).await;
    assert!(matches!(
        progress[..],
        [
            ProgressState::Ended,
            ProgressState::Alive(Some(_)),
            ProgressState::Alive(None)
        ]
    ));
    let errors = assert_correct_or_failed(&scene, || store.errors(id(18))).await;
    assert_eq!(errors.len(), 2);
    let by_id = || store.dead_letters(DeadFilter::ids([id(16), id(20)]), 9);
    let dead_letters = assert_correct_or_failed(&scene, by_id).await;
    assert_eq!(dead_letters.len(), 1);
    let all = assert_correct_or_failed(&scene, || store.dead_letters(DeadFilter::all(), 9)).await;
    assert_eq!(all, dead_letters);
    for status in [
        Status::Waiting,
        Status::Running,
        Status::Delayed,
        Status::Done,
        Status::Dead,
    ] {
        let page = || store.list(first_page(status));
        let page = assert_correct_or_failed(&scene, page).await.unwrap();
        assert!(!page.tasks.is_empty(), "{status:?}");
    }
    let payload = || store.dead_letter_payload(id(16));
    let payload = assert_correct_or_failed(&scene, payload).await.unwrap();
    assert_eq!(payload.payload, Ok(16_u64.to_be_bytes().to_vec()));
}

fn first_page(status: Status) -> ListTasks {
    let filter = CheckedFilter::new(status);
    ListTasks {
        filter,
        after: None,
        limit: 9,
    }
}

/// Lets each command of a request fail that only reads. Returns the correct answer.
async fn assert_correct_or_failed<'a, T: PartialEq + std::fmt::Debug>(
    scene: &Scene,
    read: impl Fn() -> Answer<'a, T>,
) -> T {
    let (right, before) = (read().await.unwrap(), scene.run(ALL));
    for is_after in [false, true] {
        let mut at = 0;
        loop {
            at += 1;
            *lock(&scene.fault) = InjectedFault { at, is_after };
            let answer = read().await;
            let has_failed = scene.has_failed();
            match answer {
                Ok(answer) => assert_eq!(answer, right, "{at}"),
                Err(failure) => assert!(has_failed, "{at}: {failure}"),
            }
            assert!(scene.run(ALL) == before, "{at}: something has changed");
            if !has_failed {
                break;
            }
        }
        assert!(at > 2, "{at}");
    }
    right
}
