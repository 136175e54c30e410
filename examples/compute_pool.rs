//! Counts the words of a large text in many tiny tasks, on a `ComputePool` and on others.
//!
//! ```sh
//! cargo run --release --example compute_pool -- [INPUT] [--bytes N]
//! ```
//!
//! Every pool gets the same closures, from the same thread, and has as many threads as there are cores.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::error::Error;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use std::{fs, io, iter, thread};

use clap::Parser;
use indicatif::ProgressBar;
use throng::ComputePool;
use tokio::runtime::Runtime;

/// Counts the words of a large text in many tiny tasks: on a ComputePool, with tokio::spawn and
/// rayon::spawn, and in a plain loop. Checks that the counts are equal, and prints a table of times.
#[derive(Debug, Parser)]
struct Args {
    /// A text, or a directory, whose *.rs files are repeated up to 100 MB
    #[arg(default_value = ".")]
    input: PathBuf,

    /// The number of bytes that a task counts, or a few more: it ends where a word ends
    #[arg(long, value_name = "N", default_value = "100")]
    bytes: NonZeroUsize,
}

/// The number of bytes to which the text of a directory is extended.
const MADE: usize = 100_000_000;

/// A part of the text, which lives as long as the program, so that a task can borrow it.
type Piece = &'static [u8];

/// Submits the tasks.
type Submit = fn(&ComputePool, &'static Work);

const CONTENDERS: [Submit; 5] = [
    |_, work| work.tasks().for_each(|task| task()),
    |pool, work| pool.execute_batch(work.tasks()),
    |pool, work| work.tasks().for_each(|task| pool.execute(task)),
    |_, work| work.tasks().for_each(|t| drop(tokio::spawn(async { t() }))),
    |_, work| work.tasks().for_each(rayon::spawn),
];

const NAMES: [&str; 5] = [
    "a loop, one thread",
    "ComputePool::execute_batch",
    "ComputePool::execute",
    "tokio::spawn",
    "rayon::spawn",
];

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let text = text_of(&args.input)?.leak();
    let pieces = Vec::from_iter(cut(text, args.bytes)).leak();
    let runtime = Runtime::new()?;
    let _entered = runtime.enter();

    let results = compete(&ComputePool::builder().build()?, pieces);
    print_words(&results[0].1);
    let (bytes, tasks) = (text.len() as f64, pieces.len() as f64);
    println!("\n{tasks} tasks, {bytes} bytes");
    for (name, (time, _)) in NAMES.iter().zip(&results) {
        let seconds = time.as_secs_f64();
        let (each, pace) = (seconds / tasks * 1e9, bytes / seconds / 1e6);
        println!("{name:<26} {seconds:6.3} s {each:6.0} ns/task {pace:5.0} MB/s");
    }
    println!("\n{MEANING}");
    Ok(())
}

const MEANING: &str = "\
The time beyond that of the loop divided by the number of cores is the cost of submitting tasks one by one,
as a server does. If all data exists at the start, as it does here, rayon's par_iter and join are the better
choice: they pass a task to another thread only if that thread is idle.";

/// Counts the words with each contender, and compares the results.
fn compete(pool: &ComputePool, pieces: &'static [Piece]) -> [(Duration, Words); 5] {
    let bar = ProgressBar::new(CONTENDERS.len() as u64);
    bar.enable_steady_tick(Duration::from_millis(100));
    let results = CONTENDERS.map(|submit| {
        // Warm up, so that all threads exist before the measurement.
        count(submit, pool, &pieces[..pieces.len() / 20]);
        bar.inc(1);
        count(submit, pool, pieces)
    });
    bar.finish_and_clear();
    let are_equal = results.iter().all(|(_, words)| *words == results[0].1);
    assert!(are_equal, "two counts of the same text differ");
    results
}

/// Counts the words, and measures the time from the first submission to the end of the last task.
fn count(submit: Submit, pool: &ComputePool, pieces: &'static [Piece]) -> (Duration, Words) {
    let shards = Default::default();
    let work: &Work = Box::leak(Box::new(Work { pieces, shards }));
    let start = Instant::now();
    submit(pool, work);
    while !work.is_done() {
        thread::sleep(Duration::from_millis(1));
    }
    (start.elapsed(), work.take_words())
}

/// The number of occurrences of each word.
type Words = HashMap<Piece, u64>;

