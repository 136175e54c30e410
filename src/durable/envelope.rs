//! The envelopes in which payloads and outputs are stored.
//!
//! The first byte of an envelope is its version. The version of a payload's envelope is a part of the task's
//! [`Kind`](super::store::kind::Kind), so a build never claims a task whose envelope it cannot read.
//!
//! | bytes | envelope of a payload, version 1 |
//! | --- | --- |
//! | 1 | 1 |
//! | | payload |
//!
//! | bytes | envelope of a payload, version 2, for tasks with a trace context, a tick or a policy, and for later [versions](super::DurableTask::VERSION) of a type |
//! | --- | --- |
//! | 1 | 2 |
//! | 1 | flags. 1: there is a trace context; 2: there is a tick; 4: there is a policy |
//! | 1 | version of the payload |
//! | 25 | trace context, if there is one: trace id 16, span id 8, trace flags 1 |
//! | 8 | tick, if there is one, in milliseconds since 1970, big-endian |
//! | | [`Policy`] that the [options](super::SpawnOptions) of the spawn set, if there is one |
//! | | payload |
//!
//! | bytes | envelope of an output, version 1 |
//! | --- | --- |
//! | 1 | 1 |
//! | 4 | duration of the run in milliseconds, big-endian |
//! | 2 | length of the name, big-endian |
//! | | name of the task |
//! | | output |

use std::error::Error;
use std::time::Duration;

use serde::Serialize;

use super::clock::millis;
use super::policy::{MAX_POLICY_BYTES, Policy};

/// The envelope in which this build stores payloads of version 1 without a trace context, a tick or a policy.
pub(crate) const SHORT_ENVELOPE: u8 = 1;
/// The envelope in which this build stores other payloads.
pub(crate) const LONG_ENVELOPE: u8 = 2;
/// The versions of the envelopes of payloads that this build reads.
pub(crate) const KNOWN_PAYLOAD_ENVELOPES: [u8; 2] = [SHORT_ENVELOPE, LONG_ENVELOPE];

const HAS_TRACE_CONTEXT: u8 = 1;
const TRACE_CONTEXT_BYTES: usize = 16 + 8 + 1;
/// A trace context as it is stored.
pub(crate) type TraceBytes = [u8; TRACE_CONTEXT_BYTES];
const HAS_TICK: u8 = 2;
const HAS_POLICY: u8 = 4;
/// The maximum number of bytes before a payload without a tick.
pub(crate) const MAX_HEAD_BYTES: usize = 3 + TRACE_CONTEXT_BYTES + MAX_POLICY_BYTES;

const OUTPUT_ENVELOPE: u8 = 1;

/// A payload that was taken out of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenPayload<'a> {
    /// The version of the type that has encoded the task.
    pub(crate) version: u8,
    #[cfg_attr(
        not(feature = "tracing"),
        allow(dead_code, reason = "only `tracing` uses it")
    )]
    pub(crate) trace: Option<TraceBytes>,
    /// The tick of a task that a schedule has stored, in milliseconds since 1970.
    pub(crate) tick: Option<u64>,
    pub(crate) policy: Policy,
    /// The encoded task.
    pub(crate) bytes: &'a [u8],
}

/// An output that was taken out of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenOutput<'a> {
    /// The name of the task.
    pub(crate) name: &'a str,
    /// The encoded output.
    pub(crate) bytes: &'a [u8],
}

/// Returns the envelope of tasks with this version, this trace context and this policy, and without a tick.
pub(crate) fn envelope_of(version: u8, trace: Option<TraceBytes>, policy: Policy) -> u8 {
    match (version, trace, policy) {
        (1, None, Policy::DEFAULT) => SHORT_ENVELOPE,
        _ => LONG_ENVELOPE,
    }
}

/// Returns a task that a version of its type has encoded, as it is stored.
pub(crate) fn seal_payload(
    version: u8,
    trace: Option<TraceBytes>,
    policy: Policy,
    mut payload: Vec<u8>,
) -> Vec<u8> {
    let head = match envelope_of(version, trace, policy) {
        SHORT_ENVELOPE => vec![SHORT_ENVELOPE],
        _ => long_head(version, trace, None, policy),
    };
    payload.splice(..0, head);
    payload
}

/// Returns an encoded task of a schedule as it is stored. The tick is in milliseconds since 1970.
pub(crate) fn seal_tick(tick: u64, version: u8, policy: Policy, payload: &[u8]) -> Vec<u8> {
    [&long_head(version, None, Some(tick), policy), payload].concat()
}

