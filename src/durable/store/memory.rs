//! A store in memory.
