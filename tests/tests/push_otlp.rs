//! `ipath push --as otlp`: OpenTelemetry's own definition of profiles can read the requests, and
//! finds the program's own numbers.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use ipath_tests::receiver::Receiver;
use ipath_tests::tools::python;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Prints the contents of a request: attributes of the resource, and for each kind of value the
/// sums by the two innermost functions. Checks that tables begin with an empty entry, that
/// references are inside them, and that the definition knows all fields.
const READER: &str = "
import gzip, json, sys
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
from google.protobuf import unknown_fields
def known(message):
    assert not len(unknown_fields.UnknownFieldSet(message)), message
    for field, value in message.ListFields():
        if field.message_type:
            for one in value if field.is_repeated else [value]:
                known(one)
request = ExportProfilesServiceRequest.FromString(gzip.decompress(open(sys.argv[1], 'rb').read()))
known(request)
d = request.dictionary
for table in ('mapping', 'location', 'function', 'link', 'attribute', 'stack'):
    first = getattr(d, table + '_table')[0]
    assert first == type(first)(), table
assert d.string_table[0] == ''
text = lambda place: d.string_table[place]
def name(place):
    location = d.location_table[place]
    assert 0 <= location.mapping_index < len(d.mapping_table)
    return text(d.function_table[location.lines[-1].function_index].name_strindex)
[resource] = request.resource_profiles
value = lambda v: getattr(v, v.WhichOneof('value'))
found = {'resource': {a.key: value(a.value) for a in resource.resource.attributes}, 'sums': {}, 'build_ids': []}
for mapping in d.mapping_table[1:]:
    for place in mapping.attribute_indices:
        attribute = d.attribute_table[place]
        assert text(attribute.key_strindex) == 'process.executable.build_id.gnu'
        found['build_ids'].append(attribute.value.string_value)
[scope] = resource.scope_profiles
assert scope.scope.name == 'ipath'
ids = set()
for profile in scope.profiles:
    ids.add(bytes(profile.profile_id))
    kind = text(profile.sample_type.type_strindex) + ' ' + text(profile.sample_type.unit_strindex)
    sums = found['sums'].setdefault(kind, {})
    for sample in profile.samples:
        [n] = sample.values
        stack = [name(place) for place in d.stack_table[sample.stack_index].location_indices]
        for place in sample.attribute_indices:
            assert text(d.attribute_table[place].key_strindex)
        key = ' '.join(stack[:2])
        sums[key] = sums.get(key, 0) + n
    found['from'], found['ns'] = profile.time_unix_nano, profile.duration_nano
assert len(ids) == len(scope.profiles) and all(len(i) == 16 for i in ids)
print(json.dumps(found))
";

/// Writes a profile to a file in the folder, and returns its path.
fn profile(scratch: &Scratch) -> PathBuf {
    let file = scratch.file("p.json");
    Run::ipath(["run", "--no-tui", "-f", "leaf", "-o"])
        .arg(&file)
        .arg("--")
        .arg(program("many_paths.c"))
        .args(["3", "2", "0"])
        .run()
        .expect(0);
    file
}

fn push(file: &Path, receiver: &Receiver) -> Run {
    let push = Run::ipath(["push"]).arg(file);
    push.args(["--to", &receiver.address(), "--as", "otlp"])
        .args(["--label", "team=a"])
}

#[test]
fn it_is_as_its_own_definition_says() {
    let receiver = Receiver::start(&["503 0 later"]);
    let scratch = Scratch::new("otlp");
    let file = profile(&scratch);
    push(&file, &receiver).run().expect(0);
    let requests = receiver.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    let accepted = &requests[1];
    assert_eq!(accepted["path"], "/v1development/profiles");
    assert_eq!(
        accepted["headers"]["content-type"],
        "application/x-protobuf"
    );
    let script = scratch.file("read.py");
    fs::write(&script, READER).expect("a file of its own");
    let read = Run::new(python()).arg(&script).arg(receiver.body(accepted));
    let sent = read.run().expect(0).json();
    assert_eq!(sent["resource"]["service.name"], "many_paths_c");
    assert_eq!(sent["resource"]["team"], "a");
    let own = Profile::read(&file);
    assert_eq!(sent["resource"]["process.pid"], own.target.pid);
    let sum = |kind: &str| {
        let sums = sent["sums"][kind].as_object().expect("sums");
        sums.values().filter_map(Value::as_i64).sum::<i64>()
    };
    assert_eq!(sum("count calls"), own.calls("leaf") as i64);
    let function = own.function("leaf").expect("leaf");
    let wall = function.totals["wall"]["exclusive"].as_i64();
    assert_eq!(Some(sum("wall nanoseconds")), wall);
    let text: Value = serde_json::from_slice(&fs::read(&file).expect("a profile")).expect("JSON");
    let modules = text["modules"].as_array().expect("modules");
    let ids = modules
        .iter()
        .filter_map(|module| module["build_id"].as_str());
    let sent_ids = sent["build_ids"].as_array().expect("build ids").iter();
    assert!(ids.eq(sent_ids.filter_map(Value::as_str)));
    assert_eq!(sent["from"], text["session"]["started_unix_ns"]);
    assert_eq!(sent["ns"], text["session"]["elapsed_ns"]);
    let by_caller = sent["sums"]["count calls"].as_object().expect("sums");
    let mut expected = std::collections::BTreeMap::<String, u64>::new();
    for path in &own.paths {
        let caller = &own.frames[path.stack[0]];
        let caller = caller.function.clone().expect("a name");
        *expected.entry(format!("leaf {caller}")).or_default() += count(&path.metrics);
    }
    let found = by_caller
        .iter()
        .map(|(name, n)| (name.clone(), n.as_u64().expect("a sum")));
    assert_eq!(
        found.collect::<std::collections::BTreeMap<_, _>>(),
        expected
    );
}

/// The format must be selected explicitly, and a partial rejection is an error.
#[test]
fn what_is_rejected_is_said() {
    let scratch = Scratch::new("otlp");
    let file = profile(&scratch);
    // ExportProfilesServiceResponse with one rejected profile: "no".
    let receiver = Receiver::start(&["200 - \\x0a\\x06\\x08\\x01\\x12\\x02no"]);
    let error = push(&file, &receiver).run().expect(1).expect_error();
    assert!(error.contains("1 profiles are rejected: no"), "{error}");
    // Answers with the same status that are not from a profile server: a proxy's page, and the
    // truncated start of an answer.
    for answer in [
        "200 - <html>welcome</html>",
        "200 - \\x0a\\x06\\x08\\x01\\x12",
    ] {
        let receiver = Receiver::start(&[answer]);
        let error = push(&file, &receiver).run().expect(1).expect_error();
        assert!(error.contains("does not speak OTLP"), "{error}");
    }
    let address = format!("{}/v1development/profiles", receiver.address());
    Run::ipath(["push"])
        .arg(&file)
        .args(["--to", &address])
        .run()
        .expect(0);
    let requests = receiver.requests();
    let last = requests.last().expect("a request");
    assert_eq!(last["path"], "/v1development/profiles/ingest");
}
