//! What the columns of records are, as the document says.

use abi::schema::Derived;

use crate::segment::{ColumnDoc, Document, SchemaDoc};

/// The schemas of a session.
pub(super) struct Schemas(Vec<Rules>);

/// A schema.
pub(super) struct Rules {
    pub(super) columns: Vec<Rule>,
    /// True if some of it is known only when a call ends.
    pub(super) needs_exits: bool,
}

/// A column.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) kind: Kind,
    /// True if each call that has ended has a number in it: see [`ColumnDoc::is_of_all`].
    pub(super) is_of_all: bool,
    /// True if it has the values below 0, without their sign.
    pub(super) is_negative: bool,
    /// The metric that it is of, by its place after the count.
    pub(super) metric: Option<usize>,
}

/// How a column goes together with the one of steady calls ([`Derived::Steady`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is that one.
    Steady,
    /// Those calls have 0 in it.
    Rest,
    /// It is of a value: there are none of those calls.
    Value,
    /// Those calls have their time in it.
    Other,
}

impl Schemas {
    /// Those of a document.
    pub(super) fn of(document: &Document) -> Self {
        let rules = |schema: &SchemaDoc| Rules {
            columns: schema.columns.iter().map(|c| rule(document, c)).collect(),
            needs_exits: schema.needs_exits(),
        };
        Self(document.schemas.iter().map(rules).collect())
    }

    /// The one of this number.
    pub(super) fn get(&self, schema: u8) -> Option<&Rules> {
        self.0.get(usize::from(schema))
    }
}

impl Rules {
    /// The metrics of which each call that has ended has a number.
    pub(super) fn of_all(&self) -> impl Iterator<Item = usize> + '_ {
        let of_all = self.columns.iter().filter(|rule| rule.is_of_all);
        of_all.filter_map(|rule| rule.metric)
    }

    /// The metrics that lack a number only of those ended calls of which it is not known.
    pub(super) fn of_most(&self) -> impl Iterator<Item = usize> + '_ {
        let is_of_most = |rule: &&Rule| !rule.is_of_all && rule.kind != Kind::Value;
        self.columns
            .iter()
            .filter(is_of_most)
            .filter_map(|rule| rule.metric)
    }
}

fn rule(document: &Document, column: &ColumnDoc) -> Rule {
    Rule {
        kind: match Derived::decode(column.derived) {
            Some(Derived::Steady) => Kind::Steady,
            Some(Derived::Rest(..)) => Kind::Rest,
            Some(Derived::Value(_) | Derived::Negative(_)) => Kind::Value,
            _ => Kind::Other,
        },
        is_of_all: column.is_of_all(),
        is_negative: column.is_negative(),
        metric: document.metric_of(column),
    }
}
