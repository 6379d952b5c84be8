//! Instruments hundreds of randomly chosen library functions in programs whose output is known.

use crate::command::{Finished, Run};
use crate::place::Scratch;
use crate::profile::{Function, Profile, count};
use crate::program::{Program, ipath_arguments};
use crate::symbols::Site;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pseudo-random numbers, reproducible from a seed (splitmix64).
pub struct Random(u64);

impl Random {
    /// Seeded by `IPATH_TEST_SEED`, else by the clock; prints the seed either way.
    ///
    /// # Panics
    /// If the variable is not a number.
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

    /// With a fixed seed.
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `many` different elements of `all` in random order, or all of them if there are fewer.
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
    /// The virtual address of the function in the module's file.
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

    /// Its address, as gdb takes it.
    pub fn site(&self) -> Site {
        Site {
            module: self.module.clone(),
            address: self.address,
        }
    }

    /// A pattern that matches this function only.
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

/// Like [`patchable`], restricted to functions that match one of these patterns.
///
/// # Panics
/// When the file cannot be listed, or has no such function.
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

/// The paths of the libraries that a program is linked with, symbolic links resolved.
///
/// # Panics
/// If ldd fails.
pub fn ldd(program: &Path) -> Vec<PathBuf> {
    let linked = Run::new("ldd").arg(program).run().expect(0).stdout;
    let files = linked.split_whitespace().filter(|w| w.starts_with('/'));
    let real = |file| fs::canonicalize(file).unwrap_or_else(|e| panic!("find {file}: {e}"));
    files.map(real).collect()
}

/// For each of `names`, the first library of a program whose file name begins with it.
///
/// # Panics
/// If no library matches a name.
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

/// A program with reproducible output. Each run starts in an empty folder.
pub struct Driver {
    /// Its name, for messages.
    pub name: String,
    program: Program,
    folder: PathBuf,
    scratch: Scratch,
    files: BTreeMap<String, Vec<u8>>,
    /// Removes from the output the parts that differ from run to run.
    read: fn(&str) -> String,
    plain: Finished,
}

impl Driver {
    /// A driver for `program`; `{folder}` in its arguments stands for the path of its folder.
    ///
    /// # Panics
    /// If two runs without ipath differ in output or status.
    pub fn new(name: &str, program: Program) -> Self {
        Self::with(name, program, &[], str::to_owned)
    }

    /// Like [`Self::new`], with files that are written to the folder before each run. `read`
    /// removes from the output the parts that differ from run to run.
    ///
    /// # Panics
    /// If two runs without ipath differ in output or status.
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

    /// The program and its arguments.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The first run, without ipath.
    pub fn plain(&self) -> &Finished {
        &self.plain
    }

    /// The contents of a file in its folder after the last run.
    ///
    /// # Panics
    /// If the file cannot be read.
    pub fn file(&self, name: &str) -> Vec<u8> {
        let path = self.folder.join(name);
        fs::read(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()))
    }

    /// Empties its folder and writes its own files there.
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

    /// Runs it with entries and exits of these functions instrumented, and checks that output and
    /// status are those of a plain run. Returns the profile.
    ///
    /// # Panics
    /// With the first difference. Also if calls are missed or too many functions are refused.
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
        // The command line would be as long as the list of functions.
        ours.shown = format!("{} with {what}", self.name);
        // Functions with overlapping windows cannot be instrumented together. Room for a punned
        // jump depends on the process. Both show only at run time.
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
        // The summary follows the program's output.
        if (self.read)(&ours.stdout).starts_with(&(self.read)(&self.plain.stdout)) {
            ours.stdout.clone_from(&self.plain.stdout);
        }
        ours.stderr = without_remarks(&ours.stderr);
        self.compare(&ours, &what);
        let profile = Profile::read(&file);
        let losses = &profile.losses;
        // A timer of the program may interrupt the runtime. Calls that its handler makes are missed
        // if a jump leaves them.
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

    /// Checks that output and status of `ours` are those of the plain run.
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

/// The number of calls of each function in a profile.
pub fn calls(profile: &Profile) -> BTreeMap<Target, u64> {
    let of = |function: &Function| (Target::of(profile, function), count(&function.totals));
    profile.functions.iter().map(of).collect()
}

/// The program's own standard error, without ipath's remarks on clones, inlined copies and aliases.
fn without_remarks(stderr: &str) -> String {
    const REMARKS: [&str; 3] = [
        "not every call is counted",
        ": also called as ",
        "functions whose code also has other names",
    ];
    let is_remark = |line: &&str| {
        line.starts_with("ipath: ") && REMARKS.iter().any(|remark| line.contains(remark))
    };
    let lines = stderr.split_inclusive('\n');
    lines.filter(|line| !is_remark(line)).collect()
}
