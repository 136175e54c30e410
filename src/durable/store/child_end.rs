//! [`ChildEnd`]: how a child of a task has ended, as a step of its parent.

use super::{DeadReason, MAX_ATTEMPT_ERROR_BYTES, MAX_STEP_BYTES, TaskState, shortened};

/// The end of a child of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    Ended(TaskState),
    /// It has succeeded, and its output, of this size in bytes, is too large for a step.
    TooLarge(usize),
}

const REASONS: [DeadReason; 6] = [
    DeadReason::Fatal,
    DeadReason::Attempts,
    DeadReason::Crashes,
    DeadReason::Unreadable,
    DeadReason::OutputTooLarge,
    DeadReason::Damaged,
];

impl ChildEnd {
    /// Encodes the end of a child. If there is no room for it in `max` bytes, the output or the error is left out. Returns `None` if the
    /// child has not ended.
    pub(crate) fn encode(state: &TaskState, max: usize) -> Option<Vec<u8>> {
        let encoded = match state {
            TaskState::Done(output) if output.len() < max.min(MAX_STEP_BYTES) => {
                with_tag(b'd', output)
            }
            TaskState::Done(output) => with_tag(b'l', &(output.len() as u64).to_be_bytes()),
            TaskState::Dead { reason, error } => {
                let error = shortened(error.clone(), MAX_ATTEMPT_ERROR_BYTES);
                let reason = REASONS.iter().position(|it| it == reason);
                let mut encoded = vec![b'x', reason.unwrap_or_default() as u8];
                if encoded.len() + error.len() <= max {
                    encoded.extend(error.as_bytes());
                }
                encoded
            }
            TaskState::Cancelled => vec![b'c'],
            // A child does not come from an outbox.
            TaskState::Absent | TaskState::Conflict { .. } => vec![b'a'],
            TaskState::Waiting | TaskState::Delayed | TaskState::Running => return None,
        };
        Some(encoded)
    }

    /// Decodes what [`encode`](Self::encode) has returned.
    pub(crate) fn decode(encoded: &[u8]) -> Option<Self> {
        let (tag, rest) = encoded.split_first()?;
        Some(Self::Ended(match tag {
            b'd' => TaskState::Done(rest.to_vec()),
            b'l' => {
                return Some(Self::TooLarge(
                    u64::from_be_bytes(rest.try_into().ok()?) as usize
                ));
            }
            b'x' => TaskState::Dead {
                reason: *REASONS.get(usize::from(*rest.first()?))?,
                error: String::from_utf8(rest[1..].to_vec()).ok()?,
            },
            b'c' => TaskState::Cancelled,
            b'a' => TaskState::Absent,
            _ => return None,
        }))
    }
}

fn with_tag(tag: u8, rest: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(1 + rest.len());
    encoded.push(tag);
    encoded.extend(rest);
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_read_as_it_was_written() {
        let dead = |reason| TaskState::Dead {
            reason,
            error: String::from("f\u{fc}r"),
        };
        let ends = [
            TaskState::Done(b"output".to_vec()),
            TaskState::Done(Vec::new()),
            TaskState::Cancelled,
            TaskState::Absent,
        ];
        for end in REASONS.map(dead).into_iter().chain(ends) {
            let encoded = ChildEnd::encode(&end, 100).expect("it has ended");
            assert_eq!(ChildEnd::decode(&encoded), Some(ChildEnd::Ended(end)));
        }
        assert_eq!(ChildEnd::encode(&TaskState::Running, 100), None);
    }

    #[test]
    fn an_output_that_is_too_large_is_left_out() {
        let end = TaskState::Done(vec![7; 100]);
        for (max, expected) in [
            (101, ChildEnd::Ended(end.clone())),
            (100, ChildEnd::TooLarge(100)),
        ] {
            let encoded = ChildEnd::encode(&end, max).expect("it has ended");
            assert_eq!(ChildEnd::decode(&encoded), Some(expected));
        }
    }

    #[test]
    fn an_error_that_is_too_large_is_left_out() {
        let dead = |error: &str| TaskState::Dead {
            reason: DeadReason::Attempts,
            error: error.to_owned(),
        };
        for (max, expected) in [(6, "four"), (5, ""), (0, "")] {
            let encoded = ChildEnd::encode(&dead("four"), max).expect("it has ended");
            let expected = ChildEnd::Ended(dead(expected));
            assert_eq!(ChildEnd::decode(&encoded), Some(expected));
        }
    }

    #[test]
    fn other_bytes_are_no_end() {
        for bytes in [&b""[..], b"?", b"l7", b"x", b"x\x06", b"x\x00\xff"] {
            assert_eq!(ChildEnd::decode(bytes), None, "{bytes:?}");
        }
    }
}
