//! [`Layouts`]: the layouts of a store that a process knows.
//!
//! Each store records its *layout*, the number that identifies its data format. A process that does not know the
//! layout neither reads nor changes the store. So the number may rise only when every process that uses the store knows
//! the higher one, and an update of a fleet takes two steps:
//!
//! 1. The processes are replaced one by one. The new version knows the layout of the old one, and continues to use it. Each
//!    session records the newest layout that its process knows.
//! 2. When no session of the old version is left, [`upgrade`](super::Backend::upgrade) raises the number. Nothing is
//!    converted: a new layout only adds to the old one.

#[cfg(any(
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "unstable-store"
))]
use crate::durable::failure::Cause;

/// The layouts of a store that a process knows. It creates new stores in the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layouts {
    /// The oldest layout that it knows.
    pub oldest: i64,
    /// The newest layout that it knows.
    pub newest: i64,
}

impl Layouts {
    /// The layouts that this version of the crate knows.
    pub const KNOWN: Self = Self {
        oldest: 2,
        newest: 2,
    };

    /// The layouts that a later version knows.
    #[cfg(test)]
    pub const OF_SUCCESSOR: Self = Self {
        oldest: Self::KNOWN.newest,
        newest: Self::KNOWN.newest + 1,
    };

    /// Fails if the layout of a store is none of these. With Redis, scripts decide.
    #[cfg(any(
        feature = "postgres",
        feature = "sqlite-unbundled",
        feature = "unstable-store"
    ))]
    pub fn check(self, found: i64) -> Result<(), Cause> {
        let known = self.newest;
        match found {
            _ if found < self.oldest => Err(Cause::OlderLayout { found, known }),
            _ if found > self.newest => Err(Cause::NewerLayout { found, known }),
            _ => Ok(()),
        }
    }
}
