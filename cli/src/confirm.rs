//! Asks for a confirmation before dead letters or steps are deleted.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;

use crate::failure::Failure;
use crate::out::counted;

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
    if args.yes {
        return Ok(());
    }
    let things = counted(number, noun);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let how = format!("this would {act} {things}: confirm it with `--yes`");
        return Err(Failure::Usage(how));
    }
    write!(
        io::stderr(),
        "This will {act} {things}. Type {number} to confirm: "
    )?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() == number.to_string() {
        true => Ok(()),
        false => Err(Failure::Usage(
            "not confirmed, so nothing was changed".into(),
        )),
    }
}
