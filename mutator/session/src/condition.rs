//! Conditions for calls to count: comparisons as in `--when`, such as `arg3 > 4096`, `ret < 0` or
//! `wall > 10ms`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use ipath_symbols::values::Item;

/// A comparison of a property of a call with a number. The call counts if it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    operand: Operand,
    relation: Relation,
    value: i64,
}

/// The operand of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// An argument or the return value.
    Item(Item),
    /// The value of a timer for the call, in ns.
    Timer(Timer),
}

/// A time that a condition can compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Elapsed time.
    Wall,
    /// Time of the thread on a processor.
    Cpu,
    /// `Wall` minus `Cpu`.
    Blocked,
    /// Time in which the thread was runnable and had no processor.
    RunDelay,
    /// Time in which the thread waited for block devices.
    BlockIo,
}

impl Timer {
    /// The timers that a condition can compare.
    pub const ALL: [Self; 5] = [
        Self::Wall,
        Self::Cpu,
        Self::Blocked,
        Self::RunDelay,
        Self::BlockIo,
    ];

    /// The timer's name among the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Cpu => "cpu",
            Self::Blocked => "blocked",
            Self::RunDelay => "run-delay",
            Self::BlockIo => "block-io",
        }
    }
}

/// The relation that must hold between operand and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl Relation {
    /// All relations. If one sign is the beginning of another, the longer one comes first.
    pub const ALL: [Self; 6] = [
        Self::LessOrEqual,
        Self::GreaterOrEqual,
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::Greater,
    ];

    /// The sign of the relation in a condition.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
        }
    }
}

/// Units of time with their lengths in ns, the longest first.
const UNITS: [(&str, i64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl Condition {
    /// The operand of the comparison.
    pub fn operand(&self) -> Operand {
        self.operand
    }

    /// True if the condition can be evaluated only when a call ends.
    pub fn needs_exits(&self) -> bool {
        !matches!(self.operand, Operand::Item(Item::Argument(_)))
    }

    /// The relation that must hold.
    pub fn relation(&self) -> Relation {
        self.relation
    }

    /// The number that the operand is compared with; for a timer, in ns.
    pub fn value(&self) -> i64 {
        self.value
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(item) => item.fmt(f),
            Self::Timer(timer) => f.write_str(timer.name()),
        }
    }
}

impl fmt::Display for Condition {
    /// Writes the form that [`Condition::from_str`] reads. A time is in the longest unit of which
    /// it is a multiple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operand, sign) = (self.operand, self.relation.sign());
        write!(f, "{operand} {sign} ")?;
        let Operand::Timer(_) = operand else {
            return write!(f, "{}", self.value);
        };
        let whole = |(_, ns): &&(&str, i64)| self.value != 0 && self.value % ns == 0;
        match UNITS.iter().find(whole) {
            Some((unit, ns)) => write!(f, "{}{unit}", self.value / ns),
            None => write!(f, "{}ns", self.value),
        }
    }
}

/// Why a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionError {
    /// The text begins with this, which is not an operand.
    Operand(String),
    /// The operand is followed by this, which is not a relation.
    Relation(Operand, String),
    /// This is not a number that the operand can be compared with.
    Number(Operand, String),
    /// This number does not fit in 64 bits.
    Range(String),
    /// The comparison is followed by this.
    More(String),
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operand(found) => write!(
                f,
                "{}: a condition compares arg1 to arg6, ret, wall, cpu, blocked, run-delay or block-io",
                quoted(found)
            ),
            Self::Relation(operand, found) => write!(
                f,
                "{} after {operand}: a condition has one of <, <=, >, >=, == and !=",
                quoted(found)
            ),
            Self::Number(Operand::Item(item), found) => write!(
                f,
                "{}: {item} is compared with a whole number without a unit, decimal or 0x…",
                quoted(found)
            ),
            Self::Number(Operand::Timer(timer), found) => write!(
                f,
                "{}: {} is compared with a time, a whole number with ns, us, ms or s",
                quoted(found),
                timer.name()
            ),
            Self::Range(found) => write!(
                f,
                "{}: numbers are from {} to {}, times in ns",
                quoted(found),
                i64::MIN,
                i64::MAX
            ),
            Self::More(found) => write!(
                f,
                "{}: a condition is one comparison, and this comes after it",
                quoted(found)
            ),
        }
    }
}

