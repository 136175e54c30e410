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
//! | bytes | envelope of a payload, version 2, for the tasks of schedules |
//! | --- | --- |
//! | 1 | 2 |
//! | 1 | flags. 1: there is a trace context, which this build reads but does not write; 2: there is a tick |
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

/// The version of the envelope in which this build stores payloads.
pub(crate) const PAYLOAD_ENVELOPE: u8 = 1;
/// The version of the envelope in which this build stores the payloads of tasks with a tick.
pub(crate) const TICK_ENVELOPE: u8 = 2;
/// The versions of the envelopes of payloads that this build reads.
pub(crate) const KNOWN_PAYLOAD_ENVELOPES: [u8; 2] = [1, 2];

const HAS_TRACE_CONTEXT: u8 = 1;
const TRACE_CONTEXT_BYTES: usize = 16 + 8 + 1;
const HAS_TICK: u8 = 2;

const OUTPUT_ENVELOPE: u8 = 1;

/// Returns an encoded task as it is stored.
pub(crate) fn seal_payload(mut payload: Vec<u8>) -> Vec<u8> {
    payload.insert(0, PAYLOAD_ENVELOPE);
    payload
}

/// Returns an encoded task of a schedule as it is stored. The tick is in milliseconds since 1970.
pub(crate) fn seal_tick(tick: u64, payload: &[u8]) -> Vec<u8> {
    [&[TICK_ENVELOPE, HAS_TICK], &tick.to_be_bytes()[..], payload].concat()
}

/// Returns the contents of the envelope of a payload, or `None` if it cannot be read.
pub(crate) fn open_payload(sealed: &[u8]) -> Option<&[u8]> {
    open(sealed).map(|(_, payload)| payload)
}

/// Returns the tick of a task that a schedule has stored, in milliseconds since 1970.
pub(crate) fn tick(sealed: &[u8]) -> Option<u64> {
    open(sealed)?.0
}

/// Returns the tick, if there is one, and the payload. Returns `None` if the envelope cannot be read.
fn open(sealed: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let (flags, rest) = match sealed {
        [1, payload @ ..] => return Some((None, payload)),
        [2, flags @ 0..=3, rest @ ..] => (flags, rest),
        _ => return None,
    };
    let rest = match flags & HAS_TRACE_CONTEXT {
        0 => rest,
        _ => rest.get(TRACE_CONTEXT_BYTES..)?,
    };
    match flags & HAS_TICK {
        0 => Some((None, rest)),
        _ => {
            let (tick, payload) = rest.split_first_chunk()?;
            Some((Some(u64::from_be_bytes(*tick)), payload))
        }
    }
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

    #[test]
    fn payloads_are_read_from_both_envelopes() {
        assert_eq!(open_payload(b"\x01payload"), Some(&b"payload"[..]));
        assert_eq!(open_payload(b"\x02\x00payload"), Some(&b"payload"[..]));
        let traced = [&b"\x02\x01"[..], &[9; TRACE_CONTEXT_BYTES], b"payload"].concat();
        assert_eq!(open_payload(&traced), Some(&b"payload"[..]));
        for (len, sealed) in [(0, &[][..]), (1, &[2]), (26, &traced[..26])] {
            assert_eq!(open_payload(sealed), None, "{len}");
        }
        assert_eq!(open_payload(b"\x02\x04payload"), None, "an unknown flag");
        assert_eq!(open_payload(b"\x03payload"), None, "a newer version");
    }

    #[test]
    fn a_tick_is_stored_with_the_payload() {
        let sealed = seal_tick(0x0102_0304, b"payload");
        assert_eq!(sealed, b"\x02\x02\x00\x00\x00\x00\x01\x02\x03\x04payload");
        assert_eq!(open_payload(&sealed), Some(&b"payload"[..]));
        assert_eq!(tick(&sealed), Some(0x0102_0304));
        assert_eq!(tick(b"\x01payload"), None);
        assert_eq!(open_payload(&sealed[..9]), None, "a part of the tick");
        let traced = [&b"\x02\x03"[..], &[9; TRACE_CONTEXT_BYTES], &sealed[2..]];
        assert_eq!(open_payload(&traced.concat()), Some(&b"payload"[..]));
        assert_eq!(tick(&traced.concat()), Some(0x0102_0304));
    }
}
