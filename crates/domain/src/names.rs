//! Names that are parsed once, where they come in. Code that has one need not check it again.

use std::{borrow::Borrow, fmt, marker::PhantomData, ops::Deref, sync::Arc};

use serde::{Serialize, Serializer};

use crate::{bounds, error::Invalid};

/// The name of a queue.
pub type QueueName = Name<OfQueue>;

/// What a name is of: decides what text is valid.
pub trait NameKind {
    fn check(text: &str) -> Result<(), Invalid>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfQueue;

impl NameKind for OfQueue {
    fn check(text: &str) -> Result<(), Invalid> {
        bounds::check_label("queue", text)
    }
}

/// A valid name. A clone shares the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<Of>(Arc<str>, PhantomData<Of>);

impl<Of: NameKind> Name<Of> {
    /// Refuses text that is no such name.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Of::check(text)?;
        Ok(Self(text.into(), PhantomData))
    }
}

impl<Of> Name<Of> {
    /// A name as a store has it, unchecked: people write rows with any text.
    pub fn stored(text: &str) -> Self {
        Self(text.into(), PhantomData)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<Of> Deref for Name<Of> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<Of> Borrow<str> for Name<Of> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<Of> From<Name<Of>> for Arc<str> {
    fn from(name: Name<Of>) -> Self {
        name.0
    }
}

impl<Of> PartialEq<str> for Name<Of> {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl<Of> PartialEq<&str> for Name<Of> {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl<Of> fmt::Debug for Name<Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl<Of> fmt::Display for Name<Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<Of> Serialize for Name<Of> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn only_a_valid_name_is_parsed() {
        assert_eq!(QueueName::parse("vip_long").unwrap(), "vip_long");
        let long = "x".repeat(bounds::LABEL_BYTES + 1);
        for text in [
            "", " ", "a b", "é", "a'b", "a\0", "a\n", "a;b", "a%", "a\\b", "😀", &long,
        ] {
            assert_eq!(QueueName::parse(text).unwrap_err().field, "queue");
        }
    }

    #[test]
    fn a_name_is_found_and_written_as_its_text() {
        let name = QueueName::parse("a.b").unwrap();
        let sizes = HashMap::from([(name.clone(), 1)]);

        assert_eq!(sizes.get("a.b"), Some(&1));
        assert_eq!(format!("{name} {name:?} {name:4}|"), "a.b \"a.b\" a.b |");
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"a.b\"");
    }
}
