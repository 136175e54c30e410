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
    out.note(&judge(
        layout.current,
        layout.newest,
        &layout.older_processes,
    )?);
    Ok(())
}

/// Returns a sentence about a store that needs no upgrade. Otherwise, describes what an upgrade would do.
fn judge(current: i64, newest: i64, older_processes: &[String]) -> Result<String, Failure> {
    let raises = format!(
        "the store has layout {current}; `throng upgrade` raises it to {newest}, and older versions cannot use the store afterwards"
    );
    match older_processes {
        _ if current >= newest => Ok(format!(
            "the store already has layout {current}, the newest that this version knows: there is nothing to upgrade"
        )),
        [] => Err(Failure::Unmet(raises)),
        older => Err(Failure::Unmet(format!(
            "{raises}. The upgrade is refused until these processes are updated: {}",
            older.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the exit status and the message.
    fn failure(current: i64, newest: i64, older_processes: &[String]) -> (u8, String) {
        let failure = judge(current, newest, older_processes).unwrap_err();
        (failure.code(), failure.to_string())
    }

    #[test]
    fn a_check_says_what_an_upgrade_would_do() {
        let newest = judge(2, 2, &[]).unwrap();
        assert!(newest.contains("nothing to upgrade"), "{newest}");
        let (code, raised) = failure(2, 3, &[]);
        assert!(
            raised.contains("layout 2") && raised.contains("to 3"),
            "{raised}"
        );
        assert!(code == 5 && !raised.contains("refused"), "{code}: {raised}");
        let older = ["process 7 on a", "process 8 on b"].map(String::from);
        let (code, refused) = failure(2, 3, &older);
        assert!(
            code == 5 && refused.ends_with("process 7 on a, process 8 on b"),
            "{code}: {refused}"
        );
    }
}
