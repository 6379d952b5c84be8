//! The meaning of record columns, from the document.

use abi::schema::Derived;

use crate::segment::{ColumnDoc, Document, SchemaDoc};

/// The schemas of a session.
pub(super) struct Schemas(Vec<Rules>);

/// A schema.
pub(super) struct Rules {
    pub(super) columns: Vec<Rule>,
    /// True if part of it is known only when a call ends.
    pub(super) needs_exits: bool,
}

/// A column.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) kind: Kind,
    /// See [`ColumnDoc::is_of_all`].
    pub(super) is_of_all: bool,
    /// True if the column holds the negative values, without their sign.
    pub(super) is_negative: bool,
    /// The index of the column's metric among the metrics other than the count. `None` if it has no
    /// metric.
    pub(super) metric: Option<usize>,
}

/// The relation of a column to the column of steady calls ([`Derived::Steady`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The column is the column of steady calls.
    Steady,
    /// Steady calls have the value 0 in the column.
    Rest,
    /// The column holds argument or return values, and there are no steady calls.
    Value,
    /// Steady calls have their time in the column.
    Other,
}

impl Schemas {
    /// The schemas of a document.
    pub(super) fn of(document: &Document) -> Self {
        let rules = |schema: &SchemaDoc| Rules {
            columns: schema.columns.iter().map(|c| rule(document, c)).collect(),
            needs_exits: schema.needs_exits(),
        };
        Self(document.schemas.iter().map(rules).collect())
    }

    /// The schema with this number. `None` if there is none.
    pub(super) fn get(&self, schema: u8) -> Option<&Rules> {
        self.0.get(usize::from(schema))
    }
}

impl Rules {
    /// The metrics that have a number for each call that has ended.
    pub(super) fn of_all(&self) -> impl Iterator<Item = usize> + '_ {
        let of_all = self.columns.iter().filter(|rule| rule.is_of_all);
        of_all.filter_map(|rule| rule.metric)
    }

    /// The metrics that have a number for each call that has ended, except calls for which it is
    /// unknown.
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
