//! Counts the cache lines that move between cores, for each task of a workload.
//!
//! The workload runs in a child process, whose threads this program executes one instruction at a time ([`trace`]).
//! It decodes each instruction ([`decode`]), and enters the addresses that the instruction accesses into a [`model`] of
//! caches: one cache of unlimited size per thread, and lines of 64 bytes. So it counts transfers for more cores than the
//! machine has. The times that it prints are those of the model.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("this program decodes the instructions of x86-64 and needs Linux");

mod decode;
mod model;
mod ptrace;
mod trace;
mod work;

use std::io::{BufRead as _, BufReader, Write as _};
use std::iter::Peekable;
use std::process::{Child, Command, ExitCode, Stdio};
use std::vec;

use model::Counts;

type Result<T, E = String> = std::result::Result<T, E>;

const USAGE: &str = "usage: throng-lines [--tasks N] [--threads N] [WORKLOAD..]";

/// The number of tasks of a workload that are counted by default.
const TASKS: u64 = 2_048;

/// The numbers of threads of a pool, or of concurrent callers.
const THREADS: [u64; 4] = [2, 4, 16, 64];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.as_slice() {
        [role, name, threads, tasks] if role == "work" => work::run(name, threads, tasks),
        _ => count_all(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn count_all(args: Vec<String>) -> Result<()> {
    let mut args = args.into_iter().peekable();
    let tasks = number_after("--tasks", &mut args)?.unwrap_or(TASKS);
    let threads = number_after("--threads", &mut args)?.map_or(THREADS.to_vec(), |one| vec![one]);
    let names: Vec<String> = args.collect();
    check(&names, &threads)?;
    println!(
        "| workload | threads | instructions | locked | lines moved | of shared lines | hottest lines | ns/task |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for name in work::NAMES {
        if names.is_empty() || names.iter().any(|chosen| chosen == name) {
            for &threads in &threads {
                let counts = count(name, threads, tasks)?;
                println!("| {name} | {threads} | {} |", counts.text(tasks));
            }
        }
    }
    Ok(())
}

/// The value of an option, if it comes next.
fn number_after(option: &str, args: &mut Peekable<vec::IntoIter<String>>) -> Result<Option<u64>> {
    if args.next_if_eq(option).is_none() {
        return Ok(None);
    }
    let number = args.next().and_then(|number| number.parse().ok());
    match number {
        Some(number) if number > 0 => Ok(Some(number)),
        _ => Err(format!("{option} needs a number above 0\n{USAGE}")),
    }
}

fn check(names: &[String], threads: &[u64]) -> Result<()> {
    let unknown = |name: &&String| !work::NAMES.contains(&name.as_str());
    if let Some(unknown) = names.iter().find(unknown) {
        let all = work::NAMES.join(", ");
        return Err(format!(
            "there is no workload {unknown}: choose from {all}\n{USAGE}"
        ));
    }
    match threads.iter().all(|threads| (2..=64).contains(threads)) {
        true => Ok(()),
        false => Err(format!("--threads is a number from 2 to 64\n{USAGE}")),
    }
}

/// Runs a workload in a child, and counts.
fn count(name: &str, threads: u64, tasks: u64) -> Result<Counts> {
    let own = std::env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
    let mut child = Command::new(own)
        .args(["work", name, &threads.to_string(), &tasks.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("a child cannot be started: {error}"))?;
    let counted = trace_child(&mut child);
    // It has ended already, or waits at its end.
    let _ = child.kill();
    ptrace::reap();
    counted.map_err(|error| format!("{name} with {threads} threads: {error}"))
}

fn trace_child(child: &mut Child) -> Result<Counts> {
    let mut output = BufReader::new(child.stdout.take().ok_or("it has no output")?);
    let mut line = String::new();
    let read = output.read_line(&mut line);
    read.map_err(|error| format!("it cannot be read: {error}"))?;
    let clock = line.trim_end().parse();
    let clock = clock.map_err(|_| format!("not an address: {line}"))?;
    let pid = i32::try_from(child.id()).map_err(|error| error.to_string())?;
    let tracer = trace::Tracer::attach(pid, clock)?;
    let mut input = child.stdin.take().ok_or("it has no input")?;
    let begun = input.write_all(b"\n");
    begun.map_err(|error| format!("it does not listen: {error}"))?;
    tracer.run()
}
