//! [`Output`]: prints what commands find, as tables, as JSON or as lines of JSON.

pub(crate) mod escape;
mod list;
mod table;

use std::io::{self, IsTerminal, Write};

use anstream::AutoStream;
use clap::{Args, ValueEnum};
use serde::Serialize;
use throng::durable::TaskId;

pub(crate) use self::list::{Column, ListEnd, ListWriter};
use crate::failure::Failure;

/// How results are printed.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct OutputArgs {
    /// The format of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    output: Format,

    /// Uses colours always, never, or on terminals unless `NO_COLOR` is set
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true)]
    color: Color,

    /// Prints no headings and no notes
    #[arg(short, long, conflicts_with = "verbose", global = true)]
    quiet: bool,

    /// Prints progress even if the output is not a terminal
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table on a terminal, otherwise lines of fields that are separated by tabs
    Table,
    /// One JSON document
    Json,
    /// One JSON object for each row
    Jsonl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// Prints results to the standard output, and notes to the standard error output.
pub(crate) struct Output {
    format: Format,
    /// The width of the terminal, or `None` if the output is not a terminal.
    width: Option<u16>,
    color: anstream::ColorChoice,
    is_quiet: bool,
    is_verbose: bool,
}

/// A line of a record: what it describes, and the text.
pub(crate) type Line = (&'static str, String);

impl Output {
    pub(crate) fn new(args: &OutputArgs) -> Self {
        let width = terminal_size::terminal_size().map(|(width, _)| width.0);
        Self {
            format: args.output,
            width: width.filter(|_| io::stdout().is_terminal()),
            color: match args.color {
                Color::Auto => anstream::ColorChoice::Auto,
                Color::Always => anstream::ColorChoice::Always,
                Color::Never => anstream::ColorChoice::Never,
            },
            is_quiet: args.quiet,
            is_verbose: args.verbose,
        }
    }

    /// Begins a list.
    pub(crate) fn list<T: Serialize>(
        &mut self,
        columns: &'static [Column<T>],
    ) -> ListWriter<'_, T> {
        ListWriter::new(self, columns)
    }

    /// Prints one thing: the lines in a table, or the value as JSON.
    pub(crate) fn record(&mut self, value: &impl Serialize, lines: &[Line]) -> Result<(), Failure> {
        let text = match self.format {
            Format::Table => table::record(lines, self.width.is_some()),
            Format::Json => json(&Document { data: value }, true)?,
            Format::Jsonl => json(value, false)?,
        };
        self.print(&text)
    }

    /// Prints a value as one line of JSON, whatever the form of the output is.
    pub(crate) fn line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        self.print(&json(value, false)?)
    }

    /// Prints the id of a task: alone, so that a script can use it, or as JSON.
    pub(crate) fn id(&mut self, id: TaskId) -> Result<(), Failure> {
        match self.format {
            Format::Table => self.print(&format!("{id}\n")),
            _ => self.record(&serde_json::json!({ "id": id }), &[]),
        }
    }

    /// Prints a JSON text that a store contains.
    pub(crate) fn stored_json(&mut self, text: &str) -> Result<(), Failure> {
        self.print(&format!("{}\n", escape::json(text)))
    }

    /// Prints a note that does not belong to the result.
    pub(crate) fn note(&self, text: &str) {
        if !self.is_quiet {
            eprintln(&escape::text(text));
        }
    }

    /// Prints the progress of a long command. On a terminal, the next line replaces this one.
    pub(crate) fn progress(&self, text: &str) {
        let is_terminal = io::stderr().is_terminal();
        match (is_terminal, self.is_quiet) {
            (true, false) => {
                // A reader that cannot be told must not end the command.
                write!(io::stderr(), "\r\x1b[K{}", escape::text(text)).ok();
            }
            (false, _) if self.is_verbose => eprintln(&escape::text(text)),
            _ => {}
        }
    }

    /// Ends the line of the progress.
    pub(crate) fn end_progress(&self) {
        if io::stderr().is_terminal() && !self.is_quiet {
            write!(io::stderr(), "\r\x1b[K").ok();
        }
    }

    /// Reports that the command has failed.
    pub(crate) fn error(&self, text: &str) {
        let style = clap::builder::Styles::styled();
        let style = style.get_error();
        let mut stderr = AutoStream::new(io::stderr(), self.color);
        writeln!(stderr, "{style}error:{style:#} {}", escape::text(text)).ok();
    }

    /// Returns `true` if a person sees the output.
    pub(crate) fn is_terminal(&self) -> bool {
        self.width.is_some()
    }

    /// Prints a text whose parts from a store are escaped.
    fn print(&mut self, text: &str) -> Result<(), Failure> {
        let mut stdout = AutoStream::new(io::stdout(), self.color).lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }
}

/// A JSON document.
#[derive(Serialize)]
struct Document<'a, T> {
    data: &'a T,
}

/// Returns what a table shows if there is no value.
pub(crate) fn dash() -> String {
    "-".into()
}

/// Returns a number and a noun, such as `1 task` or `2 tasks`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a value as JSON text without unprintable characters, followed by a line feed.
fn json(value: &impl Serialize, is_pretty: bool) -> Result<String, Failure> {
    let text = match is_pretty {
        true => serde_json::to_string_pretty(value)?,
        // A payload may contain line feeds between its tokens.
        false => serde_json::to_string(value)?.replace('\n', " "),
    };
    Ok(format!("{}\n", escape::json(&text)))
}

/// Prints a line to the standard error output. If nobody reads it, nothing happens.
fn eprintln(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}
