//! OpenTelemetry profiles by OTLP/HTTP (opentelemetry.io, "OTLP Specification", and
//! opentelemetry-proto).
//!
//! The definition is in development and changes. So a profile is sent this way only if the user
//! requests it (`--as otlp`), never by guessing.
//!
//! The content is that of pprof, with tables for repeated items, and one profile per kind of value.

mod proto;

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use prost::Message;

use super::{Answer, Outcome, Series};
use ipath_profile::export::pprof_format as pprof;
use ipath_profile::export::pprof_format::Profile as Pprof;
use ipath_target::random;
use proto::{
    AnyValue, ArrayValue, Dictionary, Function, KeyValue, KeyValueAndUnit, Line, Link, Location,
    Mapping, PartialSuccess, Profile, Request, Resource, ResourceProfiles, Response, Sample, Scope,
    ScopeProfiles, Stack, Value, ValueType,
};

/// The path of the address.
pub(super) const PATH: &str = "/v1development/profiles";

/// The build id attribute, as named by OpenTelemetry's semantic conventions.
const BUILD_ID: &str = "process.executable.build_id.gnu";
/// The attribute for comments of a pprof profile, by the same conventions.
const COMMENT: &str = "pprof.profile.comment";

/// The media type and the body, compressed with gzip.
pub(super) fn request(
    series: &Series,
    profile: &Pprof,
) -> std::io::Result<(&'static str, Vec<u8>)> {
    let mut tables = Tables::of(profile);
    let profiles = profiles(profile, &mut tables);
    let request = Request {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(Resource {
                attributes: attributes(series),
            }),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(Scope {
                    name: "ipath".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                }),
                profiles,
            }],
        }],
        dictionary: Some(tables.dictionary),
    };
    let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
    zipped.write_all(&request.encode_to_vec())?;
    Ok(("application/x-protobuf", zipped.finish()?))
}

/// The outcome of an answer with a successful HTTP status.
pub(super) fn outcome(answer: &Answer) -> Outcome {
    match Response::decode(&answer.body[..]).map(|response| response.partial_success) {
        // A retry would be rejected again.
        Ok(Some(PartialSuccess {
            rejected_profiles,
            error_message,
        })) if rejected_profiles > 0 => Outcome::Refused(format!(
            "{rejected_profiles} profiles are rejected: {error_message}"
        )),
        Ok(_) => Outcome::Accepted,
        // A proxy's page or another protocol: nothing confirms that the profile arrived.
        Err(_) => Outcome::Refused(
            "the server does not speak OTLP: its answer is not an ExportProfilesServiceResponse"
                .to_owned(),
        ),
    }
}

/// The attributes of a series, as named by the semantic conventions.
fn attributes(series: &Series) -> Vec<KeyValue> {
    let text = |key: &str, value: &str| KeyValue {
        key: key.to_owned(),
        value: Some(Value::Text(value.to_owned()).into()),
    };
    let mut attributes = vec![text("service.name", &series.name)];
    for (name, value) in &series.labels {
        attributes.push(match (name.as_str(), value.parse()) {
            ("host", _) => text("host.name", value),
            ("exe", _) => text("process.executable.path", value),
            ("pid", Ok(pid)) => KeyValue {
                key: "process.pid".to_owned(),
                value: Some(Value::Number(pid).into()),
            },
            _ => text(name, value),
        });
    }
    attributes
}

/// Distinct values with their table indices.
struct Each<T>(HashMap<T, i32>);

impl<T: Eq + Hash + Clone> Each<T> {
    /// The index of a value. A new value is added to the table as `made(value)`.
    fn place<V>(&mut self, table: &mut Vec<V>, value: T, made: impl FnOnce(T) -> V) -> i32 {
        let next = table.len() as i32;
        let place = *self.0.entry(value.clone()).or_insert(next);
        if place == next {
            table.push(made(value));
        }
        place
    }
}

/// An attribute: the index of its key, the index of its text or its number, and the index of its
/// unit.
type Attribute = (i32, Option<i64>, i64, i32);

struct Tables<'p> {
    profile: &'p Pprof,
    dictionary: Dictionary,
    strings: Each<String>,
    attributes: Each<Attribute>,
    stacks: Each<Vec<i32>>,
}