/// Returns the bytes of a long envelope that precede the payload.
fn long_head(version: u8, trace: Option<TraceBytes>, tick: Option<u64>, policy: Policy) -> Vec<u8> {
    let mut head = vec![LONG_ENVELOPE, 0, version];
    if let Some(trace) = trace {
        head[1] |= HAS_TRACE_CONTEXT;
        head.extend(trace);
    }
    if let Some(tick) = tick {
        head[1] |= HAS_TICK;
        head.extend(tick.to_be_bytes());
    }
    if policy != Policy::DEFAULT {
        head[1] |= HAS_POLICY;
        head.extend(policy.encode());
    }
    head
}

/// Returns the contents of the envelope of a payload, or `None` if it cannot be read.
pub(crate) fn open_payload(sealed: &[u8]) -> Option<OpenPayload<'_>> {
    match sealed {
        [SHORT_ENVELOPE, bytes @ ..] => Some(OpenPayload {
            version: 1,
            trace: None,
            tick: None,
            policy: Policy::DEFAULT,
            bytes,
        }),
        [
            LONG_ENVELOPE,
            flags @ 0..=7,
            version @ 1..=u8::MAX,
            rest @ ..,
        ] => open_long(*flags, *version, rest),
        _ => None,
    }
}

/// Reads the rest of a long envelope with these flags.
fn open_long(flags: u8, version: u8, mut bytes: &[u8]) -> Option<OpenPayload<'_>> {
    let (mut trace, mut tick, mut policy) = (None, None, Policy::DEFAULT);
    if flags & HAS_TRACE_CONTEXT != 0 {
        let (found, rest) = bytes.split_first_chunk()?;
        (trace, bytes) = (Some(*found), rest);
    }
    if flags & HAS_TICK != 0 {
        let (found, rest) = bytes.split_first_chunk()?;
        (tick, bytes) = (Some(u64::from_be_bytes(*found)), rest);
    }
    if flags & HAS_POLICY != 0 {
        (policy, bytes) = Policy::decode(bytes)?;
    }
    Some(OpenPayload {
        version,
        trace,
        tick,
        policy,
        bytes,
    })
}

/// Returns the output of a task with this name as it is stored.
pub(crate) fn seal_output(
    name: &str,
    output: &impl Serialize,
) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let len = u16::try_from(name.len())?;
    let mut sealed = Vec::with_capacity(128);
    sealed.push(OUTPUT_ENVELOPE);
    sealed.extend([0; 4]);
    sealed.extend(len.to_be_bytes());
    sealed.extend(name.as_bytes());
    serde_json::to_writer(&mut sealed, output)?;
    Ok(sealed)
}

/// Writes the duration of the run into the envelope of its output.
pub(crate) fn stamp_output(sealed: &mut [u8], took: Duration) {
    if let [OUTPUT_ENVELOPE, first, second, third, fourth, ..] = sealed {
        [*first, *second, *third, *fourth] = short_millis(took).to_be_bytes();
    }
}

/// Returns a duration in milliseconds. A longer one is replaced by the longest that Redis can distinguish from an unknown one.
fn short_millis(time: Duration) -> u32 {
    u32::try_from(millis(time)).unwrap_or(u32::MAX - 1)
}

/// Returns the contents of the envelope of an output, or `None` if it cannot be read.
pub(crate) fn open_output(sealed: &[u8]) -> Option<OpenOutput<'_>> {
    let [OUTPUT_ENVELOPE, _, _, _, _, first, second, rest @ ..] = sealed else {
        return None;
    };
    let len = usize::from(u16::from_be_bytes([*first, *second]));
    let (name, bytes) = rest.split_at_checked(len)?;
    let name = std::str::from_utf8(name).ok()?;
    Some(OpenOutput { name, bytes })
}

