//! [`TypeRegistry`]: the types of tasks that an executor can run.

use std::any::{TypeId, type_name};
use std::collections::HashMap;

use super::run_fn::{RunFn, run_one};
use crate::durable::Run;
use crate::durable::policy::Policy;
use crate::durable::task::{TaskNames, policy_of, version_of};

/// The types of tasks that an executor can run, by name. A type with former names is there several times.
pub(crate) struct TypeRegistry<App> {
    types: HashMap<&'static str, Registered<App>>,
    /// A name that two of the types have, and these types.
    ambiguity: Option<Ambiguity>,
}

/// A type of tasks, under one of its names.
pub(super) struct Registered<App> {
    pub(super) run: RunFn<App>,
    /// The newest version that can run.
    pub(super) version: u8,
    pub(super) policy: Policy,
    type_id: TypeId,
    type_name: &'static str,
}

/// A name that two registered types have.
#[derive(Clone, Copy)]
pub(crate) struct Ambiguity {
    pub(crate) name: &'static str,
    pub(crate) types: [&'static str; 2],
}

impl<App> TypeRegistry<App> {
    pub(crate) fn new() -> Self {
        Self {
            types: HashMap::new(),
            ambiguity: None,
        }
    }

    pub(crate) fn register<T: Run<App>>(&mut self)
    where
        App: Send + Sync + 'static,
    {
        for name in TaskNames::of::<T>().all() {
            let registered = Registered {
                run: run_one::<T, App>,
                version: version_of::<T>(),
                policy: policy_of::<T>(),
                type_id: TypeId::of::<T>(),
                type_name: type_name::<T>(),
            };
            let other = self.types.insert(name, registered);
            if let Some(other) = other.filter(|other| other.type_id != TypeId::of::<T>()) {
                let types = [other.type_name, type_name::<T>()];
                self.ambiguity = Some(Ambiguity { name, types });
            }
        }
    }

    /// Returns a type by one of its names.
    pub(super) fn find(&self, name: &str) -> Option<(&'static str, &Registered<App>)> {
        let (&name, registered) = self.types.get_key_value(name)?;
        Some((name, registered))
    }

    pub(crate) fn ambiguity(&self) -> Option<Ambiguity> {
        self.ambiguity
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.types.keys().copied()
    }

    /// Returns the names of the types, each with the newest version that can run.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&'static str, u8)> {
        self.types.iter().map(|(&name, it)| (name, it.version))
    }
}

impl<App> Clone for TypeRegistry<App> {
    fn clone(&self) -> Self {
        Self {
            types: self.types.clone(),
            ambiguity: self.ambiguity,
        }
    }
}

impl<App> Clone for Registered<App> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<App> Copy for Registered<App> {}
