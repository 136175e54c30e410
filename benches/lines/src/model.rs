//! The model of caches: who has which line.

use std::collections::HashMap;

/// Threads that are told apart; each has a bit of a word.
pub(crate) const MAX_THREADS: usize = 128;

const LINE_BYTES: u64 = 64;

/// The number of lines whose transfers are shown one by one.
const SHOWN: usize = 6;

/// A line that moves at least once for so many tasks is shared by all of them. The others belong to one task at a time.
const TASKS_PER_MOVE: u64 = 20;

/// The caches of all threads.
#[derive(Default)]
pub(crate) struct Caches {
    lines: HashMap<u64, Line>,
    counts: Counts,
}

#[derive(Default)]
struct Line {
    /// The threads that have a valid copy, a bit for each. One that is alone may write.
    holders: u128,
    moves: u64,
}

/// What was counted.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    /// Instructions that have exclusive access to a line while they read and write it.
    pub(crate) locked: u64,
    /// Accesses to lines of which the thread had no copy, or no exclusive one, while another thread had one.
    moves: u64,
    /// The moves of each line, the largest number first.
    of_lines: Vec<u64>,
}

impl Caches {
    pub(crate) fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// A thread accesses so many bytes.
    pub(crate) fn access(&mut self, thread: usize, address: u64, bytes: u64, writes: bool) {
        let last = address + bytes.max(1) - 1;
        for line in address / LINE_BYTES..=last / LINE_BYTES {
            self.access_line(thread, line, writes);
        }
    }

    fn access_line(&mut self, thread: usize, line: u64, writes: bool) {
        let own = 1_u128 << thread;
        let line = self.lines.entry(line).or_default();
        let others = line.holders & !own != 0;
        let has_it = line.holders & own != 0;
        if others && (writes || !has_it) {
            line.moves += 1;
            self.counts.moves += 1;
        }
        line.holders = if writes { own } else { line.holders | own };
    }

    pub(crate) fn finish(self) -> Counts {
        let mut of_lines: Vec<u64> = self.lines.into_values().map(|line| line.moves).collect();
        of_lines.sort_unstable_by(|one, other| other.cmp(one));
        Counts {
            of_lines,
            ..self.counts
        }
    }
}

impl Counts {
    /// The cells of a table, for each task.
    pub(crate) fn text(&self, tasks: u64) -> String {
        let per_task = |number: u64| number as f64 / tasks as f64;
        let is_shared = |moves: &&u64| **moves * TASKS_PER_MOVE >= tasks;
        let shared = self.of_lines.iter().filter(is_shared);
        let shown = shared.clone().take(SHOWN);
        let shown = shown.map(|&moves| format!("{:.2}", per_task(moves)));
        format!(
            "{:.0} | {:.2} | {:.2} | {:.2} | {}",
            per_task(self.instructions),
            per_task(self.locked),
            per_task(self.moves),
            per_task(shared.sum()),
            shown.collect::<Vec<_>>().join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accesses of threads to one line: the thread, and `true` if it writes.
    fn moves(accesses: &[(usize, bool)]) -> u64 {
        let mut caches = Caches::default();
        for &(thread, writes) in accesses {
            caches.access(thread, 8, 8, writes);
        }
        caches.finish().moves
    }

    #[test]
    fn a_line_of_one_thread_never_moves() {
        assert_eq!(moves(&[(0, true), (0, false), (0, true)]), 0);
    }

    #[test]
    fn a_line_that_is_written_in_turns_moves_each_time() {
        assert_eq!(moves(&[(0, true), (1, true), (0, true), (1, true)]), 3);
    }

    #[test]
    fn a_line_moves_to_each_reader_once_and_back_to_the_writer() {
        assert_eq!(moves(&[(0, true), (1, false), (1, false), (2, false)]), 2);
        assert_eq!(moves(&[(0, true), (1, false), (0, false), (0, true)]), 2);
    }

    #[test]
    fn an_access_can_span_two_lines() {
        let mut caches = Caches::default();
        caches.access(0, 60, 8, true);
        caches.access(1, 60, 8, true);
        assert_eq!(caches.finish().of_lines, [1, 1]);
    }
}
