//! [`Access`]: the operations that a request may perform.

/// The access of a request, as returned by the hook that [`DashboardBuilder::access`](crate::DashboardBuilder::access) sets.
///
/// # Examples
///
/// ```
/// use throng_web::Access;
///
/// struct User {
///     name: String,
///     is_admin: bool,
/// }
///
/// fn access_of(user: Option<&User>) -> Access {
///     match user {
///         Some(user) if user.is_admin => Access::operate(&user.name),
///         Some(user) => Access::read(&user.name),
///         None => Access::None,
///     }
/// }
/// # assert_eq!(access_of(None), Access::None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The request is answered with 404, and the answer reveals nothing.
    None,
    /// The named user may read all pages.
    Read(String),
    /// The named user may also change tasks, queues, types and schedules.
    Operate(String),
}

impl Access {
    /// Returns the access of a user who may read.
    pub fn read(user: impl Into<String>) -> Self {
        Self::Read(user.into())
    }

    /// Returns the access of a user who may read and operate.
    pub fn operate(user: impl Into<String>) -> Self {
        Self::Operate(user.into())
    }
}
