//! Profiles, and the reports and exports made from them.

use std::io::sink;
use std::path::Path;

use ipath_fuzz::{Target, mutate, run};
use ipath_profile::export::{
    Callers, Code, to_annotate, to_callgrind, to_folded, to_html, to_json, to_lcov, to_pprof,
};
use ipath_profile::report::{self, Options, Screen};
use ipath_profile::{Delta, Profile};

/// All that an export can show of callers.
const CALLERS: Callers = Callers {
    sites: true,
    loops: true,
};

const TARGET: Target = Target {
    name: "profile",
    corpus: "profile",
    change: mutate::json,
    cases: 1000,
};

#[test]
fn profile_of_any_bytes_is_read_or_rejected() {
    run(&TARGET, |input| {
        let Ok(profile) = Profile::parse(Path::new("FILE"), input) else {
            return false;
        };
        // The result does not matter: it only shows whether the sums agree.
        let _ = profile.check();
        let options = Options {
            histogram: true,
            ..Options::default()
        };
        report::text(&profile, &options, &mut sink()).expect("a report");
        for width in [None, Some(80)] {
            report::summary(&profile, Some(&profile), width, &mut sink()).expect("a summary");
        }
        let screen = Screen {
            width: 80,
            height: 24,
        };
        report::answer(&profile, screen, None, &mut sink()).expect("an answer");
        to_json(&profile, &mut sink()).expect("written");
        // Profiles without counts inside functions are rejected.
        let _ = to_annotate(&profile, None, &mut sink());
        let _ = to_lcov(&profile, &mut sink());
        // Negative and large sums are rejected.
        let code = Code::default();
        let _ = to_callgrind(&profile, None, CALLERS, Some(&code), &mut sink());
        let _ = to_pprof(&profile, None, CALLERS, Some(&code), &mut sink());
        to_html(&profile, None, CALLERS, true, Some(&code), &mut sink()).expect("written");
        for metric in &profile.metrics {
            // Negative sums are rejected.
            let _ = to_folded(&profile, &metric.name, CALLERS, &mut sink());
        }
        let delta = Delta::between(&profile, &profile);
        assert!(profile.functions.is_empty() || delta.function(0).is_none_or(|f| f < usize::MAX));
        true
    });
}
