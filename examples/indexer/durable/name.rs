//! [`Name`]: a path, as it is stored.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path, as it is stored: a string if it is UTF-8, which paths need not be, else its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(Vec<u8>);

impl Name {
    /// The path.
    pub(crate) fn path(&self) -> PathBuf {
        OsString::from_vec(self.0.clone()).into()
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&Path> for Name {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Text(String),
    Bytes(Vec<u8>),
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = match String::from_utf8(self.0.clone()) {
            Ok(text) => Stored::Text(text),
            Err(error) => Stored::Bytes(error.into_bytes()),
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Stored::deserialize(deserializer)? {
            Stored::Text(text) => text.into_bytes(),
            Stored::Bytes(bytes) => bytes,
        }))
    }
}
