//! The measurements of a session: its metrics, and the schemas of functions.

use std::slice;

use abi::image::{SYMBOL_COUNTERS, SYMBOL_SCHEMAS};
use abi::schema::{MAX_COLUMNS, MAX_SCHEMAS, source};

use super::document::{Document, FunctionDoc, MetricDoc};
use super::schema::{ColumnDoc, CounterDoc, SchemaDoc, TooMuch};
use crate::condition::Condition;
use crate::metric::Metric;
use ipath_profile::COUNT;

/// A change of the metrics that a function measures.
#[derive(Clone, Debug)]
pub enum Remeasure {
    /// Measure these metrics as well.
    Add(Vec<Metric>),
    /// No longer measure the metrics with these names.
    Take(Vec<String>),
    /// Measure these metrics and no others.
    Set(Vec<Metric>),
}

impl Remeasure {
    /// The metrics to measure from now on, including those that are measured already.
    pub fn metrics(&self) -> &[Metric] {
        match self {
            Self::Add(metrics) | Self::Set(metrics) => metrics,
            Self::Take(_) => &[],
        }
    }
}

/// The clock and the room for columns that a schema must fit.
#[derive(Clone, Copy, Debug)]
pub struct MadeFor {
    /// Ticks of the time-stamp counter per second.
    pub hz: u64,
    /// The number of columns that each record has room for.
    pub room: usize,
    /// Time since the session's start, in ns; `None` while the session is being created.
    pub now_ns: Option<u64>,
}

impl Document {
    /// Adds metrics to the session, and returns the number of their schema. Only calls that meet
    /// `condition` count. `hz` is the frequency of the session's time-stamp counter.
    ///
    /// # Errors
    /// The session has no room for another counter, schema or column.
    pub fn measure(
        &mut self,
        metrics: &[Metric],
        condition: Option<&Condition>,
        hz: u64,
    ) -> Result<u8, TooMuch> {
        for metric in metrics {
            self.count_by(metric)?;
        }
        let schema = SchemaDoc::of(metrics, condition, hz, &self.counters)?;
        let number = self.number_of(schema)?;
        for metric in metrics {
            self.list(metric, hz, None);
        }
        Ok(number)
    }

    /// Changes the metrics of schema `of`, and returns the number of the resulting schema. The
    /// condition stays the same.
    ///
    /// # Errors
    /// There is no room for another counter, schema or column. The document may then contain
    /// metrics and counters that no schema uses.
    pub fn remeasure(&mut self, of: u8, change: &Remeasure, made: MadeFor) -> Result<u8, TooMuch> {
        let mut schema = self.schema_of(of).cloned().unwrap_or_default();
        schema.strip();
        match change {
            Remeasure::Add(_) => {}
            Remeasure::Take(names) => schema.columns.retain(|c| !names.contains(&c.metric)),
            Remeasure::Set(metrics) => {
                let names: Vec<String> = metrics.iter().map(|m| m.name()).collect();
                schema.columns.retain(|c| names.contains(&c.metric));
            }
        }
        // Without another metric, the function is only counted.
        let only_counts = matches!(change, Remeasure::Take(_)) && schema.columns.is_empty();
        schema.single = self.keeps_single() && !only_counts;
        for metric in change.metrics() {
            let name = metric.name();
            if schema.columns.iter().any(|c| c.metric == name) {
                continue;
            }
            self.count_by(metric)?;
            let mut of_one = SchemaDoc::of(slice::from_ref(metric), None, made.hz, &self.counters)?;
            of_one.strip();
            schema.columns.extend(of_one.columns);
            self.list(metric, made.hz, made.now_ns);
        }
        // Use the order of the session's list, so that the same metrics always have the same
        // schema.
        schema.columns.sort_by_key(|c| self.metric_of(c));
        schema.complete(made.hz);
        let room = made.room.min(MAX_COLUMNS);
        if schema.columns.len() > room {
            return Err(TooMuch::Room(room));
        }
        self.number_of(schema)
    }

