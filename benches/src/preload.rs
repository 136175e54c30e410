//! Allocators that children can be made to use instead of the system's.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// An allocator that is known to replace `malloc` when it is preloaded.
#[derive(Clone, Copy, Debug, clap::ValueEnum, Serialize, Deserialize)]
pub(crate) enum Allocator {
    Jemalloc,
    Mimalloc,
}

impl Allocator {
    /// Finds the library.
    ///
    /// # Errors
    ///
    /// Fails if there is none, with the name of the package to install.
    pub(crate) fn find(self) -> Result<PathBuf, String> {
        let named = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let usual = ["/usr/local/lib", "/usr/lib", "/usr/lib64", "/lib"].map(PathBuf::from);
        let roots = env::split_paths(&named).chain(usual);
        let mut found = roots.flat_map(|root| libraries(&root, self.stem()));
        found.next().ok_or_else(|| {
            format!(
                "no {}.* on this machine; on Debian: apt-get install {}",
                self.stem(),
                self.package()
            )
        })
    }

    /// Returns `true` if this process really uses it: the loader only warns when it cannot preload a library.
    pub(crate) fn check_loaded(self) -> Result<(), String> {
        let maps = fs::read_to_string("/proc/self/maps").map_err(|error| error.to_string())?;
        if maps.contains(self.stem()) {
            Ok(())
        } else {
            Err(format!("{} was not loaded", self.stem()))
        }
    }

    fn stem(self) -> &'static str {
        match self {
            Self::Jemalloc => "libjemalloc.so",
            Self::Mimalloc => "libmimalloc.so",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Jemalloc => "libjemalloc2",
            Self::Mimalloc => "libmimalloc2.0 (or libmimalloc3)",
        }
    }
}

impl fmt::Display for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jemalloc => "jemalloc",
            Self::Mimalloc => "mimalloc",
        })
    }
}

/// Libraries in a directory and in its subdirectories (Debian has one for each architecture).
fn libraries(root: &Path, stem: &str) -> Vec<PathBuf> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect()
    };
    let mut files = entries(root);
    for dir in entries(root).iter().filter(|path| path.is_dir()) {
        files.extend(entries(dir));
    }
    let is_library = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(stem))
    };
    files.retain(is_library);
    files.sort();
    files
}
