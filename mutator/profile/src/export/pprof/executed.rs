//! The executions of source lines as samples.
//!
//! They are a sample type of their own in the same profile, because readers choose one sample type
//! at a time: the sums of the others stay as they are. The counts are those of all calls, so a
//! sample has no callers.

use super::proto;
use super::tables::{Functions, Strings, base};
use crate::export::ExportError;
use crate::export::code::{Code, Listed};
use crate::profile::{Profile, printable};

/// The name of the sample type.
const TYPE: &str = "executed";
/// The unit of the sample type.
const UNIT: &str = "count";

/// Adds the sample type, and a sample for each source line and for each block without one.
///
/// # Errors
/// A count needs more than 63 bits.
pub(super) fn add(
    profile: &Profile,
    code: &Code,
    made: &mut proto::Profile,
    functions: &mut Functions,
    strings: &mut Strings,
) -> Result<(), ExportError> {
    let others = made.sample_type.len();
    for sample in &mut made.sample {
        sample.value.push(0);
    }
    let r#type = strings.of(TYPE);
    made.sample_type.push(proto::ValueType {
        r#type,
        unit: strings.of(UNIT),
    });
    if profile.paths.is_empty() {
        made.default_sample_type = r#type;
    }
    for (index, inside) in profile.graphs() {
        let listed = Listed::of(index, inside, Some(code));
        let function = &profile.functions[inside.function];
        let name = strings.of(&printable(&function.name));
        let linkage = strings.of(&printable(&function.linkage));
        let own = printable(function.file.as_deref().unwrap_or(""));
        let lines = listed.lines().into_iter();
        let lines = lines.map(|((file, line), of)| (printable(file), line, of.count, of.address));
        let without = listed.without_lines();
        let without = without.map(|block| (own.clone(), 0, block.count, block.address));
        for (file, line, count, address) in lines.chain(without) {
            let filename = strings.of(&file);
            let function_id = functions.id(made, name, linkage, filename);
            let id = made.location.len() as u64 + 1;
            made.location.push(proto::Location {
                id,
                mapping_id: function.module as u64 + 1,
                address: address.wrapping_add(base(profile, Some(function.module))),
                line: vec![proto::Line {
                    function_id,
                    line: line.into(),
                }],
                is_folded: false,
            });
            let large = |_| ExportError::TooLarge(TYPE.to_owned());
            let mut value = vec![0; others];
            value.push(i64::try_from(count).map_err(large)?);
            made.sample.push(proto::Sample {
                location_id: vec![id],
                value,
                label: Vec::new(),
            });
        }
    }
    Ok(())
}
