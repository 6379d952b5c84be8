//! Instrumenting functions of libraries by the hundred, chosen at random, in programs whose output
//! is known.

use crate::command::{Finished, Run};
use crate::place::Scratch;
use crate::profile::{Function, Profile, count};
use crate::program::{Program, ipath_arguments};
use crate::symbols::Site;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Numbers that look random and are the same again for the same seed (splitmix64).
pub struct Random(u64);

impl Random {
    /// Seeded by `IPATH_TEST_SEED`, else by the clock; prints the seed either way.
    ///
    /// # Panics
    /// When the variable is set to no number.
    pub fn seeded() -> Self {
        let seed = match std::env::var("IPATH_TEST_SEED") {
            Ok(text) => text
                .parse()
                .unwrap_or_else(|e| panic!("IPATH_TEST_SEED={text}: {e}")),
            Err(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_nanos() as u64),
        };
        println!("IPATH_TEST_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `many` of `all`, or all of them, in random order.
    pub fn choose<T: Clone>(&mut self, all: &[T], many: usize) -> Vec<T> {
        let mut left = all.to_vec();
        let mut chosen = Vec::new();
        while chosen.len() < many && !left.is_empty() {
            let at = self.next() as usize % left.len();
            chosen.push(left.swap_remove(at));
        }
        chosen
    }
}

/// A function that `ipath list` says can be instrumented with every exit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The file name of its module.
    pub module: String,
    /// The virtual address in the file.
    pub address: u64,
}

impl Target {
    /// A function of a profile.
    pub fn of(profile: &Profile, function: &Function) -> Self {
        let path = Path::new(&profile.modules[function.module].path);
        let module = path.file_name().unwrap_or_default().to_string_lossy();
        Self {
            module: module.into_owned(),
            address: function.address,
        }
    }

    /// Where gdb finds it.
    pub fn site(&self) -> Site {
        Site {
            module: self.module.clone(),
            address: self.address,
        }
    }

    /// The pattern that names it alone.
    pub fn pattern(&self) -> String {
        format!("{}+{:#x}", self.module, self.address)
    }
}

/// Every function of a file that can be instrumented.
///
/// # Panics
/// When the file cannot be listed, or has no such function.
pub fn patchable(file: &Path) -> Vec<Target> {
    patchable_of(file, &[])
}

/// The same of those with one of these names.
pub fn patchable_of(file: &Path, names: &[&str]) -> Vec<Target> {
    let file = file
        .canonicalize()
        .unwrap_or_else(|e| panic!("find {}: {e}", file.display()));
    let module = file
        .file_name()
        .expect("a file has a name")
        .to_string_lossy();
    let list = Run::ipath(["list".as_ref(), file.as_os_str(), "--json".as_ref()]);
    let list = list.args(names).run().expect(0).json();
    let functions = list["functions"].as_array().expect("a list of functions");
    let found: Vec<Target> = functions
        .iter()
        .filter(|f| f["refused"].is_null())
        .map(|f| Target {
            module: module.clone().into_owned(),
            address: f["address"].as_u64().expect("an address"),
        })
        .collect();
    assert!(!found.is_empty(), "{}", file.display());
    found
}

/// The libraries a program is linked with, links resolved.
pub fn ldd(program: &Path) -> Vec<PathBuf> {
    let linked = Run::new("ldd").arg(program).run().expect(0).stdout;
    let files = linked.split_whitespace().filter(|w| w.starts_with('/'));
    let real = |file| fs::canonicalize(file).unwrap_or_else(|e| panic!("find {file}: {e}"));
    files.map(real).collect()
}

/// Those of them whose file names begin with one of `names`.
///
/// # Panics
/// When there is none for one of the names.
pub fn libraries(program: &Path, names: &[&str]) -> Vec<PathBuf> {
    let linked = ldd(program);
    let of = |name: &&str| {
        let is_it = |file: &&PathBuf| {
            let found = file.file_name().unwrap_or_default().to_string_lossy();
            found.starts_with(*name)
        };
        let found = linked.iter().find(is_it);
        found.unwrap_or_else(|| panic!("{} without {name}: {linked:?}", program.display()))
    };
    names.iter().map(of).cloned().collect()
}

/// A program whose output is the same each time, in a folder that is empty each time.
pub struct Driver {
    /// Its name, for messages.
    pub name: String,
    program: Program,
    folder: PathBuf,
    scratch: Scratch,
    files: BTreeMap<String, Vec<u8>>,
    read: fn(&str) -> String,
    plain: Finished,
}

impl Driver {
    /// `program`, in whose arguments `{folder}` stands for the path of its folder.
    pub fn new(name: &str, program: Program) -> Self {
        Self::with(name, program, &[], str::to_owned)
    }

    /// The same, with files put into its folder first, and with `read` applied to its output, which
    /// takes out what differs from run to run.
    ///
    /// # Panics
    /// When its output is not the same twice.
    pub fn with(
        name: &str,
        mut program: Program,
        files: &[(&str, &[u8])],
        read: fn(&str) -> String,
    ) -> Self {
        let scratch = Scratch::public(name);
        let folder = scratch.file("folder");
        for argument in &mut program.args {
            *argument = argument.replace("{folder}", &folder.display().to_string());
        }
        let files = files
            .iter()
            .map(|(name, content)| ((*name).to_owned(), content.to_vec()));
        let mut driver = Self {
            name: name.to_owned(),
            plain: Run::new("true").run(),
            files: files.collect(),
            program,
            folder,
            scratch,
            read,
        };
        driver.plain = driver.run_plainly();
        let again = driver.run_plainly();
        driver.compare(&again, "a second time");
        driver
    }

