//! Runs the program on workloads whose counts are known.

use std::process::Command;

/// The system forbids `ptrace`, for example in a container. Nothing can be counted then.
const FORBIDDEN: &str = "ptrace is forbidden";

const TASKS: &str = "512";

/// The lines that move for each task of a workload on two threads, and those of them that all tasks share. `None` if
/// nothing can be counted here.
fn lines(workload: &str) -> Option<(f64, f64)> {
    let output = Command::new(env!("CARGO_BIN_EXE_throng-lines"))
        .args(["--tasks", TASKS, "--threads", "2", workload])
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains(FORBIDDEN) {
        eprintln!("skipped: {workload} is not counted, since {FORBIDDEN} here");
        return None;
    }
    let row = text.lines().last().unwrap_or_default();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let number = |cell: usize| cells.get(cell).and_then(|cell| cell.parse().ok());
    let numbers = number(5).zip(number(6));
    assert!(
        numbers.is_some(),
        "{workload} is not counted: {text}{errors}"
    );
    numbers
}

#[test]
fn a_word_that_two_threads_hand_over_moves_twice_each_time() {
    let Some((_, shared)) = lines("turns") else {
        return;
    };
    assert!((1.95..=2.05).contains(&shared), "{shared} lines");
}

#[test]
fn a_closure_of_a_compute_pool_moves_few_shared_lines() {
    let Some((all, shared)) = lines("compute-1") else {
        return;
    };
    assert!(all > 0.1, "{all} lines");
    assert!(shared < 4.0, "{shared} shared lines");
}
