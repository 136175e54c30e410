//! The model of caches: who has which line, and since when.

use std::collections::{HashMap, VecDeque};

/// Threads that are told apart; each has a bit of a word.
pub(crate) const MAX_THREADS: usize = 128;

const LINE_BYTES: u64 = 64;

/// The time that a line takes from one core to another.
const TRANSFER_PS: u64 = 80_000;

/// The time for which a core keeps a line that has arrived, before it answers the request of another core.
const HOLD_PS: u64 = 5_000;

/// The time that a line takes if the core has just fetched one beside it: processors fetch the next lines in advance.
const FETCHED_PS: u64 = 10_000;

/// The number of lines that a core has just fetched.
const RECENT: usize = 16;

/// The number of lines whose transfers are shown one by one.
const SHOWN: usize = 6;

/// A line that moves at least once for so many tasks is shared by all of them. The others belong to one task at a time.
const TASKS_PER_MOVE: u64 = 20;

/// The caches of all threads.
#[derive(Default)]
pub(crate) struct Caches {
    lines: HashMap<u64, Line>,
    /// The lines that each thread has fetched last.
    recent: HashMap<usize, VecDeque<u64>>,
    counts: Counts,
}

#[derive(Default)]
struct Line {
    /// The threads that have a valid copy or have asked for one, a bit for each. One that is alone may write.
    holders: u128,
    /// No thread can take a copy before this time: the line is on its way to one that writes.
    written_until: u64,
    /// No thread can write before this time: the line is on its way to one that reads.
    read_until: u64,
    moves: u64,
}

/// The answer to a thread that needs a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has the line.
    Has,
    /// The line arrives at this time.
    Arrives(u64),
    /// The line is on its way to another thread. The thread asks again at this time.
    Busy(u64),
}

/// What was counted.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    /// Instructions that have exclusive access to a line while they read and write it.
    pub(crate) locked: u64,
    /// The time from the first instruction to the last one.
    pub(crate) ps: u64,
    /// Accesses to lines of which the thread had no copy, or no exclusive one, while another thread had one.
    moves: u64,
    /// The moves of each line, the largest number first.
    of_lines: Vec<u64>,
}

impl Caches {
    pub(crate) fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// A thread needs so many bytes at the time `now`. Returns the answer for the last of their lines.
    pub(crate) fn access(
        &mut self,
        thread: usize,
        (address, bytes): (u64, u64),
        writes: bool,
        now: u64,
    ) -> Answer {
        let last = address + bytes.max(1) - 1;
        let lines = address / LINE_BYTES..=last / LINE_BYTES;
        let answers = lines.map(|line| self.access_line(thread, line, writes, now));
        answers.max_by_key(Answer::time).unwrap_or(Answer::Has)
    }

    fn access_line(&mut self, thread: usize, number: u64, writes: bool, now: u64) -> Answer {
        let own = 1_u128 << thread;
        let line = self.lines.entry(number).or_default();
        let others = line.holders & !own != 0;
        let has_it = line.holders & own != 0;
        if !others || (has_it && !writes) {
            line.holders |= own;
            return Answer::Has;
        }
        let free_at = match writes {
            true => line.written_until.max(line.read_until),
            false => line.written_until,
        };
        if now < free_at {
            return Answer::Busy(free_at);
        }
        let recent = self.recent.entry(thread).or_default();
        let arrives_at = now + time_to_fetch(number, recent);
        match writes {
            true => (line.holders, line.written_until) = (own, arrives_at + HOLD_PS),
            false => {
                line.holders |= own;
                line.read_until = arrives_at + HOLD_PS;
            }
        }
        line.moves += 1;
        self.counts.moves += 1;
        Answer::Arrives(arrives_at)
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

fn time_to_fetch(line: u64, recent: &mut VecDeque<u64>) -> u64 {
    let is_beside = recent.iter().any(|other| line.abs_diff(*other) == 1);
    recent.push_front(line);
    recent.truncate(RECENT);
    match is_beside {
        true => FETCHED_PS,
        false => TRANSFER_PS,
    }
}

impl Answer {
    fn time(&self) -> u64 {
        match *self {
            Self::Has => 0,
            Self::Arrives(time) | Self::Busy(time) => time,
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
            "{:.0} | {:.2} | {:.2} | {:.2} | {} | {:.0}",
            per_task(self.instructions),
            per_task(self.locked),
            per_task(self.moves),
            per_task(shared.sum()),
            shown.collect::<Vec<_>>().join(", "),
            per_task(self.ps) / 1_000.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accesses of threads to one line, long after one another: the thread, and `true` if it writes.
    fn moves(accesses: &[(usize, bool)]) -> u64 {
        let mut caches = Caches::default();
        for (time, &(thread, writes)) in (1..).zip(accesses) {
            caches.access(thread, (8, 8), writes, time * 1_000_000);
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
        caches.access(0, (60, 8), true, 0);
        caches.access(1, (60, 8), true, 0);
        assert_eq!(caches.finish().of_lines, [1, 1]);
    }

    #[test]
    fn a_line_that_several_threads_write_moves_from_one_to_the_next() {
        let mut caches = Caches::default();
        let mut write = |thread, now| caches.access(thread, (8, 8), true, now);
        assert_eq!(write(0, 0), Answer::Has);
        assert_eq!(write(1, 0), Answer::Arrives(TRANSFER_PS));
        let free_at = TRANSFER_PS + HOLD_PS;
        assert_eq!(write(2, 1), Answer::Busy(free_at));
        assert_eq!(write(1, TRANSFER_PS), Answer::Has);
        assert_eq!(write(2, free_at), Answer::Arrives(free_at + TRANSFER_PS));
    }

    #[test]
    fn several_threads_read_a_line_at_the_same_time() {
        let mut caches = Caches::default();
        let mut access = |thread, writes| caches.access(thread, (8, 8), writes, 0);
        assert_eq!(access(0, true), Answer::Has);
        assert_eq!(access(1, false), Answer::Arrives(TRANSFER_PS));
        assert_eq!(access(2, false), Answer::Arrives(TRANSFER_PS));
        assert_eq!(access(0, true), Answer::Busy(TRANSFER_PS + HOLD_PS));
    }
}
