//! Serialization of addresses in the document, as numbers.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! as_number {
    ($($module:ident: $address:ident),*) => {$(
        pub(super) mod $module {
            use patcher::$address;

            use super::*;

            pub(in super::super) fn serialize<S: Serializer>(
                at: &$address,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                at.0.serialize(serializer)
            }

            pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$address, D::Error> {
                u64::deserialize(deserializer).map($address)
            }
        }
    )*};
}
as_number!(avma: Avma, svma: Svma, bias: Bias);

/// A pair of the first address and the one after the last.
pub(super) mod range {
    use std::ops::Range;

    use patcher::Avma;

    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        range: &Range<Avma>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (range.start.0, range.end.0).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Range<Avma>, D::Error> {
        let (start, end) = Deserialize::deserialize(deserializer)?;
        Ok(Avma(start)..Avma(end))
    }
}
