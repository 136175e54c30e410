//! The changelog names the version, and what a newcomer reads is short.

use super::read;

#[test]
fn the_version_is_in_the_changelog() {
    let version = env!("CARGO_PKG_VERSION");
    let changelog = read("CHANGELOG.md").expect("CHANGELOG.md can be read");
    let heading = format!("# {version} ");
    let found = changelog.lines().any(|line| line.starts_with(&heading));
    assert!(
        found,
        "CHANGELOG.md:1: add `# {version} (unreleased)`, or its date"
    );
}

/// The largest number of lines of the README, and of terms in the glossary. A newcomer reads both.
const MAX_README_LINES: usize = 220;
const MAX_TERMS: usize = 30;

#[test]
fn what_a_newcomer_reads_is_short() {
    let readme = read("README.md").expect("README.md can be read");
    let lines = readme.lines().count();
    assert!(
        lines <= MAX_README_LINES,
        "README.md:1: {lines} lines, more than {MAX_README_LINES}"
    );
    let glossary = read("docs/GLOSSARY.md").expect("docs/GLOSSARY.md can be read");
    let rows = glossary.lines().filter(|line| line.starts_with("| "));
    // The first two are the heading and the line below it.
    let terms = rows.skip(2).count();
    assert!(
        (1..=MAX_TERMS).contains(&terms),
        "docs/GLOSSARY.md:1: {terms} terms, more than {MAX_TERMS}"
    );
}
