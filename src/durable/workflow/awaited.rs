//! [`AwaitedSteps`]: the steps for which a run waits, and their description in a store.

use crate::durable::store::{StepKind, StepName};

/// The maximum size in bytes of a description. It has one name in any case.
const MAX_BYTES: usize = 512;

/// Precedes the number of children in a description.
const CHILDREN: &str = "children:";

/// The steps for which a run waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AwaitedSteps {
    /// The end of a sleep.
    Sleep(StepName),
    Signal(StepName),
    /// The ends of this number of children.
    Children(u32),
}

impl AwaitedSteps {
    /// Returns a description of these steps: a signal, or the ends of children.
    pub(super) fn new(missing: &[&StepName]) -> Self {
        match missing {
            [one] if matches!(StepName::split(one.as_str()), Some((StepKind::Signal, _))) => {
                Self::Signal((*one).clone())
            }
            _ => Self::Children(missing.len() as u32),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Sleep(name) | Self::Signal(name) => name.as_str().to_owned(),
            Self::Children(number) => format!("{CHILDREN}{number}"),
        }
    }

    fn of(text: &str) -> Option<Self> {
        match text.strip_prefix(CHILDREN) {
            Some(number) => Some(Self::Children(number.parse().ok()?)),
            None => Some(Self::of_name(StepName::parse(text).ok()?)),
        }
    }

    fn of_name(name: StepName) -> Self {
        match StepName::split(name.as_str()) {
            Some((StepKind::Sleep, _)) => Self::Sleep(name),
            _ => Self::Signal(name),
        }
    }

    fn is_sleep(&self) -> bool {
        matches!(self, Self::Sleep(_))
    }
}

/// Describes the waits of a run, as a JSON array of texts. The sleeps come last. Waits that do not fit are left out.
pub(super) fn encode(waits: &[AwaitedSteps]) -> String {
    let (sleeps, others): (Vec<_>, Vec<_>) = waits.iter().partition(|wait| wait.is_sleep());
    let mut texts: Vec<String> = Vec::new();
    let mut bytes = 0;
    for text in others.into_iter().chain(sleeps).map(AwaitedSteps::text) {
        bytes += text.len();
        if texts.is_empty() || bytes <= MAX_BYTES {
            texts.push(text);
        }
    }
    serde_json::to_string(&texts).unwrap_or_default()
}

/// Reads a description. Leaves out what cannot be read, since a later version of the crate may have written it.
pub(crate) fn decode(text: &str) -> Vec<AwaitedSteps> {
    let texts: Vec<String> = serde_json::from_str(text).unwrap_or_default();
    let waits = texts.iter().filter_map(|text| AwaitedSteps::of(text));
    waits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(name: &str) -> AwaitedSteps {
        AwaitedSteps::Signal(StepName::new(StepKind::Signal, name).unwrap())
    }

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let waits = [
            signal("a\n\"b\0"),
            AwaitedSteps::Children(7),
            signal("children:1"),
        ];
        assert_eq!(decode(&encode(&waits)), waits);
        assert_eq!(encode(&[]), "[]");
        let sleep = || AwaitedSteps::Sleep(StepName::new(StepKind::Sleep, "b").unwrap());
        let both = decode(&encode(&[sleep(), signal("a")]));
        assert_eq!(both, [signal("a"), sleep()]);
        assert_eq!(decode(""), []);
        assert_eq!(decode(r#"["children:x","signal:"]"#), []);
    }

    #[test]
    fn a_description_has_a_limited_size() {
        let waits: Vec<_> = (0..9)
            .map(|n| signal(&format!("{n}{}", "x".repeat(120))))
            .collect();
        assert_eq!(decode(&encode(&waits)), waits[..4]);
        assert_eq!(decode(&encode(&waits[..1])), waits[..1]);
    }
}