    /// The number of a schema like `of` that keeps calls apart by the value `by`, or by none if
    /// that is 0, as for a phase, whose calls are apart already. It is `of` if that keeps none
    /// apart.
    ///
    /// # Errors
    /// There is no room for another schema.
    pub fn with_value(&mut self, of: u8, by: u64) -> Result<u8, TooMuch> {
        match self.schema_of(of) {
            Some(schema) if schema.by != 0 => {
                let schema = SchemaDoc {
                    by,
                    ..schema.clone()
                };
                self.number_of(schema)
            }
            _ => Ok(of),
        }
    }

    /// The schema with this number. `None` if there is none.
    pub fn schema_of(&self, number: u8) -> Option<&SchemaDoc> {
        self.schemas.get(usize::from(number))
    }

    /// True if some metric of a schema is known only when a call ends. False if there is no such
    /// schema.
    pub fn needs_exits(&self, schema: u8) -> bool {
        self.schema_of(schema).is_some_and(SchemaDoc::needs_exits)
    }

    /// The names of a schema's metrics, the count first.
    pub fn metrics_of(&self, schema: u8) -> Vec<&str> {
        let columns = self.schema_of(schema).into_iter();
        let columns = columns.flat_map(|schema| &schema.columns);
        let columns = columns.filter(|column| !column.metric.is_empty());
        let mut names = vec![COUNT];
        for column in columns {
            if !names.contains(&column.metric.as_str()) {
                names.push(&column.metric);
            }
        }
        names
    }

    /// The names of a function's metrics, the count first.
    pub fn measured_of(&self, function: &FunctionDoc) -> Vec<&str> {
        self.metrics_of(function.schema)
    }

    /// Adds a metric to the session's list, if the list does not contain it.
    fn list(&mut self, metric: &Metric, hz: u64, since_ns: Option<u64>) {
        let name = metric.name();
        if self.has_metric(&name) {
            return;
        }
        self.notes.extend(metric.note());
        let (mult, shift) = metric.scale(hz);
        self.metrics.push(MetricDoc {
            name,
            unit: metric.unit().to_owned(),
            since_ns,
            mult,
            shift,
            is_value: metric.is_value(),
        });
    }

    fn has_metric(&self, name: &str) -> bool {
        self.metrics.iter().any(|known| known.name == name)
    }

    /// Adds a counter for a metric that needs one.
    fn count_by(&mut self, metric: &Metric) -> Result<(), TooMuch> {
        let Metric::Counter(event) = metric else {
            return Ok(());
        };
        let mut counters = self.counters.iter();
        if self.has_metric(&event.name) || counters.any(|known| known.name == *event.name) {
            return Ok(());
        }
        if self.counters.len() >= source::COUNTERS {
            return Err(TooMuch::Counters);
        }
        self.counters.push(CounterDoc::of(event));
        Ok(())
    }

