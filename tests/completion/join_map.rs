//! `JoinMap`, which replaces that of `tokio_util`.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{pending, ready};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throng::completion::JoinMap;
use tokio::task::{LocalSet, yield_now};

use super::support::{Drops, PanicsOnDrop, current_thread, eventually, within};

#[tokio::test]
async fn outcomes_come_with_their_keys() {
    let mut map = JoinMap::new();
    map.spawn("future", ready(1));
    map.spawn_on("elsewhere", ready(2), &tokio::runtime::Handle::current());
    map.spawn("panic", async { panic!("on purpose") });
    assert_eq!(map.len(), 3);
    let keys = BTreeSet::from(["future", "elsewhere", "panic"]);
    assert_eq!(map.keys().copied().collect::<BTreeSet<_>>(), keys);

    let mut outcomes = BTreeMap::new();
    while let Some((key, outcome)) = within(map.join_next()).await {
        assert!(!map.contains_key(key));
        outcomes.insert(key, outcome.map_err(|error| error.is_panic()));
    }
    let expected = [("future", 1), ("elsewhere", 2)];
    let expected = expected.map(|(key, output)| (key, Ok(output)));
    assert!(
        outcomes.into_iter().eq(BTreeMap::from(expected)
            .into_iter()
            .chain([("panic", Err(true))])
            .collect::<BTreeMap<_, _>>())
    );
    assert!(map.is_empty());
}

#[tokio::test]
async fn a_key_that_is_spawned_again_replaces_its_task() {
    let captured = Drops::new();
    let mut map = JoinMap::new();
    let value = captured.value();
    map.spawn("key".to_string(), async move {
        let _value = value;
        pending().await
    });
    yield_now().await;
    map.spawn("key".to_string(), ready(2));
    map.spawn("other".to_string(), ready(3));
    assert_eq!(map.len(), 2);
    let mut outcomes = BTreeMap::new();
    while let Some((key, outcome)) = within(map.join_next()).await {
        outcomes.insert(key, outcome.unwrap());
    }
    assert!(outcomes.into_values().eq([2, 3]));
    eventually("the replaced task is aborted", || captured.count() == 1).await;
    assert!(map.try_join_next().is_none());
}

#[tokio::test]
async fn a_task_that_is_replaced_after_it_has_ended_is_not_returned() {
    let mut map = JoinMap::new();
    let ran = Drops::new();
    let value = ran.value();
    map.spawn((), async move {
        drop(value);
        1
    });
    eventually("it has ended", || ran.count() == 1).await;
    map.spawn((), ready(2));
    assert_eq!(within(map.join_next()).await.unwrap().1.unwrap(), 2);
    assert!(map.join_next().await.is_none());
}

#[tokio::test]
async fn tasks_are_aborted_by_key_by_predicate_and_all() {
    let mut map = JoinMap::new();
    for n in 0..6 {
        map.spawn(n, pending::<()>());
    }
    assert!(map.abort(&0) && !map.abort(&6));
    map.abort_matching(|key| key % 2 == 1);
    // They stay until they are joined.
    assert!(map.contains_key(&0) && map.len() == 6);
    let mut aborted = BTreeSet::new();
    for _ in 0..4 {
        let (key, outcome) = within(map.join_next()).await.unwrap();
        let error = outcome.unwrap_err();
        assert!(error.is_cancelled());
        aborted.insert(key);
    }
    assert!(aborted.into_iter().eq([0, 1, 3, 5]));
    map.abort_all();
    assert_eq!(map.len(), 2);
    while let Some((_, outcome)) = within(map.join_next()).await {
        assert!(outcome.unwrap_err().is_cancelled());
    }
}

#[tokio::test]
async fn detach_and_shutdown_empty_the_map() {
    let (detached, aborted) = (Drops::new(), Drops::new());
    let mut map = JoinMap::new();
    let value = detached.value();
    map.spawn(0, async move {
        yield_now().await;
        drop(value);
    });
    map.detach_all();
    assert!(map.is_empty() && map.join_next().await.is_none());
    eventually("the detached task ends", || detached.count() == 1).await;

    // Also the tasks that were replaced.
    for _ in 0..2 {
        let value = aborted.value();
        map.spawn(0, async move {
            let _value = value;
            pending().await
        });
        yield_now().await;
    }
    within(map.shutdown()).await;
    assert_eq!((map.len(), aborted.count()), (0, 2));
}

#[test]
fn local_tasks_need_not_be_send() {
    current_thread().block_on(async {
        let (local, mut map) = (LocalSet::new(), JoinMap::new());
        map.spawn_local_on(Rc::new(0), ready(Rc::new(0)), &local);
        let joined = local.run_until(async {
            map.spawn_local(Rc::new(1), ready(Rc::new(1)));
            let mut sum = 0;
            while let Some((key, outcome)) = map.join_next().await {
                assert_eq!(key, outcome.unwrap());
                sum += *key;
            }
            sum
        });
        assert_eq!(within(joined).await, 1);
    });
}

#[tokio::test]
async fn a_panic_in_the_drop_of_a_replaced_key_loses_no_task() {
    struct Key(Option<PanicsOnDrop>);
    impl PartialEq for Key {
        fn eq(&self, _: &Self) -> bool {
            true
        }
    }
    impl Eq for Key {}
    impl std::hash::Hash for Key {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }
    let captured = Drops::new();
    let mut map = JoinMap::new();
    map.spawn(Key(Some(PanicsOnDrop(captured.value()))), pending());
    let replaces = std::panic::AssertUnwindSafe(|| map.spawn(Key(None), ready(2)));
    assert!(std::panic::catch_unwind(replaces).is_err());
    assert_eq!((map.len(), captured.count()), (1, 1));
    let (key, outcome) = within(map.join_next()).await.unwrap();
    assert!(key.0.is_none());
    assert_eq!(outcome.unwrap(), 2);
    assert!(map.join_next().await.is_none());
}

