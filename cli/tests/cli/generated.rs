//! Completions and manual pages, which the programs that read them accept.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::Result;
use super::store::throng;

/// Runs a program, or returns `None` and says so if it is not installed.
fn run(program: &str, args: &[&str], file: &Path) -> Result<Option<Output>> {
    match Command::new(program).args(args).arg(file).output() {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: {program} is not installed");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

#[test]
fn shells_parse_their_completions() -> Result {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("script");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = throng(folder.path())
            .args(["completions", shell])
            .output()?;
        assert!(output.status.success(), "{shell}: {output:?}");
        let text = String::from_utf8(output.stdout)?;
        assert!(text.contains("replay"), "{shell}");
        fs::write(&script, text)?;
        let can_check = ["bash", "zsh", "fish"].contains(&shell);
        if let Some(parsed) = can_check
            .then(|| run(shell, &["-n"], &script))
            .transpose()?
            .flatten()
        {
            let is_fine = parsed.status.success() && parsed.stderr.is_empty();
            assert!(is_fine, "{shell}: {parsed:?}");
        }
    }
    Ok(())
}

#[test]
fn manual_pages_have_no_warnings() -> Result {
    let folder = tempfile::tempdir()?;
    let pages = folder.path().join("man");
    fs::create_dir(&pages)?;
    let written = throng(folder.path()).args(["man", "man"]).status()?;
    assert!(written.success() && pages.join("throng-dead-replay.1").exists());
    for page in fs::read_dir(pages)? {
        let page = page?.path();
        // The page has no date and no source, and its lines may be long.
        let checked = run("mandoc", &["-T", "lint", "-W", "warning"], &page)?;
        let Some(checked) = checked else {
            return Ok(());
        };
        assert!(
            checked.status.success(),
            "{}",
            String::from_utf8_lossy(&checked.stdout)
        );
    }
    Ok(())
}