    /// The runtime's tables of counters and schemas, with their symbols. Schemas come last because
    /// they refer to counters.
    pub fn tables_of_schemas(&self) -> [(&'static str, Vec<u8>); 2] {
        let counters = self.counters.iter().flat_map(CounterDoc::bytes);
        let schemas = self.schemas.iter().flat_map(SchemaDoc::bytes);
        [
            (SYMBOL_COUNTERS, counters.collect()),
            (SYMBOL_SCHEMAS, schemas.collect()),
        ]
    }

    /// The number of a schema in the session, which is added if it is new.
    ///
    /// # Errors
    /// [`TooMuch::Schemas`] if the session has no room for another one.
    pub fn number_of(&mut self, schema: SchemaDoc) -> Result<u8, TooMuch> {
        let known = self.schemas.iter().position(|known| *known == schema);
        let number = known.unwrap_or(self.schemas.len());
        if number >= MAX_SCHEMAS {
            return Err(TooMuch::Schemas);
        }
        if known.is_none() {
            self.schemas.push(schema);
        }
        Ok(number as u8)
    }

    /// The index of a column's metric among the metrics other than the count. `None` if the column
    /// has no metric of the profile.
    pub fn metric_of(&self, column: &ColumnDoc) -> Option<usize> {
        let mut metrics = self.metrics.iter().skip(1);
        metrics.position(|metric| metric.name == column.metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: MadeFor = MadeFor {
        hz: 1_000_000_000,
        room: 8,
        now_ns: Some(7),
    };

    fn metric(name: &str) -> Metric {
        Metric::named(name).expect("a metric")
    }

    /// The document of a session with these metrics and this condition.
    fn document(metrics: &[&str], condition: Option<&str>) -> Document {
        let mut document = Document {
            metrics: vec![MetricDoc {
                name: COUNT.to_owned(),
                ..MetricDoc::default()
            }],
            schemas: vec![SchemaDoc::default()],
            ..Document::default()
        };
        let metrics: Vec<Metric> = metrics.iter().map(|name| metric(name)).collect();
        let condition = condition.map(|text| text.parse().expect("a condition"));
        let schema = document.measure(&metrics, condition.as_ref(), MADE.hz);
        document.schema = schema.expect("room");
        document
    }

    #[test]
    fn the_same_metrics_are_the_same_schema() {
        let mut document = document(&["wall"], None);
        let wall = document.schema;
        let add = Remeasure::Add(vec![metric("cpu"), metric("arg1")]);
        let all = document.remeasure(wall, &add, MADE).expect("room");
        assert_eq!(document.metrics_of(all), ["count", "wall", "cpu", "arg1"]);
        let take = Remeasure::Take(vec!["wall".to_owned(), "cpu".to_owned()]);
        let one = document.remeasure(all, &take, MADE).expect("room");
        assert_eq!(document.metrics_of(one), ["count", "arg1"]);
        assert!(document.needs_exits(all) && !document.needs_exits(one));
        let set = Remeasure::Set(vec![metric("arg1"), metric("cpu"), metric("wall")]);
        assert_eq!(document.remeasure(one, &set, MADE), Ok(all));
        let none = Remeasure::Set(Vec::new());
        assert_eq!(document.remeasure(all, &none, MADE), Ok(0));
        let again = Remeasure::Add(vec![metric("wall")]);
        assert_eq!(document.remeasure(0, &again, MADE), Ok(wall));
        let since: Vec<_> = document.metrics.iter().map(|m| m.since_ns).collect();
        assert_eq!(since, [None, None, Some(7), Some(7)]);
    }

    #[test]
    fn columns_without_a_metric_come_and_go() {
        let mut document = document(&["wall"], None);
        let wall = document.schema;
        let names = |document: &Document, schema: u8| {
            let columns = &document.schema_of(schema).expect("there").columns;
            let names: Vec<String> = columns.iter().map(|c| c.metric.clone()).collect();
            names
        };
        let add = Remeasure::Add(vec![metric("blocked")]);
        let both = document.remeasure(wall, &add, MADE).expect("room");
        assert_eq!(names(&document, both), ["", "wall", "blocked"]);
        let take = Remeasure::Take(vec!["blocked".to_owned()]);
        assert_eq!(document.remeasure(both, &take, MADE), Ok(wall));
        let set = Remeasure::Set(vec![metric("ret")]);
        let returned = document.remeasure(both, &set, MADE).expect("room");
        assert_eq!(names(&document, returned), ["", "ret", "ret"]);
        let add = Remeasure::Add(vec![metric("arg2")]);
        let values = document.remeasure(returned, &add, MADE).expect("room");
        assert_eq!(names(&document, values), ["ret", "ret", "arg2", "arg2"]);
    }

    #[test]
    fn a_condition_stays() {
        let mut document = document(&["arg1"], Some("ret < 0"));
        let first = document.schema;
        let take = Remeasure::Take(vec!["arg1".to_owned()]);
        let none = document.remeasure(first, &take, MADE).expect("room");
        assert_eq!(document.metrics_of(none), ["count"]);
        assert_ne!(none, 0);
        assert!(document.needs_exits(none));
        let back = Remeasure::Add(vec![metric("arg1")]);
        assert_eq!(document.remeasure(none, &back, MADE), Ok(first));
    }

    #[test]
    fn more_columns_than_there_is_room_for_are_refused() {
        let mut document = document(&["wall"], None);
        let arguments = ["arg1", "arg2", "arg3", "arg4"].map(metric);
        let add = Remeasure::Add(arguments.to_vec());
        let schema = document.schema;
        assert_eq!(
            document.remeasure(schema, &add, MADE),
            Err(TooMuch::Room(8))
        );
        let more = MadeFor { room: 9, ..MADE };
        assert!(document.remeasure(schema, &add, more).is_ok());
    }
}
