//! Explores all states of a small store. In each state, waiting tasks are claimed in order, by workers that know them,
//! and no worker is idle that could run a task.
//!
//! A step of the exploration is an atomic step of a store: a script, or a
//! transaction. A worker has one permit. Wake-ups are never lost here: if a wake-up is lost with its worker,
//! another worker checks a little later, and no task is lost.
//!
//! The stores follow this rule: *after a step that puts a task into a list, or leaves one in a list that
//! the worker reads, one idle session of a set that reads the list is woken.* The tests show that it suffices, and that
//! weaker rules do not.
//!
//! A queue with a limit has another rule: *a task that stops running, or a higher limit, wakes one idle session for each list
//! of the queue that is not empty; and no session is woken for a list while its queue has no room.*

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use self::state::{Bounds, Rule, State};
use super::*;

mod state;
mod steps;

/// Explores all states. Returns their number.
fn explore(bounds: &Bounds, rule: Rule) -> usize {
    let first = Rc::new(State::new(bounds));
    let mut known = HashSet::from([Rc::clone(&first)]);
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        state.check(bounds);
        for mut next in state.steps(bounds, rule) {
            next.normalize(bounds);
            let next = Rc::new(next);
            if known.insert(Rc::clone(&next)) {
                open.push(next);
            }
        }
    }
    known.len()
}

/// Returns the bounds for workers with these sets of types, each of which is a letter.
fn bounds(sets: &[&str]) -> Bounds {
    let letters: BTreeSet<_> = sets.iter().flat_map(|set| set.chars()).collect();
    let kind = |letter: char| Kind::of(letter.encode_utf8(&mut [0; 4]));
    Bounds {
        kinds: letters.into_iter().map(kind).collect(),
        sets: sets
            .iter()
            .map(|set| TypeSet::of(set.chars().map(kind)))
            .collect(),
        // Two tasks are the least that have an order. A third one has never found anything more.
        pushes: if std::env::var_os("THRONG_LONG").is_some() {
            3
        } else {
            2
        },
        releases: 1,
        deaths: 1,
        pauses: 0,
        shutdowns: 0,
        limit: 0,
        raises: 0,
        drained: 1,
        routes: RefCell::default(),
    }
}

/// Returns the bounds for workers of the queue `q`, of which one task may run, and for one of the default queue. `queued` has
/// the sets of types of the workers of `q`.
fn limited(queued: &[&str], default: &str) -> Bounds {
    let queue = QueueName::new("q").expect("it is a valid name");
    let all = bounds(&[queued, &[default]].concat());
    let mut sets = all.sets.clone();
    for set in &mut sets[..queued.len()] {
        *set = set.in_queue(queue.clone());
    }
    let placed = sets.iter().flat_map(|set| set.placed());
    let normal = placed.filter(|(_, _, priority)| *priority == Priority::Normal);
    let kinds: BTreeSet<_> = normal.map(|&(kind, _, _)| kind).collect();
    Bounds {
        kinds: kinds.into_iter().collect(),
        sets,
        shutdowns: 1,
        releases: 0,
        limit: 1,
        ..all
    }
}

/// A worker starts that knows some of the types of another one.
#[test]
fn a_subset_of_the_types() {
    println!("{} states", explore(&bounds(&["ab", "a"]), Rule::Right));
}

/// The list is split again while it drains.
#[test]
fn a_list_that_is_split_again() {
    let sets = Bounds {
        releases: 0,
        ..bounds(&["ab", "a", "b"])
    };
    println!("{} states", explore(&sets, Rule::Right));
}

#[test]
fn sets_that_overlap() {
    let sets = Bounds {
        releases: 0,
        ..bounds(&["ab", "bc"])
    };
    println!("{} states", explore(&sets, Rule::Right));
}

/// A worker with the same types starts after the first one has died.
#[test]
fn equal_sets() {
    let sets = Bounds {
        deaths: 2,
        releases: 0,
        ..bounds(&["ab", "ab", "a"])
    };
    println!("{} states", explore(&sets, Rule::Right));
}

