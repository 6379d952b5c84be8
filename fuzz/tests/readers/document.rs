//! Session documents.

use ipath_fuzz::{Target, mutate, run};
use ipath_session::segment::Document;

use crate::segment::{Scratch, collect};

const TARGET: Target = Target {
    name: "document",
    corpus: "document",
    change: mutate::json,
    cases: 1000,
};

#[test]
fn document_of_any_bytes_is_read_or_rejected() {
    let scratch = Scratch::new("document");
    let segment = scratch.segment();
    run(&TARGET, |input| {
        let document = serde_json::from_slice::<Document>(input);
        document.map(|d| collect(&segment, &d)).is_ok()
    });
}
