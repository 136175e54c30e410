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
//! | bytes | envelope of a payload, version 2, for tasks of schedules, and for later [versions](super::DurableTask::VERSION) of a type |
//! | --- | --- |
//! | 1 | 2 |
//! | 1 | flags. 1: there is a trace context, which this build reads but does not write; 2: there is a tick |
//! | 1 | version of the payload |
//! | 25 | trace context, if there is one: trace id 16, span id 8, trace flags 1 |
//! | 8 | tick, if there is one, in milliseconds since 1970, big-endian |
//! | | payload |
//!
//! | bytes | envelope of an output, version 1 |
//! | --- | --- |
//! | 1 | 1 |
//! | 2 | length of the name, big-endian |
//! | | name of the task |
//! | | output |

use std::error::Error;

use serde::Serialize;

/// The envelope in which this build stores payloads of version 1 without a tick.
pub(crate) const SHORT_ENVELOPE: u8 = 1;
/// The envelope in which this build stores other payloads.
pub(crate) const LONG_ENVELOPE: u8 = 2;
/// The versions of the envelopes of payloads that this build reads.
pub(crate) const KNOWN_PAYLOAD_ENVELOPES: [u8; 2] = [SHORT_ENVELOPE, LONG_ENVELOPE];

const HAS_TRACE_CONTEXT: u8 = 1;
const TRACE_CONTEXT_BYTES: usize = 16 + 8 + 1;
const HAS_TICK: u8 = 2;

const OUTPUT_ENVELOPE: u8 = 1;

/// A payload that was taken out of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenPayload<'a> {
    /// The version of the type that has encoded the task.
    pub(crate) version: u8,
    /// The tick of a task that a schedule has stored, in milliseconds since 1970.
    pub(crate) tick: Option<u64>,
    /// The encoded task.
    pub(crate) bytes: &'a [u8],
}

/// Returns the envelope of the tasks of a version without a tick.
pub(crate) const fn envelope_of(version: u8) -> u8 {
    match version {
        1 => SHORT_ENVELOPE,
        _ => LONG_ENVELOPE,
    }
}

/// Returns a task that a version of its type has encoded, as it is stored.
pub(crate) fn seal_payload(version: u8, mut payload: Vec<u8>) -> Vec<u8> {
    let head: &[u8] = match envelope_of(version) {
        SHORT_ENVELOPE => &[SHORT_ENVELOPE],
        _ => &[LONG_ENVELOPE, 0, version],
    };
    payload.splice(..0, head.iter().copied());
    payload
}

/// Returns an encoded task of a schedule as it is stored. The tick is in milliseconds since 1970.
pub(crate) fn seal_tick(tick: u64, version: u8, payload: &[u8]) -> Vec<u8> {
    let head = [LONG_ENVELOPE, HAS_TICK, version];
    [&head[..], &tick.to_be_bytes(), payload].concat()
}

/// Returns the contents of the envelope of a payload, or `None` if it cannot be read.
pub(crate) fn open_payload(sealed: &[u8]) -> Option<OpenPayload<'_>> {
    let (flags, version, rest) = match sealed {
        [SHORT_ENVELOPE, bytes @ ..] => (0, 1, bytes),
        [
            LONG_ENVELOPE,
            flags @ 0..=3,
            version @ 1..=u8::MAX,
            rest @ ..,
        ] => (*flags, *version, rest),
        _ => return None,
    };
    let rest = match flags & HAS_TRACE_CONTEXT {
        0 => rest,
        _ => rest.get(TRACE_CONTEXT_BYTES..)?,
    };
    let (tick, bytes) = match flags & HAS_TICK {
        0 => (None, rest),
        _ => {
            let (tick, bytes) = rest.split_first_chunk()?;
            (Some(u64::from_be_bytes(*tick)), bytes)
        }
    };
    Some(OpenPayload {
        version,
        tick,
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
    sealed.extend(len.to_be_bytes());
    sealed.extend(name.as_bytes());
    serde_json::to_writer(&mut sealed, output)?;
    Ok(sealed)
}

/// Returns the name and the output in an envelope, or `None` if it cannot be read.
pub(crate) fn open_output(sealed: &[u8]) -> Option<(&str, &[u8])> {
    let [OUTPUT_ENVELOPE, first, second, rest @ ..] = sealed else {
        return None;
    };
    let len = usize::from(u16::from_be_bytes([*first, *second]));
    let (name, output) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(name).ok()?, output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_stored_with_the_name_of_its_task() {
        let sealed = seal_output("mail.send", &7).unwrap();
        assert_eq!(sealed, b"\x01\x00\x09mail.send7");
        assert_eq!(open_output(&sealed), Some(("mail.send", &b"7"[..])));
        for len in 0..12 {
            assert_eq!(open_output(&sealed[..len]), None, "{len}");
        }
        assert_eq!(open_output(b"\x02\x00\x00"), None, "a newer version");
        assert_eq!(open_output(b"\x01\x00\x01\xff"), None, "not UTF-8");
        assert!(seal_output(&"n".repeat(1 << 16), &()).is_err());
    }

    fn opened(sealed: &[u8]) -> Option<(u8, Option<u64>, &[u8])> {
        open_payload(sealed).map(|it| (it.version, it.tick, it.bytes))
    }

    #[test]
    fn payloads_are_read_from_both_envelopes() {
        assert_eq!(seal_payload(1, b"payload".into()), b"\x01payload");
        assert_eq!(opened(b"\x01payload"), Some((1, None, &b"payload"[..])));
        assert_eq!(seal_payload(7, b"payload".into()), b"\x02\x00\x07payload");
        let expected = Some((7, None, &b"payload"[..]));
        assert_eq!(opened(b"\x02\x00\x07payload"), expected);
        let traced = [&b"\x02\x01\x07"[..], &[9; TRACE_CONTEXT_BYTES], b"payload"].concat();
        assert_eq!(opened(&traced), expected);
        for sealed in [&[][..], &[2], &[2, 0], &traced[..27]] {
            assert_eq!(opened(sealed), None, "{sealed:?}");
        }
        assert_eq!(opened(b"\x02\x00\x00payload"), None, "no version");
        assert_eq!(opened(b"\x02\x04\x01payload"), None, "an unknown flag");
        assert_eq!(opened(b"\x03payload"), None, "a newer envelope");
    }

    #[test]
    fn a_tick_is_stored_with_the_payload() {
        let sealed = seal_tick(0x0102_0304, 5, b"payload");
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
}