/// A type is paused and resumed while its tasks wait, run and return.
#[test]
fn a_paused_type() {
    let sets = Bounds {
        deaths: 0,
        pauses: 2,
        ..bounds(&["ab"])
    };
    println!("{} states", explore(&sets, Rule::Right));
}

/// A worker starts or dies while a type is paused.
#[test]
fn a_paused_type_in_different_sets() {
    let sets = Bounds {
        releases: 0,
        pauses: 2,
        ..bounds(&["ab", "a"])
    };
    println!("{} states", explore(&sets, Rule::Right));
}

/// Two workers know the same types.
#[test]
fn a_limited_queue() {
    println!(
        "{} states",
        explore(&limited(&["a", "a"], "a"), Rule::Right)
    );
}

#[test]
fn a_limited_queue_of_different_workers() {
    println!(
        "{} states",
        explore(&limited(&["ab", "b"], ""), Rule::Right)
    );
}

/// A task of a limited queue is released, or its worker dies, and the limit is raised.
#[test]
fn a_limited_queue_of_two_types() {
    let sets = Bounds {
        releases: 1,
        raises: 1,
        ..limited(&["a", "b"], "")
    };
    println!("{} states", explore(&sets, Rule::Right));
}

#[test]
#[should_panic(expected = "idle")]
fn a_freed_permit_must_wake_a_worker() {
    explore(&limited(&["a", "a"], ""), Rule::FreeingWakesNobody);
}

#[test]
#[should_panic(expected = "idle")]
fn a_freed_permit_must_wake_a_reader_of_each_list() {
    explore(&limited(&["a", "b"], ""), Rule::FreeingWakesOwnList);
}

#[test]
#[should_panic(expected = "idle")]
fn a_raised_limit_must_wake_a_worker() {
    let sets = Bounds {
        raises: 1,
        ..limited(&["a", "a"], "")
    };
    explore(&sets, Rule::RaiseWakesNobody);
}

/// A higher limit allows two more tasks, and one worker is woken.
#[test]
#[should_panic(expected = "idle")]
fn a_turn_that_leaves_tasks_and_room_must_wake_a_worker() {
    let sets = Bounds {
        raises: 1,
        pushes: 3,
        ..limited(&["a", "a", "a"], "")
    };
    explore(&sets, Rule::LeavingWakesNobody);
}

#[test]
#[should_panic(expected = "limit")]
fn a_claim_must_count_the_running_tasks() {
    explore(&limited(&["a", "a"], ""), Rule::IgnoresLimit);
}

#[test]
#[should_panic(expected = "idle")]
fn a_resumed_type_must_wake_a_worker() {
    let sets = Bounds {
        pauses: 2,
        ..bounds(&["ab"])
    };
    explore(&sets, Rule::ResumeWakesNobody);
}

#[test]
#[should_panic(expected = "idle")]
fn a_paused_type_must_wake_another_reader_of_its_lists() {
    let sets = Bounds {
        releases: 0,
        pauses: 1,
        ..bounds(&["ab", "a"])
    };
    explore(&sets, Rule::PauseWakesNobody);
}

#[test]
#[should_panic(expected = "idle")]
fn a_drain_must_wake_a_worker() {
    explore(&bounds(&["ab", "a"]), Rule::DrainWakesNobody);
}

#[test]
#[should_panic(expected = "idle")]
fn a_turn_that_leaves_tasks_must_wake_a_worker() {
    explore(&bounds(&["ab", "ab", "a"]), Rule::LeavingWakesNobody);
}

#[test]
#[should_panic(expected = "idle")]
fn a_wake_up_must_reach_a_reader() {
    explore(&bounds(&["ab", "a"]), Rule::WakesAnyone);
}

#[test]
#[should_panic(expected = "idle")]
fn a_session_that_drains_is_not_idle() {
    explore(&bounds(&["ab", "a"]), Rule::IdleWhileDraining);
}

#[test]
#[should_panic(expected = "overtaken")]
fn a_draining_list_is_not_claimed_from() {
    explore(&bounds(&["ab", "a"]), Rule::ClaimsWhileDraining);
}
