//! Completions and manual pages are accepted by the programs that read them.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use super::Result;
use super::store::throng;

/// Checks that a program accepts files and prints nothing. If it is not installed, prints a note.
fn assert_accepted(program: &str, args: &[&str], files: &[PathBuf]) -> Result {
    let output = match Command::new(program).args(args).args(files).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: {program} is not installed");
            return Ok(());
        }
        output => output?,
    };
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    assert!(
        output.status.success() && text.is_empty(),
        "{program}: {text}"
    );
    Ok(())
}

#[test]
fn shells_parse_their_completions() -> Result {
    let folder = tempfile::tempdir()?;
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = throng(folder.path())
            .args(["completions", shell])
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        assert!(
            output.status.success() && text.contains("replay"),
            "{shell}: {text}"
        );
        let script = folder.path().join(shell);
        fs::write(&script, text)?;
        if ["bash", "zsh", "fish"].contains(&shell) {
            assert_accepted(shell, &["-n"], &[script])?;
        }
    }
    Ok(())
}

#[test]
fn formatters_accept_the_manual_pages() -> Result {
    let folder = tempfile::tempdir()?;
    let pages = folder.path().join("man");
    fs::create_dir(&pages)?;
    let written = throng(folder.path()).args(["man", "man"]).status()?;
    assert!(written.success() && pages.join("throng-dead-replay.1").exists());
    let pages = fs::read_dir(pages)?.map(|page| Ok(page?.path()));
    let pages: Vec<_> = pages.collect::<std::io::Result<_>>()?;
    assert_accepted("groff", &["-man", "-Tutf8", "-ww", "-z"], &pages)?;
    // Warnings of this program are about style.
    assert_accepted("mandoc", &["-T", "lint", "-W", "error"], &pages)
}
