//! Session documents.

use ipath::segment::Document;
use ipath_fuzz::{Target, mutate, run};

use crate::segment::Measured;

const TARGET: Target = Target {
    name: "document",
    corpus: "document",
    change: mutate::json,
    cases: 1000,
};

#[test]
fn document() {
    let measured = Measured::new();
    run(&TARGET, |input| {
        let document = serde_json::from_slice::<Document>(input);
        document.map(|d| measured.collect(&d)).is_ok()
    });
}
