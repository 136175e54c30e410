//! The messages with pushed claims.

use std::time::Duration;

use super::{entry, partitions, reply};
use crate::durable::store::PushedClaim;

/// Reads a message with a pushed claim, which is described in `push_claim.lua`, and the server's time of the claim, in milliseconds since
/// 1970. Returns `None` if the message has another form.
pub(super) fn read(message: &[u8]) -> Option<(PushedClaim, i64)> {
    let (&len, rest) = message.split_first()?;
    let (session, rest) = rest.split_at_checked(len.into())?;
    let (epoch, rest) = rest.split_at_checked(16)?;
    let (now, rest) = rest.split_at_checked(6)?;
    let (&is_idle, rest) = rest.split_first()?;
    let now = entry::number(now).cast_signed();
    let entries = entries_of(rest)?;
    // Claims are pushed only in stores with a single partition.
    let epoch = partitions::whole(reply::epoch_in_partition(epoch)?, 0);
    let mut claim = reply::claim(epoch, &entries, Vec::new()).ok()?;
    reply::set_waited(&mut claim.tasks, &entries, now);
    let pushed = PushedClaim {
        session: std::str::from_utf8(session).ok()?.parse().ok()?,
        claim,
        claimed_at: Duration::ZERO,
        is_idle: is_idle != 0,
    };
    Some((pushed, now))
}

fn entries_of(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_first_chunk()?;
        let (entry, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        entries.push(entry.to_vec());
        bytes = rest;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_another_form_is_no_claim() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let mut bytes = vec![0; random.usize(..80)];
            random.fill(&mut bytes);
            // The lengths of the session and of its only entry are plausible.
            if let Some(len) = bytes.first_mut() {
                *len %= 4;
            }
            assert_eq!(read(&bytes), None);
        }
    }
}