impl<'p> Tables<'p> {
    fn of(profile: &'p Pprof) -> Self {
        let strings = &profile.string_table;
        let places = (0..)
            .zip(strings)
            .map(|(place, text)| (text.clone(), place));
        let mut tables = Self {
            profile,
            strings: Each(places.collect()),
            attributes: Each(HashMap::new()),
            stacks: Each(HashMap::new()),
            dictionary: Dictionary {
                mapping_table: vec![Mapping::default()],
                location_table: vec![Location::default()],
                function_table: vec![Function::default()],
                link_table: vec![Link {}],
                string_table: strings.clone(),
                attribute_table: vec![KeyValueAndUnit::default()],
                stack_table: vec![Stack::default()],
            },
        };
        tables.code();
        tables
    }

    fn string(&mut self, text: &str) -> i32 {
        let table = &mut self.dictionary.string_table;
        self.strings.place(table, text.to_owned(), |text| text)
    }

    /// Fills the tables of files, functions and locations. A pprof id, which starts at 1, is the
    /// table index.
    fn code(&mut self) {
        let build_id = self.string(BUILD_ID);
        for mapping in &self.profile.mapping {
            let id = match mapping.build_id {
                0 => Vec::new(),
                id => vec![self.attribute((build_id, Some(id), 0, 0))],
            };
            self.dictionary.mapping_table.push(Mapping {
                memory_start: mapping.memory_start,
                memory_limit: mapping.memory_limit,
                file_offset: mapping.file_offset,
                filename_strindex: mapping.filename as i32,
                attribute_indices: id,
            });
        }
        let functions = self.profile.function.iter().map(|function| Function {
            name_strindex: function.name as i32,
            system_name_strindex: function.system_name as i32,
            filename_strindex: function.filename as i32,
            start_line: function.start_line,
        });
        self.dictionary.function_table.extend(functions);
        let line = |line: &pprof::Line| Line {
            function_index: line.function_id as i32,
            line: line.line,
        };
        let locations = self.profile.location.iter().map(|location| Location {
            mapping_index: location.mapping_id as i32,
            address: location.address,
            lines: location.line.iter().map(line).collect(),
        });
        self.dictionary.location_table.extend(locations);
    }

    fn attribute(&mut self, attribute: Attribute) -> i32 {
        let texts = &self.profile.string_table;
        let made = |(key_strindex, text, number, unit_strindex): Attribute| {
            let text = text.map(|text| texts.get(text as usize).cloned().unwrap_or_default());
            KeyValueAndUnit {
                key_strindex,
                value: Some(text.map_or(Value::Number(number), Value::Text).into()),
                unit_strindex,
            }
        };
        let table = &mut self.dictionary.attribute_table;
        self.attributes.place(table, attribute, made)
    }

    fn stack(&mut self, sample: &pprof::Sample) -> i32 {
        let locations = sample.location_id.iter().map(|&id| id as i32).collect();
        let made = |location_indices| Stack { location_indices };
        let table = &mut self.dictionary.stack_table;
        self.stacks.place(table, locations, made)
    }

    /// The indices of a sample's labels.
    fn labels(&mut self, sample: &pprof::Sample) -> Vec<i32> {
        let attribute = |label: &pprof::Label| {
            let text = (label.str != 0).then_some(label.str);
            (label.key as i32, text, label.num, label.num_unit as i32)
        };
        let labels = sample.label.iter();
        labels
            .map(|label| self.attribute(attribute(label)))
            .collect()
    }

    /// The index of the profile's comments. `None` without comments.
    fn comments(&mut self) -> Option<i32> {
        let texts = &self.profile.string_table;
        let comments = self.profile.comment.iter();
        let texts = comments.filter_map(|&text| texts.get(text as usize));
        let values: Vec<AnyValue> = texts.map(|t| Value::Text(t.clone()).into()).collect();
        if values.is_empty() {
            return None;
        }
        let key_strindex = self.string(COMMENT);
        let table = &mut self.dictionary.attribute_table;
        table.push(KeyValueAndUnit {
            key_strindex,
            value: Some(Value::List(ArrayValue { values }).into()),
            unit_strindex: 0,
        });
        Some(table.len() as i32 - 1)
    }
}

