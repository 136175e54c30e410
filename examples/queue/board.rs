//! [`Board`]: shows the events to a person.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{Event, Result, ensure};

/// Shows a progress bar for each customer on standard error, if that is a terminal. Above the bars, it writes lines to standard output.
pub(crate) struct Board {
    bars: MultiProgress,
    of_customers: HashMap<String, ProgressBar>,
    /// `true` once the break was announced. The provider may refuse several mails in the break.
    on_break: bool,
    /// The ticks of the reports.
    ticks: Vec<String>,
}

impl Board {
    pub(crate) fn new(customers: &[(&str, usize)], mails: usize) -> Self {
        let bars = MultiProgress::new();
        let style = ProgressStyle::with_template("{prefix:12} [{bar:40}] {pos}/{len}");
        let style = style.expect("the template is right").progress_chars("=> ");
        let others: usize = customers.iter().map(|it| it.1).sum();
        let mut of_customers = HashMap::new();
        for (nth, (customer, count)) in customers.iter().enumerate() {
            // The last customer also has the mail that resets a password, which its count does not include.
            let more = if nth + 1 == customers.len() {
                mails - others
            } else {
                0
            };
            let bar = bars.add(ProgressBar::new((count + more) as u64));
            bar.set_style(style.clone());
            bar.set_prefix((*customer).to_owned());
            of_customers.insert((*customer).to_owned(), bar);
        }
        Self {
            bars,
            of_customers,
            on_break: false,
            ticks: Vec::new(),
        }
    }

    pub(crate) fn show(&mut self, event: Event) {
        match event {
            Event::Sent(customer) => self.sent(&customer),
            Event::Refused(customer) if !self.on_break => {
                self.on_break = true;
                self.say(format_args!(
                    "The provider asks for a break for {customer}. Only its mails wait, and those of others go on."
                ));
            }
            Event::Refused(_) => {}
            Event::Began(release) => self.say(format_args!("Release {release} has started.")),
            Event::Ended(release) => self.say(format_args!("Release {release} has ended.")),
            Event::Reported { tick, text } => {
                self.say(format_args!("The nightly report counts {text}."));
                self.ticks.push(tick);
            }
        }
    }

    fn sent(&self, customer: &str) {
        if let Some(bar) = self.of_customers.get(customer) {
            bar.inc(1);
            if bar.length() == Some(bar.position()) {
                self.say(format_args!("All mails of {customer} are sent."));
            }
        }
    }

    /// Writes a line above the bars.
    fn say(&self, line: impl fmt::Display) {
        // If nobody reads the lines any more, the tasks run all the same.
        self.bars.suspend(|| writeln!(io::stdout(), "{line}").ok());
    }

    /// Fails if two reports are of the same night, or if there are fewer than three reports.
    pub(crate) fn check(mut self) -> Result<()> {
        let reports = self.ticks.len();
        self.ticks.sort_unstable();
        self.ticks.dedup();
        ensure(
            reports == self.ticks.len(),
            "there were two reports of one night",
        )?;
        ensure(reports > 2, "there were too few reports")
    }
}
