//! `throng upgrade`: raises the layout of the store.

use clap::Args;

use crate::failure::Failure;
use crate::out::Output;
use crate::store::Session;

#[derive(Args, Debug)]
pub(crate) struct UpgradeArgs {
    /// Changes nothing: fails if the store does not have the layout of this version, and names the processes that prevent an upgrade
    #[arg(long)]
    check: bool,
}

impl UpgradeArgs {
    pub(crate) fn changes(&self) -> bool {
        !self.check
    }
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    args: &UpgradeArgs,
    out: &Output,
) -> Result<(), Failure> {
    match args.check {
        true => check(session, out).await,
        false => upgrade(session, out).await,
    }
}

async fn upgrade(session: &Session, out: &Output) -> Result<(), Failure> {
    match session.client.upgrade().await {
        Ok(()) => out.note("the store has the layout of this version"),
        Err(error) if error.is_upgrade_blocked() => return Err(Failure::Unmet(error.to_string())),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn check(session: &Session, out: &Output) -> Result<(), Failure> {
    let layout = session.ask(session.client.admin().layout()).await?;
    let (current, newest) = (layout.current, layout.newest);
    match what_an_upgrade_does(current, newest, &layout.older_processes) {
        None => {
            out.note(&format!(
                "the store already has layout {current}, the newest that this version knows: there is nothing to upgrade"
            ));
            Ok(())
        }
        Some(what) => Err(Failure::Unmet(what)),
    }
}

/// Describes what an upgrade would do. Returns `None` if it would do nothing.
fn what_an_upgrade_does(current: i64, newest: i64, older_processes: &[String]) -> Option<String> {
    let raises = format!(
        "the store has layout {current}; `throng upgrade` raises it to {newest}, and older versions cannot use the store afterwards"
    );
    match older_processes {
        _ if current >= newest => None,
        [] => Some(raises),
        older => Some(format!(
            "{raises}. The upgrade is refused until these processes are updated: {}",
            older.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_says_what_an_upgrade_would_do() {
        assert_eq!(what_an_upgrade_does(2, 2, &[]), None);
        let raised = what_an_upgrade_does(2, 3, &[]).unwrap();
        assert!(
            raised.contains("layout 2") && raised.contains("to 3"),
            "{raised}"
        );
        assert!(!raised.contains("refused"), "{raised}");
        let older = ["process 7 on a", "process 8 on b"].map(String::from);
        let refused = what_an_upgrade_does(2, 3, &older).unwrap();
        assert!(
            refused.ends_with("process 7 on a, process 8 on b"),
            "{refused}"
        );
    }
}
