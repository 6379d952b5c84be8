//! The name and labels that identify the profiles of one process at a server.

use std::collections::BTreeMap;

use ipath_base::files::file_name;
use ipath_profile::Profile;

/// A name and labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The name of the program.
    pub name: String,
    /// Labels with names that servers accept.
    pub labels: BTreeMap<String, String>,
}

impl Series {
    /// The series of a profile, from its machine, process, program and labels. Labels in `given`
    /// take precedence, and an empty value removes a label.
    pub fn of(profile: &Profile, name: Option<&str>, given: &BTreeMap<String, String>) -> Self {
        let target = &profile.target;
        let program = Some(file_name(&target.exe)).filter(|program| !program.is_empty());
        let mut labels = BTreeMap::from([
            ("host".to_owned(), target.host.clone()),
            ("exe".to_owned(), target.exe.clone()),
        ]);
        // The sum of several processes has no process id.
        if profile.processes.is_empty() {
            labels.insert("pid".to_owned(), target.pid.to_string());
        }
        for (name, value) in &target.labels {
            labels.insert(label_name(name), value.clone());
        }
        labels.extend(given.clone());
        labels.retain(|_, value| !value.is_empty());
        Self {
            name: name.or(program).unwrap_or("ipath").to_owned(),
            labels,
        }
    }
}

/// Converts a label's name to `[a-zA-Z_][a-zA-Z0-9_]*`. Leading underscores are removed, since two
/// of them mark reserved names. A name that is empty or begins with a digit gets one underscore.
pub fn label_name(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(letter).collect();
    let name = name.trim_start_matches('_');
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        format!("_{name}")
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_profile::sample::sample;

    #[test]
    fn labels_are_those_of_the_process_and_what_is_given() {
        let mut profile = sample();
        profile.target.exe = "/usr/bin/app".to_owned();
        profile.target.pid = 42;
        profile.target.host = "n1".to_owned();
        profile.target.labels = BTreeMap::from([("rank".to_owned(), "3".to_owned())]);
        let given = [("host", ""), ("team-name", "a"), ("rank", "4")];
        let given = given.map(|(name, value)| (label_name(name), value.to_owned()));
        let series = Series::of(&profile, None, &given.into());
        let labels = [
            ("exe", "/usr/bin/app"),
            ("pid", "42"),
            ("rank", "4"),
            ("team_name", "a"),
        ];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            (series.name.as_str(), series.labels),
            ("app", labels.into())
        );
        let names = ["__name__", "0rank", "é", ""].map(label_name);
        assert_eq!(names, ["name__", "_0rank", "_", "_"]);
    }
}
