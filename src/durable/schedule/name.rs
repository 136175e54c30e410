//! [`ScheduleName`]: the name of a schedule.

use std::sync::Arc;

use crate::durable::queue::name::check_name;

/// The name of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleName(Arc<str>);

impl ScheduleName {
    /// Returns the name of a schedule.
    ///
    /// # Errors
    ///
    /// The name is invalid. Returns the reason, and the remedy.
    pub fn new(name: &str) -> Result<Self, String> {
        check_name(name, "schedule")?;
        Ok(Self(name.into()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
