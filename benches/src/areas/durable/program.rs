//! Programs of their own: peers that cannot, or should not, be linked into this one.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::measure::Rules;

/// A package outside of the workspace, which is built when it is to be measured.
#[derive(Clone, Copy)]
pub(super) struct Program {
    /// Its folder, in that of this package.
    pub(super) folder: &'static str,
    /// The file that is built.
    pub(super) file: &'static str,
}

impl Program {
    /// Puts the program into the prepared directory, or else the reason why there is none.
    pub(super) fn build(self, dir: &Path) -> io::Result<()> {
        let Self { folder, file } = self;
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let own = std::env::current_exe()?;
        let target = own.parent().map(|beside| beside.join(folder));
        let target = target.ok_or(io::ErrorKind::NotFound)?;
        eprintln!("# building {folder}: the first time, this takes minutes");
        let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--release", "--quiet", "--manifest-path"])
            .arg(manifest.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .output();
        let complaint = match built {
            Ok(built) if built.status.success() => {
                let program = target.join("release").join(file);
                return fs::copy(program, dir.join(file)).map(drop);
            }
            Ok(built) => {
                let said = String::from_utf8_lossy(&built.stderr).into_owned();
                let mut errors = said.lines().filter(|line| line.starts_with("error"));
                errors.next().unwrap_or("cargo failed").to_owned()
            }
            Err(error) => format!("cargo cannot be started: {error}"),
        };
        eprintln!("# {folder} cannot be built, and is left out: {complaint}");
        fs::write(dir.join(self.complaint()), complaint)
    }

    /// Returns the command that starts the program, or the reason why there is none.
    pub(super) fn command(self, rules: &Rules) -> Result<Command, String> {
        let root = rules
            .dir
            .as_ref()
            .expect("the runner has prepared a directory");
        match fs::read_to_string(root.join(self.complaint())) {
            Ok(complaint) => Err(complaint),
            Err(_) => Ok(Command::new(root.join(self.file))),
        }
    }

    fn complaint(self) -> String {
        format!("{}-complaint", self.folder)
    }
}