/// The pieces to count. Each shard has the number of pieces that its threads have counted, and the words in them.
struct Work {
    pieces: &'static [Piece],
    shards: [Mutex<(usize, Words)>; 32],
}

impl Work {
    /// A closure for each piece, the same for all contenders.
    fn tasks(&'static self) -> impl Iterator<Item = impl FnOnce() + Send + 'static> {
        let pieces = self.pieces.iter();
        pieces.map(move |piece| move || self.count(piece))
    }

    fn count(&self, piece: Piece) {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed));
        let shard = THREAD.with(|thread| &self.shards[thread % self.shards.len()]);
        let (pieces, counts) = &mut *lock(shard);
        *pieces += 1;
        for word in words(piece) {
            *counts.entry(word).or_default() += 1;
        }
    }

    fn is_done(&self) -> bool {
        let counted = self.shards.iter().map(|shard| lock(shard).0);
        counted.sum::<usize>() == self.pieces.len()
    }

    fn take_words(&self) -> Words {
        let mut sum = Words::new();
        for shard in &self.shards {
            for (word, count) in lock(shard).1.drain() {
                *sum.entry(word).or_default() += count;
            }
        }
        sum
    }
}

fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard
        .lock()
        .expect("no thread panics while it holds the lock")
}

/// Cuts a text into pieces of whole words. All but the last have at least this number of bytes.
fn cut(text: &[u8], bytes: NonZeroUsize) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    iter::from_fn(move || {
        let least = bytes.get().min(rest.len());
        let end = rest[least..].iter().position(|byte| !is_word(*byte));
        let (piece, others) = rest.split_at(end.map_or(rest.len(), |end| least + end));
        rest = others;
        (!piece.is_empty()).then_some(piece)
    })
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = text.split(|byte| !is_word(*byte));
    words.filter(|word| !word.is_empty())
}

/// Returns `true` for the bytes of words: letters, digits, and parts of wide characters.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn print_words(words: &Words) {
    let mut by_count = Vec::from_iter(words);
    by_count.sort_unstable_by_key(|&(word, count)| (Reverse(count), word));
    println!("{} words, and most often", words.len());
    for (word, count) in by_count.iter().take(5) {
        println!("{count:>10} {}", String::from_utf8_lossy(word));
    }
}

/// Returns the text of a file, or a text that is made of the sources in a directory.
fn text_of(input: &Path) -> Result<Vec<u8>, String> {
    let mut text = load(input).map_err(|error| format!("{}: {error}", input.display()))?;
    if text.is_empty() {
        return Err(format!("{}: there is no text", input.display()));
    }
    while input.is_dir() && text.len() < MADE {
        text.extend_from_within(..text.len().min(MADE - text.len()));
    }
    Ok(text)
}

fn load(path: &Path) -> io::Result<Vec<u8>> {
    if !path.is_dir() {
        return fs::read(path);
    }
    let mut text = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let is_source = path.is_file() && path.extension().is_some_and(|end| end == "rs");
        if is_source || path.is_dir() && !path.is_symlink() {
            text.extend(load(&path)?);
            text.push(b'\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_between_words() {
        let text = b" one, two_2 gr\xc3\xbcn\n\nmuch_longer_than_a_piece end";
        for bytes in (1..=text.len() + 1).filter_map(NonZeroUsize::new) {
            let pieces = Vec::from_iter(cut(text, bytes));
            let (_, others) = pieces.split_last().expect("there is text");
            let found = pieces.iter().copied().flat_map(words);
            assert_eq!(pieces.concat(), text);
            assert!(others.iter().all(|piece| piece.len() >= bytes.get()));
            assert!(found.eq(words(text)), "{bytes}");
        }
    }

    #[test]
    fn all_contenders_count_the_same() {
        let text = b"one two two\nthree three three ".repeat(500).leak();
        let pieces = Vec::from_iter(cut(text, NonZeroUsize::MIN)).leak();
        let pool = ComputePool::builder().threads(2).build().expect("a pool");
        let runtime = Runtime::new().expect("a runtime");
        let _entered = runtime.enter();
        let [(_, words), ..] = compete(&pool, pieces);
        let expected: [(Piece, u64); 3] = [(b"one", 500), (b"two", 1_000), (b"three", 1_500)];
        assert_eq!(words, expected.into());
    }
}
