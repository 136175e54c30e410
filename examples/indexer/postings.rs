//! [`Postings`]: the terms of one file, and the lines of each.

use super::terms::{self, Terms};
use super::text;
