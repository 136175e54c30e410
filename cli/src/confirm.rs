//! Asks for a confirmation before dead letters or steps are deleted.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;

use crate::failure::Failure;
use crate::out::{counted, escape};

#[derive(Args, Clone, Debug)]
pub(crate) struct ConfirmArgs {
    /// Does not ask for a confirmation
    #[arg(long)]
    yes: bool,
}

/// Asks a person to type the number of dead letters that an act destroys. Fails if the number is wrong, or if nobody can be asked.
pub(crate) fn confirm(act: &str, number: u64, args: &ConfirmArgs) -> Result<(), Failure> {
    confirm_all(act, (number, "dead letter"), args)
}

/// The same for other things, whose number and noun are given.
pub(crate) fn confirm_all(
    act: &str,
    (number, noun): (u64, &str),
    args: &ConfirmArgs,
) -> Result<(), Failure> {
    let act = format!("{act} {}", counted(number, noun));
    ask(&act, &number.to_string(), args)
}

/// Asks a person to type `yes` before an act on an unknown number of things.
pub(crate) fn confirm_unknown(act: &str, args: &ConfirmArgs) -> Result<(), Failure> {
    ask(act, "yes", args)
}

fn ask(act: &str, expected: &str, args: &ConfirmArgs) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    let act = escape::text(act);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let how = format!("this would {act}: confirm it with `--yes`");
        return Err(Failure::Usage(how));
    }
    write!(
        io::stderr(),
        "This will {act}. Type {expected} to confirm: "
    )?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() == expected {
        true => Ok(()),
        false => Err(Failure::Usage(
            "not confirmed, so nothing was changed".into(),
        )),
    }
}