impl std::error::Error for ConditionError {}

/// The text in quotes, on one line and shortened; the word `nothing` for an empty text.
fn quoted(found: &str) -> String {
    const MAX_CHARS: usize = 40;
    if found.is_empty() {
        return "nothing".to_owned();
    }
    match found.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{:?}…", &found[..at]),
        None => format!("{found:?}"),
    }
}

impl FromStr for Condition {
    type Err = ConditionError;

    /// Parses `OPERAND RELATION NUMBER`, with or without spaces in between.
    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let (name, rest) = split(text.trim(), |c| c.is_ascii_alphanumeric() || c == '-');
        let operand = operand(name).ok_or_else(|| {
            let found = if name.is_empty() { rest } else { name };
            ConditionError::Operand(found.to_owned())
        })?;
        let rest = rest.trim_start();
        let (sign, _) = split(rest, |c| "<>=!".contains(c));
        let relation = Relation::ALL.into_iter().find(|r| r.sign() == sign);
        let relation = relation.ok_or_else(|| {
            let found = if sign.is_empty() { rest } else { sign };
            ConditionError::Relation(operand, found.to_owned())
        })?;
        let rest = rest[sign.len()..].trim_start();
        let signed = rest.starts_with(['+', '-']);
        let (digits, _) = split(&rest[usize::from(signed)..], |c| {
            c.is_ascii_alphanumeric() || "._".contains(c)
        });
        let (number, more) = rest.split_at(usize::from(signed) + digits.len());
        let value = number_of(operand, if digits.is_empty() { rest } else { number })?;
        match more.trim_start() {
            "" => Ok(Self {
                operand,
                relation,
                value,
            }),
            more => Err(ConditionError::More(more.to_owned())),
        }
    }
}

/// Splits off the leading characters of a kind.
fn split(text: &str, is_of_kind: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !is_of_kind(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// The operand with this name. `None` if there is none.
fn operand(name: &str) -> Option<Operand> {
    let timer = Timer::ALL.into_iter().find(|timer| timer.name() == name);
    match timer {
        Some(timer) => Some(Operand::Timer(timer)),
        None => name.parse().ok().map(Operand::Item),
    }
}

/// Parses the number that the operand is compared with. A time is converted to ns.
fn number_of(operand: Operand, text: &str) -> Result<i64, ConditionError> {
    let wrong = || ConditionError::Number(operand, text.to_owned());
    let range = || ConditionError::Range(text.to_owned());
    let (digits, ns) = match operand {
        Operand::Item(_) => (text, 1),
        Operand::Timer(_) => {
            let has = |(unit, _): &&(&str, i64)| {
                let digits = text.strip_suffix(unit);
                digits.is_some_and(|digits| digits.ends_with(|c: char| c.is_ascii_digit()))
            };
            let (unit, ns) = UNITS.iter().find(has).ok_or_else(wrong)?;
            (&text[..text.len() - unit.len()], *ns)
        }
    };
    let (is_negative, digits) = match digits.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, digits.strip_prefix('+').unwrap_or(digits)),
    };
    let (radix, digits) = match operand {
        Operand::Item(_) => match digits.strip_prefix("0x") {
            Some(digits) => (16, digits),
            None => (10, digits),
        },
        Operand::Timer(_) => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(wrong());
    }
    let size = i128::from_str_radix(digits, radix).map_err(|_| range())?;
    let value = if is_negative { -size } else { size };
    let value = value.checked_mul(ns.into()).ok_or_else(range)?;
    i64::try_from(value).map_err(|_| range())
}