/// Returns the duration of the run with an output, or `None` if its envelope cannot be read.
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub fn run_time_of(sealed: &[u8]) -> Option<Duration> {
    let [OUTPUT_ENVELOPE, rest @ ..] = sealed else {
        return None;
    };
    let (took, _) = rest.split_first_chunk()?;
    Some(Duration::from_millis(u32::from_be_bytes(*took).into()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::retry::Retry;

    #[test]
    fn an_output_is_stored_with_the_name_of_its_task() {
        let sealed = seal_output("mail.send", &7).unwrap();
        assert_eq!(sealed, b"\x01\0\0\0\0\x00\x09mail.send7");
        let opened = open_output(&sealed).unwrap();
        assert_eq!((opened.name, opened.bytes), ("mail.send", &b"7"[..]));
        for len in 0..16 {
            assert_eq!(open_output(&sealed[..len]), None, "{len}");
        }
        let newer = b"\x02\0\0\0\0\x00\x00";
        assert_eq!(open_output(newer), None, "a newer version");
        assert_eq!(open_output(b"\x01\0\0\0\0\x00\x01\xff"), None, "not UTF-8");
        assert!(seal_output(&"n".repeat(1 << 16), &()).is_err());
    }

    #[test]
    fn an_output_is_stored_with_the_duration_of_its_run() {
        let mut sealed = seal_output("mail.send", &7).unwrap();
        for (took, stored) in [
            (Duration::from_micros(1_999), Duration::from_millis(1)),
            (
                Duration::from_millis(0x0102_0304),
                Duration::from_millis(0x0102_0304),
            ),
            (Duration::MAX, Duration::from_millis((u32::MAX - 1).into())),
        ] {
            stamp_output(&mut sealed, took);
            assert_eq!(run_time_of(&sealed), Some(stored));
            let opened = open_output(&sealed).unwrap();
            assert_eq!((opened.name, opened.bytes), ("mail.send", &b"7"[..]));
        }
        for other in [&b""[..], b"\x01", b"\x01\0\0\0", b"output"] {
            let mut stamped = other.to_vec();
            stamp_output(&mut stamped, Duration::ZERO);
            assert_eq!(stamped, other);
            assert_eq!(run_time_of(other), None);
        }
    }

    fn opened(sealed: &[u8]) -> Option<(u8, Option<u64>, &[u8])> {
        open_payload(sealed).map(|it| (it.version, it.tick, it.bytes))
    }

    #[test]
    fn payloads_are_read_from_both_envelopes() {
        let seal = |version| seal_payload(version, None, Policy::DEFAULT, b"payload".into());
        assert_eq!(seal(1), b"\x01payload");
        assert_eq!(opened(b"\x01payload"), Some((1, None, &b"payload"[..])));
        assert_eq!(seal(7), b"\x02\x00\x07payload");
        let expected = Some((7, None, &b"payload"[..]));
        assert_eq!(opened(b"\x02\x00\x07payload"), expected);
        let traced = [&b"\x02\x01\x07"[..], &[9; TRACE_CONTEXT_BYTES], b"payload"].concat();
        assert_eq!(opened(&traced), expected);
        let trace = Some([9; TRACE_CONTEXT_BYTES]);
        let sealed = seal_payload(7, trace, Policy::DEFAULT, b"payload".into());
        assert_eq!(sealed, traced);
        assert_eq!(open_payload(&traced).unwrap().trace, trace);
        // The short envelope has no room for it.
        assert_eq!(envelope_of(1, trace, Policy::DEFAULT), LONG_ENVELOPE);
        for sealed in [&[][..], &[2], &[2, 0], &traced[..27]] {
            assert_eq!(opened(sealed), None, "{sealed:?}");
        }
        assert_eq!(opened(b"\x02\x00\x00payload"), None, "no version");
        assert_eq!(opened(b"\x02\x08\x01payload"), None, "an unknown flag");
        assert_eq!(opened(b"\x03payload"), None, "a newer envelope");
    }

    #[test]
    fn a_tick_is_stored_with_the_payload() {
        let sealed = seal_tick(0x0102_0304, 5, Policy::DEFAULT, b"payload");
        assert_eq!(
            sealed,
            b"\x02\x02\x05\x00\x00\x00\x00\x01\x02\x03\x04payload"
        );
        let expected = Some((5, Some(0x0102_0304), &b"payload"[..]));
        assert_eq!(opened(&sealed), expected);
        assert_eq!(opened(&sealed[..10]), None, "a part of the tick");
        let traced = [
            &b"\x02\x03\x05"[..],
            &[9; TRACE_CONTEXT_BYTES],
            &sealed[3..],
        ];
        assert_eq!(opened(&traced.concat()), expected);
    }

    #[test]
    fn a_policy_is_stored_with_the_payload() {
        let timeout = Policy {
            timeout: Some(Duration::from_nanos(0x0102)),
            ..Policy::DEFAULT
        };
        let sealed = seal_payload(1, None, timeout, b"payload".into());
        assert_eq!(
            sealed,
            b"\x02\x04\x01\x02\x00\x00\x00\x00\x00\x00\x01\x02payload"
        );
        let retry = Policy {
            retry: Some(Retry::exponential().attempts(7)),
            ..timeout
        };
        let head = long_head(1, Some([9; TRACE_CONTEXT_BYTES]), None, retry);
        assert_eq!(head.len(), MAX_HEAD_BYTES);
        for policy in [timeout, retry] {
            assert_eq!(envelope_of(1, None, policy), LONG_ENVELOPE);
            let sealed = seal_tick(9, 3, policy, b"payload");
            let opened = open_payload(&sealed).unwrap();
            assert_eq!(
                (opened.version, opened.tick, opened.policy, opened.bytes),
                (3, Some(9), policy, &b"payload"[..])
            );
            for len in 0..sealed.len() - 7 {
                assert_eq!(open_payload(&sealed[..len]), None, "{len}");
            }
        }
    }
}
