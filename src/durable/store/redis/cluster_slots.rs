//! The slots of a Redis Cluster: the slot of a key, and the nodes that own slots.

use std::ops::RangeInclusive;

use redis::Value;

use super::address::ServerAddress;

/// The number of slots of each cluster.
const SLOTS: u16 = 16_384;

/// Returns the slot of a key. If the key has a tag, a non-empty text in braces, the tag determines the slot.
pub(super) fn slot_of(key: &str) -> u16 {
    let tagged = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tagged.map(|(tag, _)| tag).filter(|tag| !tag.is_empty());
    crc16(hashed.unwrap_or(key).as_bytes()) % SLOTS
}

/// Returns the checksum CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    let shifted = |sum: u16| match sum & 0x8000 {
        0 => sum << 1,
        _ => sum << 1 ^ POLYNOMIAL,
    };
    bytes.iter().fold(0, |sum, &byte| {
        (0..8).fold(sum ^ u16::from(byte) << 8, |sum, _| shifted(sum))
    })
}

/// Reads the address in a redirection. An empty host stands for that of the node that has answered, which is `asked`. Returns `None` if the
/// node does not know the host.
pub(super) fn redirected_to(text: &str, asked: &str) -> Option<ServerAddress> {
    let (host, port) = text.rsplit_once(':')?;
    node_address(host, port.parse().ok()?, asked)
}

/// Returns the address of a node, as the nodes of its cluster know it.
fn node_address(host: &str, port: u16, asked: &str) -> Option<ServerAddress> {
    let host = match host {
        "?" => return None,
        "" => asked,
        host => host,
    };
    (!host.is_empty()).then(|| ServerAddress {
        host: host.to_owned(),
        port,
    })
}

/// The primaries that own the slots of a cluster.
#[derive(Debug, Default)]
pub(super) struct SlotOwners(Vec<(RangeInclusive<u16>, ServerAddress)>);

impl SlotOwners {
    /// Reads the answer to `CLUSTER SLOTS` of the node with the host `asked`. Leaves out slots whose owner has no known address.
    pub(super) fn parse(answer: &Value, asked: &str) -> Option<Self> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let ranges = ranges.iter().map(|range| owner_in(range, asked));
        Some(Self(
            ranges
                .collect::<Option<Vec<_>>>()?
                .into_iter()
                .flatten()
                .collect(),
        ))
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&ServerAddress> {
        let found = self.0.iter().find(|(range, _)| range.contains(&slot));
        found.map(|(_, owner)| owner)
    }
}

/// Reads a range of slots: its first and last one, and its servers, the primary first. The inner `None` means that the address of the
/// primary is unknown.
fn owner_in(range: &Value, asked: &str) -> Option<Option<(RangeInclusive<u16>, ServerAddress)>> {
    let Value::Array(parts) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(primary),
        ..,
    ] = &**parts
    else {
        return None;
    };
    let slots = u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?;
    let [host, Value::Int(port), ..] = &**primary else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
        _ => String::new(),
    };
    let owner = node_address(&host, u16::try_from(*port).ok()?, asked);
    Some(owner.map(|owner| (slots, owner)))
}

#[cfg(test)]
mod tests {
    use super::super::keys;
    use super::super::partitions::MAX_PARTITIONS;
    use super::*;

    fn address(host: &str, port: u16) -> ServerAddress {
        let host = host.to_owned();
        ServerAddress { host, port }
    }

    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }

    #[test]
    fn a_tag_determines_the_slot() {
        assert_eq!(slot_of("{user1000}.following"), slot_of("user1000"));
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
        assert_eq!(slot_of("foo{bar}{zap}"), slot_of("bar"));
        assert_ne!(slot_of("foo{}{bar}"), slot_of("bar"));
        assert_eq!(slot_of("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of("foo{bar"), crc16(b"foo{bar") % SLOTS);
    }

    /// Returns the numbers of partitions on nodes with slots of equal number.
    fn spread(namespace: &str, partitions: usize, nodes: usize) -> Vec<usize> {
        let mut counts = vec![0; nodes];
        for partition in 0..partitions {
            let slot = usize::from(slot_of(&keys::base(namespace, partition)));
            counts[slot * nodes / usize::from(SLOTS)] += 1;
        }
        counts
    }

    /// Two texts that differ in their last digits have slots that are far apart.
    #[test]
    fn partitions_are_spread_over_the_nodes() {
        let names = ["default", "mail", "images", "a", "production-europe"];
        let random = (0..200).map(|seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..random.usize(1..12))
                .map(|_| random.lowercase())
                .collect::<String>()
        });
        for name in names.into_iter().map(str::to_owned).chain(random) {
            assert_eq!(spread(&name, 4, 4), [1; 4], "{name}");
            for nodes in 2..=4 {
                for partitions in [4, 8, 16, 32, MAX_PARTITIONS] {
                    let counts = spread(&name, partitions, nodes);
                    let (most, mean) = (*counts.iter().max().unwrap(), partitions.div_ceil(nodes));
                    assert!(counts.iter().all(|&count| count > 0), "{name}: {counts:?}");
                    assert!(most <= 2 * mean, "{name}: {counts:?}");
                }
            }
            let counts = spread(&name, MAX_PARTITIONS, 3);
            assert!(
                counts.iter().all(|count| (14..=29).contains(count)),
                "{name}: {counts:?}"
            );
        }
    }

    fn server(host: Value, port: i64) -> Value {
        let id = Value::BulkString(vec![b'a'; 40]);
        Value::Array(vec![host, Value::Int(port), id, Value::Array(Vec::new())])
    }

    fn range(first: i64, last: i64, servers: Vec<Value>) -> Value {
        let mut parts = vec![Value::Int(first), Value::Int(last)];
        parts.extend(servers);
        Value::Array(parts)
    }

    #[test]
    fn the_first_server_of_a_range_owns_it() {
        let host = |host: &str| Value::BulkString(host.as_bytes().to_vec());
        let answer = Value::Array(vec![
            range(
                0,
                9,
                vec![server(host("10.0.0.1"), 1), server(host("10.0.0.2"), 2)],
            ),
            range(10, 10, vec![server(host("::1"), 3)]),
            range(11, 12, vec![server(host(""), 4)]),
            range(13, 14, vec![server(Value::Nil, 5)]),
            range(15, 16, vec![server(host("?"), 6)]),
        ]);
        let owners = SlotOwners::parse(&answer, "asked").unwrap();
        assert_eq!(owners.owner(9), Some(&address("10.0.0.1", 1)));
        assert_eq!(owners.owner(10), Some(&address("::1", 3)));
        assert_eq!(owners.owner(12), Some(&address("asked", 4)));
        assert_eq!(owners.owner(13), Some(&address("asked", 5)));
        assert_eq!(owners.owner(15), None);
        assert_eq!(owners.owner(17), None);
    }

    #[test]
    fn an_answer_of_another_form_is_no_map() {
        let pair = Value::Array(vec![Value::Int(0), Value::Int(1)]);
        for answer in [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![pair]),
        ] {
            assert!(SlotOwners::parse(&answer, "").is_none(), "{answer:?}");
        }
    }

    #[test]
    fn a_redirection_has_an_address() {
        let parse = |text| redirected_to(text, "asked");
        assert_eq!(parse("127.0.0.1:6381"), Some(address("127.0.0.1", 6381)));
        assert_eq!(parse("::1:6381"), Some(address("::1", 6381)));
        assert_eq!(parse(":6381"), Some(address("asked", 6381)));
        for text in ["?:6381", "", "host", "host:", "host:port", "host:70000"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(redirected_to(":1", ""), None);
    }
}
