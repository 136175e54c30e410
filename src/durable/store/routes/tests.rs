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
