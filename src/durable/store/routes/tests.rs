//! The routes in the situations of a deployment.

use super::*;

fn kind(name: &str) -> Kind {
    Kind::of(name)
}

fn set(names: &[&str]) -> TypeSet {
    TypeSet::of_names(names.iter().copied()).expect("no two of these names have one kind")
}

fn list(number: i64) -> ListId {
    ListId::from_number(number)
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("it is a valid name")
}

/// Returns the set of the same types in the queue `q`.
fn queued(set: &TypeSet) -> TypeSet {
    set.in_queue(queue("q"))
}

/// Returns the kind of a type in the queue `q`, with a priority.
fn placed(name: &str, priority: Priority) -> Kind {
    kind(name).placed(&queue("q"), priority)
}

/// Routes after these sets were declared, with nothing waiting.
fn declared(sets: &[&TypeSet]) -> Routes {
    let mut routes = Routes::default();
    for set in sets {
        routes.declare(set);
        routes.collapse(|_| true);
    }
    routes
}

#[test]
fn workers_that_know_the_same_share_the_main_list() {
    let both = set(&["a", "b"]);
    let routes = declared(&[&both, &both]);
    assert_eq!(routes.plain(), Some(both.id()));
    assert_eq!(routes.entrance(kind("a")), ListId::MAIN);
    assert_eq!(routes.leaves(both.id()), BTreeSet::from([ListId::MAIN]));
    assert_eq!(routes.draining(both.id()), []);
}

#[test]
fn an_unknown_type_has_its_own_list() {
    let routes = declared(&[&set(&["a"])]);
    let unknown = kind("b");
    assert_eq!(routes.entrance(unknown), ListId::own(unknown));
    assert!(!routes.is_known(unknown));
    assert_eq!(routes.readers(ListId::own(unknown)).count(), 0);
}

#[test]
fn two_services_have_a_list_each() {
    let (one, other) = (set(&["a", "b"]), set(&["c", "d"]));
    let routes = declared(&[&one, &other]);
    assert_eq!(routes.plain(), None);
    assert_eq!(routes.leaves(one.id()), BTreeSet::from([ListId::MAIN]));
    assert_eq!(routes.leaves(other.id()), BTreeSet::from([list(1)]));
    assert_eq!(routes.readers(list(1)).collect::<Vec<_>>(), [other.id()]);
}