/// Builds a profile per kind of value.
fn profiles(profile: &Pprof, tables: &mut Tables<'_>) -> Vec<Profile> {
    let kind = |kind: &pprof::ValueType| ValueType {
        type_strindex: kind.r#type as i32,
        unit_strindex: kind.unit as i32,
    };
    let comments = tables.comments();
    let samples = profile.sample.iter();
    let places = samples.map(|sample| (tables.stack(sample), tables.labels(sample)));
    // Stacks and labels are the same for all kinds.
    let places: Vec<(i32, Vec<i32>)> = places.collect();
    let of_kind = |(index, sample_type): (usize, &pprof::ValueType)| Profile {
        sample_type: Some(kind(sample_type)),
        samples: profile
            .sample
            .iter()
            .zip(&places)
            .map(|(sample, (stack, labels))| Sample {
                stack_index: *stack,
                attribute_indices: labels.clone(),
                values: sample.value.get(index).copied().into_iter().collect(),
            })
            .collect(),
        time_unix_nano: profile.time_nanos as u64,
        duration_nano: profile.duration_nanos as u64,
        period_type: profile.period_type.as_ref().map(kind),
        period: profile.period,
        profile_id: random::bytes::<16>().to_vec(),
        attribute_indices: comments.into_iter().collect(),
    };
    let kinds = profile.sample_type.iter().enumerate();
    kinds.map(of_kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_profile::export::to_pprof_message;
    use ipath_profile::sample::sample;
    use std::io::Read;

    #[test]
    fn all_that_pprof_has_is_sent() {
        let of = to_pprof_message(&sample(), None).unwrap();
        let series = Series::of(&sample(), None, &Default::default());
        let (kind, body) = request(&series, &of).unwrap();
        assert_eq!(kind, "application/x-protobuf");
        let mut bytes = Vec::new();
        let mut unzipped = flate2::read::GzDecoder::new(&body[..]);
        unzipped.read_to_end(&mut bytes).unwrap();
        let sent = Request::decode(&bytes[..]).unwrap();
        let dictionary = sent.dictionary.unwrap();
        let profiles = &sent.resource_profiles[0].scope_profiles[0].profiles;
        assert_eq!(profiles.len(), of.sample_type.len());
        let text = |place: i32| dictionary.string_table[place as usize].as_str();
        for (index, profile) in profiles.iter().enumerate() {
            let sum: i64 = profile.samples.iter().map(|s| s.values[0]).sum();
            let expected: i64 = of.sample.iter().map(|s| s.value[index]).sum();
            assert_eq!(sum, expected);
            for (sample, was) in profile.samples.iter().zip(&of.sample) {
                let stack = &dictionary.stack_table[sample.stack_index as usize];
                let ids = stack.location_indices.iter().map(|&id| id as u64);
                assert!(ids.eq(was.location_id.iter().copied()));
                assert_eq!(sample.attribute_indices.len(), was.label.len());
            }
            assert_eq!(profile.profile_id.len(), 16);
        }
        assert_eq!(
            text(profiles[0].sample_type.unwrap().type_strindex),
            "count"
        );
        let location = &dictionary.location_table[1];
        let function = &dictionary.function_table[location.lines[0].function_index as usize];
        assert!(!text(function.name_strindex).is_empty());
        assert_eq!(dictionary.mapping_table.len(), of.mapping.len() + 1);
        let keys: Vec<&str> = sent.resource_profiles[0]
            .resource
            .iter()
            .flat_map(|resource| &resource.attributes)
            .map(|attribute| attribute.key.as_str())
            .collect();
        assert!(
            keys.contains(&"service.name") && keys.contains(&"process.pid"),
            "{keys:?}"
        );
    }

    #[test]
    fn what_is_rejected_is_refused() {
        let answer = |rejected_profiles: i64| Answer {
            status: 200,
            body: Response {
                partial_success: Some(PartialSuccess {
                    rejected_profiles,
                    error_message: "too old".to_owned(),
                }),
            }
            .encode_to_vec(),
            ..Answer::default()
        };
        assert_eq!(outcome(&answer(0)), Outcome::Accepted);
        let refused = Outcome::Refused("2 profiles are rejected: too old".to_owned());
        assert_eq!(outcome(&answer(2)), refused);
        assert_eq!(outcome(&Answer::default()), Outcome::Accepted);
    }

    #[test]
    fn an_answer_of_another_kind_is_refused() {
        let rejects = [0x0a, 0x06, 0x08, 0x01, 0x12, 0x02, b'n', b'o'];
        let cut = |len: usize| rejects[..len].to_vec();
        let others = [
            b"<html>ok</html>".to_vec(),
            b"{}".to_vec(),
            vec![0xff],
            cut(5),
            cut(7),
        ];
        for body in others {
            let answer = Answer {
                status: 200,
                body: body.clone(),
                ..Answer::default()
            };
            let outcome = outcome(&answer);
            let is_refused =
                matches!(&outcome, Outcome::Refused(why) if why.contains("does not speak OTLP"));
            assert!(is_refused, "{body:?}: {outcome:?}");
        }
    }
}
