//! Routes that are missing, damaged or outdated: workers still find every task of a type that they know.

use std::collections::BTreeMap;

use redis::Value;

use super::super::routing;
use super::scene::{SECOND, Scene, later};
use super::*;
use crate::durable::store::kind::Kind;

/// Asserts that all other fields agree with the text of the routes.
pub(super) async fn assert_routes_are_whole(store: &RedisStore, server: &Server, key: &str) {
    let stored = routing::read(&store.inner, 0).await.unwrap();
    assert!(stored.is_whole, "{:?}", stored.known);
    let expected = routing::fields(&stored.known.routes);
    let Value::Array(rows) = server.ask(&["HGETALL", key]) else {
        panic!("no rows");
    };
    let bytes = |value: &Value| match value {
        Value::BulkString(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    let rows = rows.chunks(2).map(|row| (bytes(&row[0]), bytes(&row[1])));
    let is_route = |field: &[u8]| field != b"version" && !(field.len() == 9 && field[0] == b'n');
    let found: BTreeMap<_, _> = rows.filter(|(field, _)| is_route(field)).collect();
    assert_eq!(found, expected);
}

/// Returns a store with two sets that have a type in common, and with tasks of all types in their lists.
async fn divided() -> (Scene, Vec<Worker>) {
    let scene = Scene::new().await;
    let one = scene.worker_of(&["job", "mail"]).await;
    let other = scene.worker_of(&["job", "report"]).await;
    one.enqueue((0..9).map(|number| named(number, ["job", "mail", "report"][number as usize % 3])))
        .await;
    (scene, vec![one, other])
}

/// Runs all tasks with workers of these sets. A worker whose session has ended opens another.
async fn run_by(scene: &Scene, workers: &mut [(Worker, &[&'static str])]) -> Vec<TaskId> {
    let mut all = Vec::new();
    for _ in 0..20 {
        for (worker, names) in workers.iter_mut() {
            let request = worker.new_turn(Vec::new(), 9);
            match worker.store.turn(request).await {
                Ok(turned) => {
                    let Some(claim) = turned.claim else { continue };
                    for task in &claim.tasks {
                        assert!(names.contains(&&*task.name), "{names:?}: {task:?}");
                        all.push(task.id);
                    }
                    worker.turn(done(&claim), 0).await;
                }
                Err(failure) => {
                    assert_eq!(failure.cause, Cause::NoSession, "{failure}");
                    *worker = scene.worker_of(names).await;
                }
            }
        }
        scene.maintain().await;
    }
    all.sort_unstable();
    all
}

/// Scripts that remove, truncate or overwrite a field.
const DAMAGES: [&str; 5] = [
    "call('HDEL', key, field)",
    "call('HSET', key, field, '')",
    "call('HSET', key, field, string.sub(row, 1, -2))",
    "call('HSET', key, field, string.rep('\\200', #row))",
    "call('HSET', key, field, row .. 'x')",
];

/// A field that maintenance takes for damaged would be written again in each pass.
#[tokio::test]
async fn routes_of_a_paused_type_are_not_repaired() {
    needs_redis!();
    let (scene, workers) = divided().await;
    let store = &workers[0].store;
    store.set_paused("mail".into(), true).await.unwrap();
    let version = || scene.run("return call('HGET', 'routes', 'version')");
    let before = version();
    scene.maintain().await;
    assert_routes_are_whole(store, &scene.server, &scene.key("routes")).await;
    assert_eq!(version(), before);
}

#[tokio::test]
async fn a_damaged_field_is_written_again() {
    needs_redis!();
    let (scene, _workers) = divided().await;
    let count = scene.run("return call('HLEN', 'routes')");
    let Value::Int(fields) = count else {
        panic!("{count:?}")
    };
    assert!(fields > 12, "{fields}");
    let is_long = std::env::var_os("THRONG_LONG").is_some_and(|value| value == "1");
    for nth in 0..=fields {
        for (at, damage) in (0..).zip(DAMAGES) {
            if !is_long && (nth + at) % 3 != 0 {
                continue;
            }
            let (scene, workers) = divided().await;
            let pick = format!(
                "local fields = call('HKEYS', 'routes') table.sort(fields)
                local key, field = 'routes', fields[{nth}]
                if not field then key, field = 'meta', 'routes' end
                local row = call('HGET', key, field)
                {damage} return field"
            );
            let field = scene.run(&pick);
            scene.maintain().await;
            scene
                .worker
                .enqueue(
                    (10..19).map(|number| {
                        named(number, ["job", "mail", "report"][number as usize % 3])
                    }),
                )
                .await;
            let [one, other] = <[Worker; 2]>::try_from(workers).ok().unwrap();
            let mut workers = [(one, &["job", "mail"][..]), (other, &["job", "report"][..])];
            let ran = run_by(&scene, &mut workers).await;
            let expected: Vec<_> = (0..9).chain(10..19).map(id).collect();
            assert_eq!(ran, expected, "{field:?}: {damage}");
            assert_routes_are_whole(&scene.worker.store, &scene.server, &scene.key("routes")).await;
            scene.check();
        }
    }
}

/// A task that is stored while its type has no path is added to the type's own list. After the path has been written again,
/// no worker reads that list.
#[tokio::test]
async fn a_task_in_a_list_that_its_path_does_not_name_is_found() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([task(1), task(2)]).await;
    scene.run(
        "local entry = call('RPOP', 'ready')
        local function hex(c) return string.format('%02x', string.byte(c)) end
        call('RPUSH', 'ready:' .. string.gsub(string.sub(entry, 47, 54), '.', hex), entry)",
    );
    scene.maintain().await;
    let mut ran = scene.run_all(&scene.worker).await;
    ran.sort_unstable();
    assert_eq!(ran, [id(1), id(2)]);
    scene.check();
}

/// The tasks of the main list belong to types that the new set does not have.
#[tokio::test]
async fn a_new_set_gets_no_list_in_which_others_wait() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue((0..200).map(task)).await;
    scene.run("redis.call('DEL', ARGV[1] .. 'routes') call('HDEL', 'meta', 'routes')");
    let mail = scene.worker_of(&["mail"]).await;
    mail.enqueue([named(400, "mail")]).await;
    let claim = mail.claim(9).await;
    assert_eq!(claim.tasks.len(), 1, "{claim:?}");
    assert_eq!(claim.tasks[0].id, id(400));
    mail.turn(done(&claim), 0).await;
    // The set that is declared next gets all of them, in their order.
    let job = scene.worker_of(&["job"]).await;
    scene.maintain().await;
    assert_eq!(
        scene.run_all(&job).await,
        (0..200).map(id).collect::<Vec<_>>()
    );
    assert_eq!(scene.run_all(&mail).await, []);
    scene.check();
}

/// Half of the first list is drained when another set changes the routes again.
#[tokio::test]
async fn two_lists_drain_in_the_order_of_their_tasks() {
    needs_redis!();
    let scene = Scene::new().await;
    let some = |numbers: std::ops::Range<u64>, name| numbers.map(move |number| named(number, name));
    let all = scene.worker_of(&["one", "two", "three"]).await;
    all.enqueue(some(0..200, "one")).await;
    all.enqueue(some(200..400, "one")).await;
    let two = scene.worker_of(&["one", "two"]).await;
    two.turn(Vec::new(), 0).await;
    let one = scene.worker_of(&["one"]).await;
    all.enqueue(some(400..500, "one").chain(some(500..510, "two")))
        .await;
    let kind = kind_text("one");
    let path = scene.run(&format!("return #call('HGET', 'routes', 'k{kind}')"));
    assert_eq!(path, Value::Int(48), "three lists");
    assert_eq!(
        scene.run_all(&one).await,
        (0..500).map(id).collect::<Vec<_>>()
    );
    assert_eq!(
        scene.run_all(&two).await,
        (500..510).map(id).collect::<Vec<_>>()
    );
    scene.check();
}

/// While both lists have tasks, a claim takes its share of the list whose first task has waited longest.
#[tokio::test]
async fn a_claim_takes_a_share_of_the_list_that_has_waited_longest() {
    needs_redis!();
    let scene = Scene::new().await;
    let _only_a = scene.worker_of(&["a"]).await;
    let _only_b = scene.worker_of(&["b"]).await;
    let both = scene.worker_of(&["a", "b"]).await;
    for (first, name) in [(0, "a"), (100, "b"), (200, "a")] {
        both.enqueue((first..first + 100).map(|number| named(number, name)))
            .await;
        scene.clock.advance(SECOND);
    }
    // A quarter of what is wanted is more than 16.
    let mut claims = vec![names_and_ids(&both.claim(100).await)];
    while let Some(claim) = both.turn(Vec::new(), 40).await.claim {
        claims.push(names_and_ids(&claim));
    }
    let sizes: Vec<_> = claims
        .iter()
        .map(|(name, ids)| (*name, ids.len()))
        .collect();
    let (a, b) = (("a", 16), ("b", 16));
    let shares = [("a", 25), a, a, a, a, a, b, b, b, b, b, b, ("b", 4)];
    let rest = [("a", 40), ("a", 40), ("a", 15)];
    assert_eq!(sizes, [&shares[..], &rest].concat());
    let ids_of = |name| {
        claims
            .iter()
            .filter(move |it| it.0 == name)
            .flat_map(|it| &it.1)
    };
    assert!(ids_of("a").eq(&(0..100).chain(200..300).map(id).collect::<Vec<_>>()));
    assert!(ids_of("b").eq(&(100..200).map(id).collect::<Vec<_>>()));
    scene.check();
}

/// Returns the ids of a claim's tasks, which all have the same name.
fn names_and_ids(claim: &Claim) -> (&'static str, Vec<TaskId>) {
    let names = ["a", "b"];
    let all_are = |name: &&str| claim.tasks.iter().all(|task| *task.name == **name);
    let name = names.into_iter().find(all_are).expect("one list");
    (name, claim.tasks.iter().map(|task| task.id).collect())
}

/// Returns a kind as a string literal of Lua.
fn kind_text(name: &str) -> String {
    let bytes = Kind::of(name).to_bytes();
    bytes.iter().map(|byte| format!("\\{byte:03}")).collect()
}

/// Tasks that are stored by outdated routes are moved to lists from which workers of their type claim.
#[tokio::test]
async fn routes_that_a_client_knows_may_change_at_any_time() {
    needs_redis!();
    let scene = Scene::new().await;
    let sets: [&[&'static str]; 4] = [
        &["job", "mail"],
        &["job"],
        &["mail", "report"],
        &["job", "report"],
    ];
    let mut workers = vec![(scene.worker_of(sets[0]).await, sets[0])];
    let names = ["job", "mail", "report"];
    let mut next = 0;
    for round in 0..12 {
        let more = |number: u64| named(number, names[number as usize % 3]);
        let request = scene.worker.new_enqueue((next..next + 30).map(more));
        next += 30;
        let store = &scene.worker.store;
        let (stored, worker) =
            tokio::join!(store.enqueue(request), scene.worker_of(sets[round % 4]));
        stored.unwrap();
        workers.push((worker, sets[round % 4]));
        if round % 3 == 2 {
            let (gone, _) = workers.remove(0);
            gone.store.close_session(gone.session).await.unwrap();
        }
    }
    let ran = run_by(&scene, &mut workers).await;
    assert_eq!(ran, (0..next).map(id).collect::<Vec<_>>());
    scene.check();
}

/// Workers are idle until the next due time that they know, so one of any set must be woken.
#[tokio::test]
async fn a_task_that_is_due_earlier_wakes_a_worker_of_any_set() {
    needs_redis!();
    let scene = Scene::new().await;
    let mail = scene.worker_of(&["mail"]).await;
    scene
        .worker
        .store
        .close_session(scene.worker.session)
        .await
        .unwrap();
    let mut events = mail.store.events();
    until(&mut events, &Event::Ready).await;
    for (number, delay, is_woken) in [(1, 60, true), (2, 90, false), (3, 30, true)] {
        while mail.turn(Vec::new(), 1).await.claim.is_some() {}
        while events.try_recv().is_ok() {}
        let producer = scene.worker_of(&["bill"]).await;
        producer.enqueue([later(number, delay * SECOND)]).await;
        let idle = scene.run("return #redis.call('KEYS', ARGV[1] .. 'idle:*')");
        assert_eq!(idle, Value::Int(i64::from(!is_woken)), "{number}");
        if is_woken {
            until(&mut events, &Event::Wake(None)).await;
        }
    }
}

/// The store does not trust a client that still knows the routes from before they were lost.
#[tokio::test]
async fn lost_versions_are_not_reused() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([task(1)]).await;
    let before = routing::read(&scene.worker.store.inner, 0).await.unwrap();
    scene.clock.advance(Duration::from_secs(9));
    scene.run("redis.call('DEL', ARGV[1] .. 'routes') call('HDEL', 'meta', 'routes')");
    let mail = scene.worker_of(&["mail"]).await;
    let after = routing::read(&mail.store.inner, 0).await.unwrap();
    assert_ne!(before.known.version, after.known.version);
    scene.worker.enqueue([task(2)]).await;
    assert_eq!(scene.run_all(&mail).await, []);
}
