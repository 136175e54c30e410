//! Programs of their own: peers that cannot, or should not, be linked into this one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::measure::{Rules, Sample};

/// A package outside of the workspace, which is built when it is to be measured.
#[derive(Clone, Copy)]
pub(super) struct Program {
    /// Its folder, in that of this package.
    pub(super) folder: &'static str,
    /// The file that is built, or the script.
    pub(super) file: &'static str,
    pub(super) language: Language,
}

#[derive(Clone, Copy)]
pub(super) enum Language {
    Rust,
    /// A class whose name is that of the file without its ending.
    Java,
    /// A script for Node.js. Its dependencies are installed in its folder.
    JavaScript,
    /// A script for Python. Its dependencies are installed in an environment in its folder.
    Python,
}

impl Program {
    /// Puts the program into the prepared directory, or else the reason why there is none.
    pub(super) fn build(self, dir: &Path) -> io::Result<()> {
        let folder = self.folder;
        eprintln!("# building {folder}: the first time, this takes minutes");
        let built = match self.language {
            Language::Rust => self.compile(dir),
            Language::Java => self.compile_class(dir),
            Language::JavaScript => self.install(),
            Language::Python => self.install_in_environment(),
        };
        let Err(complaint) = built else {
            return Ok(());
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
        match (
            fs::read_to_string(root.join(self.complaint())),
            self.language,
        ) {
            (Ok(complaint), _) => Err(complaint),
            (Err(_), Language::Rust) => Ok(Command::new(root.join(self.file))),
            (Err(_), Language::Java) => {
                let mut command = Command::new("java");
                let class = self.file.trim_end_matches(".java");
                command.arg("-cp").arg(root).arg(class);
                Ok(command)
            }
            (Err(_), Language::JavaScript) => {
                let mut command = Command::new("node");
                command.arg(self.sources().join(self.file));
                Ok(command)
            }
            (Err(_), Language::Python) => {
                let mut command = Command::new(self.environment().join("bin/python"));
                command.arg(self.sources().join(self.file));
                Ok(command)
            }
        }
    }

    fn compile(self, dir: &Path) -> Result<(), String> {
        let Self { folder, file, .. } = self;
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let target = own.with_file_name(folder);
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["build", "--release", "--quiet", "--manifest-path"])
            .arg(self.sources().join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target);
        succeed(&mut cargo, "cargo")?;
        let copied = fs::copy(target.join("release").join(file), dir.join(file));
        copied.map(drop).map_err(|error| error.to_string())
    }

    fn compile_class(self, dir: &Path) -> Result<(), String> {
        let source = self.sources().join(self.file);
        let compiled = succeed(
            Command::new("javac").arg("-d").arg(dir).arg(source),
            "javac",
        );
        compiled.map_err(|complaint| format!("{complaint}: install a JDK, version 17 or later"))
    }

    /// Installs the packages of the lock file, unless they are there.
    fn install(self) -> Result<(), String> {
        let missing = |complaint| format!("{complaint}: install Node.js 20 or later, with npm");
        succeed(Command::new("node").arg("--version"), "node").map_err(missing)?;
        let folder = self.sources();
        let changed = |file| fs::metadata(folder.join(file)).and_then(|file| file.modified());
        // npm writes this file last.
        let installed = changed("node_modules/.package-lock.json");
        let wanted = changed("package-lock.json").map_err(|error| error.to_string())?;
        if installed.is_ok_and(|installed| installed >= wanted) {
            return Ok(());
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund"])
            .current_dir(folder);
        succeed(&mut npm, "npm").map_err(missing)
    }

    /// Installs the packages of `requirements.txt`, unless they are there.
    fn install_in_environment(self) -> Result<(), String> {
        let missing = |complaint| format!("{complaint}: install Python 3.10 or later, with pip");
        let environment = self.environment();
        let installed = environment.join("installed");
        let wanted = self.sources().join("requirements.txt");
        let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified());
        let is_wanted = changed(&wanted).map_err(|error| error.to_string())?;
        if changed(&installed).is_ok_and(|at| at >= is_wanted) {
            return Ok(());
        }
        let mut create = Command::new("python3");
        create.args(["-m", "venv"]).arg(&environment);
        succeed(&mut create, "python3").map_err(missing)?;
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.args(["install", "--quiet", "-r"]).arg(&wanted);
        succeed(&mut pip, "pip").map_err(missing)?;
        fs::write(installed, "").map_err(|error| error.to_string())
    }

    fn environment(self) -> PathBuf {
        self.sources().join(".venv")
    }

    fn sources(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.folder)
    }

    fn complaint(self) -> String {
        format!("{}-complaint", self.folder)
    }
}

/// Runs a program that prints the tasks that it has done, the seconds, and the seconds of CPU time.
pub(super) fn measure(program: &mut Command) -> Sample {
    let output = program.output().expect("it can be started");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "it failed: {complaints}");
    let output = String::from_utf8_lossy(&output.stdout);
    let mut figures = output.split_whitespace().map(str::parse::<f64>);
    let mut figure = || match figures.next() {
        Some(Ok(figure)) => figure,
        _ => panic!("not a result: {output}"),
    };
    let (tasks, seconds, cpu_seconds) = (figure(), figure(), figure());
    Sample {
        value: seconds * 1e9 / tasks,
        cpu_ns_per_task: Some(cpu_seconds * 1e9 / tasks),
        ..Sample::default()
    }
}

/// Runs a command. If it fails, returns what it says first about that.
fn succeed(command: &mut Command, name: &str) -> Result<(), String> {
    let output = command.output();
    let output = output.map_err(|error| format!("{name} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let mut errors = said.lines().filter(|line| {
        ["error", "npm error", "ERROR"]
            .iter()
            .any(|it| line.starts_with(it))
    });
    Err(errors
        .next()
        .map_or_else(|| format!("{name} failed"), str::to_owned))
}