    /// The executable.
    pub fn path(&self) -> &Path {
        &self.program.path
    }

    /// How it is run.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What it does by itself.
    pub fn plain(&self) -> &Finished {
        &self.plain
    }

    /// A file of its folder, as the last run has left it.
    pub fn file(&self, name: &str) -> Vec<u8> {
        let path = self.folder.join(name);
        fs::read(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()))
    }

    /// Empties its folder.
    pub fn refresh(&self) {
        let _ = fs::remove_dir_all(&self.folder);
        fs::create_dir(&self.folder).expect("create in an own folder");
        for (name, content) in &self.files {
            fs::write(self.folder.join(name), content).expect("write in an own folder");
        }
    }

    fn run_plainly(&self) -> Finished {
        self.refresh();
        self.program
            .environment(Run::new(&self.program.path).args(&self.program.args))
            .run()
    }

    /// Runs it with functions instrumented, entries and exits, and checks that its output and
    /// status are what they are without.
    ///
    /// # Panics
    /// With the first difference.
    pub fn run(&self, targets: &[Target], options: &[&str]) -> Profile {
        self.refresh();
        let file = self.scratch.file("p.json");
        let _ = fs::remove_file(&file);
        let patterns: Vec<String> = targets.iter().map(Target::pattern).collect();
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let mut arguments = ipath_arguments(&patterns, "count,wall", &file);
        let options = options.iter().map(|o| (*o).to_owned());
        arguments.splice(1..1, options.chain(["--yes".to_owned()]));
        let run = Run::ipath(arguments)
            .arg(&self.program.path)
            .args(&self.program.args);
        let mut ours = self
            .program
            .environment(run)
            .limit(Duration::from_secs(120))
            .run();
        let what = match targets {
            [one] => one.pattern(),
            many => format!("{} functions", many.len()),
        };
        // The command line is as long as the list of functions.
        ours.shown = format!("{} with {what}", self.name);
        // Functions whose windows overlap cannot be instrumented together, and whether the process
        // has room for a punned jump shows only there.
        let is_refusal = |line: &&str| {
            let reasons = ["overlaps-function", "pun-out-of-reach"];
            let said = |reason| line.ends_with(&format!(": not instrumented: {reason}"));
            line.starts_with("ipath: ") && reasons.into_iter().any(said)
        };
        let own: Vec<&str> = ours.stderr.lines().filter(|l| !is_refusal(l)).collect();
        let own = own.join("\n");
        ours.stderr = if ours.stderr.ends_with('\n') && !own.is_empty() {
            own + "\n"
        } else {
            own
        };
        // After the program's output comes the summary.
        if (self.read)(&ours.stdout).starts_with(&(self.read)(&self.plain.stdout)) {
            ours.stdout.clone_from(&self.plain.stdout);
        }
        ours.stderr = without_remarks(&ours.stderr);
        self.compare(&ours, &what);
        let profile = Profile::read(&file);
        let losses = &profile.losses;
        // A timer of its own may interrupt the runtime: what its handler calls, and is left by a jump out of that, is missed.
        let most = match self.name.as_str() {
            "drive_system" => 64,
            _ => 0,
        };
        assert!(losses.missed <= most, "{}: {losses:?}", ours.shown);
        let known = profile.functions.len() + profile.refused.len();
        assert_eq!(known, targets.len(), "{}", ours.shown);
        let refused = profile.refused.len();
        assert!(
            refused * 50 <= targets.len().max(50),
            "{refused} refused: {}",
            ours.shown
        );
        profile
    }

    fn compare(&self, ours: &Finished, what: &str) {
        let streams = [
            ("output", &self.plain.stdout, &ours.stdout),
            ("standard error", &self.plain.stderr, &ours.stderr),
        ];
        for (stream, plain, ours) in streams {
            let (plain, ours) = ((self.read)(plain), (self.read)(ours));
            let mut lines = plain.lines().zip(ours.lines());
            let differing = lines.find(|(plain, ours)| plain != ours);
            assert!(
                plain == ours,
                "{} with {what}: its {stream}, {} bytes, has now {}, and where first {differing:?}",
                self.name,
                plain.len(),
                ours.len(),
            );
        }
        assert_eq!(
            ours.code(),
            self.plain.code(),
            "status of {} with {what}",
            self.name
        );
    }
}

/// Calls of each function of a profile.
pub fn calls(profile: &Profile) -> BTreeMap<Target, u64> {
    let of = |function: &Function| (Target::of(profile, function), count(&function.totals));
    profile.functions.iter().map(of).collect()
}

/// The program's own output, without ipath's remarks on clones, inlined copies and aliases.
fn without_remarks(stderr: &str) -> String {
    const REMARKS: [&str; 3] = [
        "not every call is counted",
        ": also called as ",
        "functions whose code has other names",
    ];
    let is_remark = |line: &&str| {
        line.starts_with("ipath: ") && REMARKS.iter().any(|remark| line.contains(remark))
    };
    let lines = stderr.split_inclusive('\n');
    lines.filter(|line| !is_remark(line)).collect()
}