#[test]
fn a_hundred_services_have_one_list_each() {
    let names: Vec<_> = (0..200).map(|number| format!("type-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let sets: Vec<_> = names.chunks(2).map(set).collect();
    let routes = declared(&sets.iter().collect::<Vec<_>>());
    for set in &sets {
        assert_eq!(routes.leaves(set.id()).len(), 1);
    }
}

/// When a deployment adds a type, the old workers keep their list, and nothing drains.
#[test]
fn a_set_that_adds_a_type_leaves_the_main_list_alone() {
    let (old, new) = (set(&["a", "b"]), set(&["a", "b", "c"]));
    let mut routes = declared(&[&old, &new]);
    assert_eq!(routes.leaves(old.id()), BTreeSet::from([ListId::MAIN]));
    assert_eq!(
        routes.leaves(new.id()),
        BTreeSet::from([ListId::MAIN, list(1)])
    );
    // When the last old worker has stopped, the two lists are joined.
    routes.remove(old.id());
    assert_eq!(routes.draining(new.id()), [list(1)]);
    assert_eq!(routes.next(kind("c"), list(1)), Some(ListId::MAIN));
    routes.collapse(|_| true);
    assert_eq!(routes.plain(), Some(new.id()));
}

#[test]
fn a_split_list_drains_into_two() {
    let (both, one) = (set(&["a", "b"]), set(&["a"]));
    let mut routes = declared(&[&both]);
    routes.declare(&one);
    let (a, b) = (kind("a"), kind("b"));
    assert_eq!(
        (routes.entrance(a), routes.entrance(b)),
        (ListId::MAIN, ListId::MAIN)
    );
    assert_ne!(routes.leaf(a), routes.leaf(b));
    assert_eq!(routes.draining(one.id()), [ListId::MAIN]);
    assert_eq!(routes.next(a, ListId::MAIN), Some(routes.leaf(a)));
    routes.collapse(|_| false);
    assert_eq!(routes.entrance(a), ListId::MAIN);
    routes.collapse(|_| true);
    assert_eq!(routes.entrance(a), routes.leaf(a));
    assert_eq!(routes.draining(one.id()), []);
}

#[test]
fn split_kinds_return_to_the_main_list() {
    let (both, one) = (set(&["a", "b"]), set(&["a"]));
    let mut routes = declared(&[&both, &one]);
    routes.remove(one.id());
    routes.collapse(|_| true);
    assert_eq!(routes.plain(), Some(both.id()));
}

#[test]
fn a_forgotten_type_keeps_its_list_while_tasks_wait() {
    let (one, other) = (set(&["a"]), set(&["b"]));
    let mut routes = declared(&[&one, &other]);
    let leaf = routes.leaf(kind("b"));
    routes.remove(other.id());
    routes.collapse(|list| list != leaf);
    assert_eq!(routes.entrance(kind("b")), leaf);
    routes.collapse(|_| true);
    assert_eq!(routes.entrance(kind("b")), ListId::own(kind("b")));
}

#[test]
fn two_names_with_one_kind_cannot_be_in_a_set() {
    // Names with equal hashes cannot be found, but equal kinds can be repeated.
    assert_eq!(TypeSet::of([kind("a"), kind("a")]).types().len(), 1);
    assert_eq!(set(&["a", "a"]), set(&["a"]));
}

#[test]
fn a_paused_type_has_a_list_that_nobody_reads() {
    let both = set(&["a", "b"]);
    let mut routes = declared(&[&both]);
    routes.pause("a", [kind("a")]);
    assert!(routes.is_paused(kind("a")) && !routes.is_paused(kind("b")));
    assert_eq!(routes.paused().collect::<Vec<_>>(), ["a"]);
    assert_eq!(routes.plain(), None);
    // The tasks that wait in the main list are moved to two others.
    assert_eq!(routes.draining(both.id()), [ListId::MAIN]);
    let leaf = routes.leaf(kind("a"));
    assert_eq!(routes.readers(leaf).count(), 0);
    assert_eq!(
        routes.leaves(both.id()),
        BTreeSet::from([routes.leaf(kind("b"))])
    );

    routes.collapse(|list| list == ListId::MAIN);
    routes.resume("a");
    routes.collapse(|_| true);
    assert_eq!(
        (routes.plain(), routes.paused().count()),
        (Some(both.id()), 0)
    );
}

#[test]
fn the_only_type_is_paused() {
    let only = set(&["a"]);
    let mut routes = declared(&[&only]);
    routes.pause("a", only.types().to_vec());
    assert_eq!(routes.plain(), None);
    assert!(routes.leaves(only.id()).is_empty());
    assert!(routes.draining(only.id()).is_empty());
    // Another set does not read its list either.
    let other = set(&["b"]);
    routes.declare(&other);
    assert!(!routes.leaves(other.id()).contains(&routes.leaf(kind("a"))));
    routes.remove(only.id());
    routes.collapse(|_| true);
    assert_eq!(routes.entrance(kind("a")), ListId::own(kind("a")));
    // It is still paused for a worker that starts later.
    routes.declare(&only);
    assert_eq!(routes.readers(routes.leaf(kind("a"))).count(), 0);
    routes.resume("a");
    assert_eq!(
        routes.readers(routes.leaf(kind("a"))).collect::<Vec<_>>(),
        [only.id()]
    );
}

#[test]
fn an_unknown_type_can_be_paused() {
    let mut routes = Routes::default();
    routes.pause("a", [kind("a")]);
    routes.pause("a", [kind("a")]);
    assert_eq!(routes.entrance(kind("a")), ListId::own(kind("a")));
    routes.resume("a");
    routes.resume("a");
    assert_eq!(routes, Routes::default());
}

#[test]
fn stored_routes_without_paused_types_are_read() {
    let routes = declared(&[&set(&["a"])]);
    let text = serde_json::to_string(&routes).unwrap();
    assert!(!text.contains("paused"), "{text}");
    assert_eq!(serde_json::from_str::<Routes>(&text).unwrap(), routes);
    let mut paused = routes;
    paused.pause("a", [kind("a")]);
    let text = serde_json::to_string(&paused).unwrap();
    assert_eq!(serde_json::from_str::<Routes>(&text).unwrap(), paused);
}

#[test]
fn a_queue_has_a_list_of_its_own() {
    let both = set(&["a", "b"]);
    let in_queue = queued(&both);
    for sets in [[&both, &in_queue], [&in_queue, &both]] {
        let routes = declared(&sets);
        assert_eq!(routes.leaves(both.id()), BTreeSet::from([ListId::MAIN]));
        assert_eq!(routes.leaves(in_queue.id()), BTreeSet::from([list(1)]));
        assert_eq!(routes.queue(in_queue.id()), queue("q"));
        assert_eq!(
            routes.lists_of_queue(&queue("q")),
            BTreeSet::from([list(1)])
        );
        assert_eq!(routes.lists_of_queue(&queue("r")), BTreeSet::new());
        assert_eq!(routes.readers(list(1)).collect::<Vec<_>>(), [in_queue.id()]);
        assert_eq!(
            routes.readers(ListId::MAIN).collect::<Vec<_>>(),
            [both.id()]
        );
        assert_eq!(routes.entrance(placed("a", Priority::Normal)), list(1));
        assert_eq!(routes.entrance(kind("a")), ListId::MAIN);
        assert!(routes.draining(both.id()).is_empty() && routes.draining(in_queue.id()).is_empty());
        assert_eq!(routes.plain(), None);
    }
}

#[test]
fn the_main_list_is_only_for_the_default_queue() {
    let both = set(&["a", "b"]);
    let mut routes = declared(&[&queued(&both)]);
    assert_eq!(routes.plain(), None);
    assert_eq!(routes.leaves(queued(&both).id()), BTreeSet::from([list(1)]));
    // The last workers of the queue stop, and others of the default queue start.
    routes.declare(&both);
    routes.remove(queued(&both).id());
    routes.collapse(|_| true);
    assert_eq!(routes.plain(), Some(both.id()));
    assert_eq!(
        routes.entrance(placed("a", Priority::Normal)),
        ListId::own(placed("a", Priority::Normal))
    );
}

#[test]
fn a_queue_that_is_served_later_drains_its_own_lists() {
    let both = set(&["a", "b"]);
    let mut routes = declared(&[&both]);
    let waits = placed("a", Priority::Normal);
    assert_eq!(routes.entrance(waits), ListId::own(waits));
    routes.declare(&queued(&both));
    let kinds = both.types().len();
    assert_eq!(routes.draining(queued(&both).id()).len(), kinds);
    assert!(routes.draining(both.id()).is_empty());
    assert_eq!(routes.path(waits), [ListId::own(waits), list(1)]);
    routes.collapse(|list| list != ListId::own(waits));
    assert_eq!(routes.draining(queued(&both).id()), [ListId::own(waits)]);
}

#[test]
fn workers_of_a_queue_may_know_different_types() {
    let (both, one) = (set(&["a", "b"]), set(&["a"]));
    let routes = declared(&[&both, &queued(&both), &queued(&one)]);
    assert_eq!(routes.leaves(both.id()), BTreeSet::from([ListId::MAIN]));
    assert_eq!(routes.leaves(queued(&both).id()).len(), 2);
    let shared = routes.leaf(placed("a", Priority::Normal));
    assert_eq!(routes.leaves(queued(&one).id()), BTreeSet::from([shared]));
    assert_eq!(routes.lists_of_queue(&queue("q")).len(), 2);
}

#[test]
fn each_priority_has_a_list_once_priorities_are_used() {
    let both = set(&["a", "b"]);
    for uses_priorities_first in [false, true] {
        let mut routes = Routes::default();
        if uses_priorities_first {
            routes.use_priorities();
        }
        routes.declare(&both);
        routes.declare(&queued(&both));
        if !uses_priorities_first {
            assert!(!routes.is_known(kind("a").placed(&QueueName::DEFAULT, Priority::High)));
            assert_eq!(routes.leaves_at(both.id(), Priority::High), BTreeSet::new());
            routes.use_priorities();
        }
        routes.use_priorities();
        assert!(routes.uses_priorities());
        // Nothing waits in the lists that the kinds had of their own.
        routes.collapse(|_| true);
        let mut lists = BTreeSet::new();
        for set in [&both, &queued(&both)] {
            for priority in Priority::ALL {
                let leaves = routes.leaves_at(set.id(), priority);
                assert_eq!(leaves.len(), 1, "{priority:?}");
                assert!(lists.insert(leaves), "shared by two priorities or queues");
            }
            assert_eq!(routes.leaves(set.id()).len(), 3);
            assert!(routes.draining(set.id()).is_empty());
        }
        let main = BTreeSet::from([ListId::MAIN]);
        assert_eq!(routes.leaves_at(both.id(), Priority::Normal), main);
        assert_eq!(routes.plain(), None);
        assert_eq!(routes.lists_of_queue(&queue("q")).len(), 3);
    }
}

#[test]
fn a_priority_that_is_used_first_moves_no_other_task() {
    let both = set(&["a", "b"]);
    let mut routes = declared(&[&both]);
    assert_eq!(routes.plain(), Some(both.id()));
    routes.use_priorities();
    assert_eq!(routes.path(kind("a")), [ListId::MAIN]);
    let high = kind("a").placed(&QueueName::DEFAULT, Priority::High);
    // Tasks of the priority may have waited before, if they were of an unknown type.
    assert_eq!(routes.entrance(high), ListId::own(high));
    assert!(routes.leaf(high).is_shared());
}

#[test]
fn a_paused_type_is_paused_in_all_queues_and_priorities() {
    let both = set(&["a", "b"]);
    let mut routes = declared(&[&both, &queued(&both)]);
    routes.use_priorities();
    routes.collapse(|_| true);
    routes.pause("a", [kind("a")]);
    let queues = [QueueName::DEFAULT, queue("q")];
    for (queue, set) in queues.iter().zip([&both, &queued(&both)]) {
        for priority in Priority::ALL {
            let (a, b) = (
                kind("a").placed(queue, priority),
                kind("b").placed(queue, priority),
            );
            assert!(routes.is_paused(a) && !routes.is_paused(b));
            assert_eq!(routes.readers(routes.leaf(a)).count(), 0);
            assert_eq!(
                routes.leaves_at(set.id(), priority),
                BTreeSet::from([routes.leaf(b)])
            );
        }
    }
    assert_eq!(routes.kinds_of(kind("a")).len(), 6);
    routes.collapse(|_| true);
    routes.resume("a");
    routes.collapse(|_| true);
    for set in [&both, &queued(&both)] {
        assert_eq!(routes.leaves(set.id()).len(), 3);
        assert!(routes.draining(set.id()).is_empty());
    }
}

/// A list has tasks of one queue, even while a type is paused that is in several queues.
#[test]
fn no_list_is_shared_by_two_queues() {
    let only = set(&["a"]);
    for pauses_first in [false, true] {
        let mut routes = Routes::default();
        if pauses_first {
            routes.pause("a", [kind("a")]);
        }
        routes.declare(&only);
        routes.declare(&queued(&only));
        routes.use_priorities();
        routes.collapse(|_| true);
        routes.pause("a", [kind("a")]);
        for is_paused in [true, false] {
            let lists = [QueueName::DEFAULT, queue("q")].map(|queue| routes.lists_of_queue(&queue));
            assert!(lists[0].is_disjoint(&lists[1]), "{lists:?}");
            assert!(!lists[1].contains(&ListId::MAIN));
            if is_paused {
                routes.resume("a");
            }
        }
    }
}

#[test]
fn a_forgotten_queue_keeps_its_lists_while_tasks_wait() {
    let both = set(&["a", "b"]);
    let mut routes = declared(&[&both, &queued(&both)]);
    let waits = placed("a", Priority::Normal);
    let leaf = routes.leaf(waits);
    routes.remove(queued(&both).id());
    routes.collapse(|list| list != leaf);
    assert_eq!((routes.entrance(waits), leaf), (leaf, list(1)));
    assert_eq!(routes.lists_of_queue(&queue("q")), BTreeSet::new());
    assert_eq!(routes.leaves(both.id()), BTreeSet::from([ListId::MAIN]));
    // It is served again.
    routes.declare(&queued(&both));
    assert_eq!(routes.leaves(queued(&both).id()), BTreeSet::from([leaf]));
    routes.remove(queued(&both).id());
    routes.collapse(|_| true);
    assert_eq!(routes.entrance(waits), ListId::own(waits));
    assert_eq!(routes.plain(), Some(both.id()));
}

#[test]
fn stored_routes_of_queues_and_priorities_are_read() {
    let both = set(&["a", "b"]);
    let plain = serde_json::to_string(&declared(&[&both])).unwrap();
    assert!(
        !plain.contains("queue") && !plain.contains("priorities"),
        "{plain}"
    );
    let mut routes = declared(&[&both, &queued(&both)]);
    routes.use_priorities();
    let text = serde_json::to_string(&routes).unwrap();
    assert_eq!(serde_json::from_str::<Routes>(&text).unwrap(), routes);
}
