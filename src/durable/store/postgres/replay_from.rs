//! Replays of tasks from one of their steps. `changes` calls it.