#[test]
fn a_map_is_generic_over_any_key_and_output() {
    #[derive(Default)]
    struct Holder<K, V> {
        map: JoinMap<K, V>,
    }
    fn is_empty<K, V>(holder: &Holder<K, V>) -> bool {
        holder.map.is_empty() && holder.map.keys().count() == 0
    }
    assert!(is_empty(&Holder::<f32, &str>::default()));
}

// ===== Capacity, and hashes =====

/// Spawns a task for each key, whose output is twice the key.
fn fill<S: BuildHasher>(map: &mut JoinMap<u32, u32, S>, keys: Range<u32>) {
    for key in keys {
        map.spawn(key, ready(2 * key));
    }
}

/// Joins all tasks, and checks that they are those of these keys.
async fn assert_has<S: BuildHasher>(map: &mut JoinMap<u32, u32, S>, keys: Range<u32>) {
    let mut outputs = BTreeMap::new();
    while let Some((key, outcome)) = within(map.join_next()).await {
        assert_eq!(outputs.insert(key, outcome.unwrap()), None);
    }
    assert!(outputs.into_iter().eq(keys.map(|key| (key, 2 * key))));
}

#[test]
fn a_new_map_has_a_capacity_of_0_unless_it_was_asked_for_more() {
    let maps = [
        JoinMap::<u32, u32>::new(),
        JoinMap::default(),
        JoinMap::with_capacity(0),
        JoinMap::with_hasher(RandomState::new()),
        JoinMap::with_capacity_and_hasher(0, RandomState::new()),
    ];
    assert!(maps.iter().all(|map| map.capacity() == 0));
}

#[tokio::test]
async fn a_map_has_room_for_as_many_tasks_as_it_was_made_for() {
    for capacity in [1, 3, 10, 100, 1_000] {
        let maps = [
            JoinMap::with_capacity(capacity),
            JoinMap::with_capacity_and_hasher(capacity, RandomState::new()),
        ];
        for mut map in maps {
            let room = map.capacity();
            assert!(room >= capacity, "{room} of {capacity}");
            let keys = 0..u32::try_from(capacity).unwrap();
            fill(&mut map, keys.clone());
            assert_eq!(map.capacity(), room);
            assert_has(&mut map, keys).await;
        }
    }
}

#[tokio::test]
async fn reserved_room_is_for_more_tasks_than_the_map_has() {
    let mut map = JoinMap::new();
    fill(&mut map, 0..50);
    map.reserve(100);
    let room = map.capacity();
    assert!(room >= 150, "{room}");
    fill(&mut map, 50..150);
    assert_eq!(map.capacity(), room);
    map.reserve(0);
    assert_eq!(map.capacity(), room);
    assert_has(&mut map, 0..150).await;
}

#[test]
#[should_panic(expected = "capacity overflow")]
fn a_reservation_that_overflows_panics() {
    JoinMap::<u32, u32>::new().reserve(usize::MAX);
}

#[tokio::test]
async fn a_map_that_shrinks_keeps_its_tasks_and_the_room_that_was_asked_for() {
    let mut map = JoinMap::with_capacity(1_000);
    fill(&mut map, 0..10);
    let room = map.capacity();
    // There is less room than that.
    map.shrink_to(2 * room);
    assert_eq!(map.capacity(), room);
    map.shrink_to(100);
    let room = map.capacity();
    assert!((100..1_000).contains(&room), "{room}");
    // There are more tasks than that.
    map.shrink_to(5);
    let room = map.capacity();
    assert!((10..100).contains(&room), "{room}");
    map.reserve(1_000);
    map.shrink_to_fit();
    assert_eq!(map.capacity(), room);
    assert_has(&mut map, 0..10).await;
    map.shrink_to_fit();
    assert_eq!(map.capacity(), 0);
}

/// Gives all keys the same hash, and counts how often it does so.
#[derive(Clone, Default)]
struct OneHash(Arc<AtomicUsize>);

impl BuildHasher for OneHash {
    type Hasher = Same;

    fn build_hasher(&self) -> Same {
        self.0.fetch_add(1, Ordering::SeqCst);
        Same
    }
}

struct Same;

impl Hasher for Same {
    fn finish(&self) -> u64 {
        7
    }

    fn write(&mut self, _: &[u8]) {}
}

#[tokio::test]
async fn keys_are_hashed_by_the_hasher_of_the_map_and_told_apart_if_their_hashes_are_equal() {
    let hashes = OneHash::default();
    let maps = [
        JoinMap::with_hasher(hashes.clone()),
        JoinMap::with_capacity_and_hasher(10, hashes.clone()),
    ];
    for mut map in maps {
        let before = hashes.0.load(Ordering::SeqCst);
        fill(&mut map, 0..10);
        assert!(hashes.0.load(Ordering::SeqCst) >= before + 10);
        // The tasks of the keys 5 to 9 are replaced.
        fill(&mut map, 5..15);
        assert_eq!(map.len(), 15);
        assert!((0..15).all(|key| map.contains_key(&key)));
        assert!(!map.contains_key(&15) && !map.abort(&15));
        map.reserve(100);
        map.shrink_to_fit();
        assert_has(&mut map, 0..15).await;
    }
}
