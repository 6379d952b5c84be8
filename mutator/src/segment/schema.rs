//! What is read at the probes of functions, and what records have of it, as the document tells it.

use std::fmt;

use abi::schema::{ColumnRule, Derived, MAX_COLUMNS, MAX_SCHEMAS, Schema, source};
use serde::{Deserialize, Serialize};

use super::{Document, MetricDoc};
use crate::metric::Metric;

/// What is measured of some functions: [`Schema`], whose number is its place in the document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaDoc {
    /// Which sources are read: bit n for source n.
    pub sources: u32,
    /// What records have of it.
    pub columns: Vec<ColumnDoc>,
}

/// A column of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDoc {
    /// The name of the metric that it is of.
    pub metric: String,
    /// [`Derived::encode`].
    pub derived: u64,
    /// From what is read to the metric's unit, as [`ColumnRule`] has it.
    pub scale: u64,
}

impl ColumnDoc {
    /// True if each call that has ended has a number in it.
    pub fn is_of_all(&self) -> bool {
        self.derived == Derived::Growth(source::CLOCK as u8).encode()
    }

    /// True if it has the values below 0, without their sign.
    pub fn is_negative(&self) -> bool {
        matches!(Derived::decode(self.derived), Some(Derived::Negative(_)))
    }
}

impl SchemaDoc {
    /// True if some of it is known only when a call ends.
    pub fn needs_exits(&self) -> bool {
        let derived = self.columns.iter().map(|c| Derived::decode(c.derived));
        derived.flatten().any(|derived| !derived.is_at_entry())
    }

    /// As the runtime has it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.sources.to_le_bytes().to_vec();
        bytes.extend((self.columns.len() as u32).to_le_bytes());
        // No condition.
        bytes.extend([0; 16]);
        for column in &self.columns {
            bytes.extend(column.derived.to_le_bytes());
            bytes.extend(column.scale.to_le_bytes());
        }
        const _: () = assert!(size_of::<ColumnRule>() == 16);
        bytes.resize(size_of::<Schema>(), 0);
        bytes
    }
}

/// Why there is no schema of some metrics.
#[derive(Debug, PartialEq, Eq)]
pub enum TooMuch {
    /// There are too many metrics.
    Columns,
    /// Too many different lists of metrics have been asked for.
    Schemas,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Columns => write!(
                f,
                "too many metrics: there is room for {MAX_COLUMNS}, an argument or the return value takes two"
            ),
            Self::Schemas => write!(
                f,
                "the session has had {MAX_SCHEMAS} different lists of metrics, and has no room for another one"
            ),
        }
    }
}

impl Document {
    /// The number of the schema of metrics, which the session has from now on.
    pub fn measure(&mut self, metrics: &[Metric], hz: u64) -> Result<u8, TooMuch> {
        let number = self.schema_of(metrics, hz)?;
        for &metric in metrics {
            let name = metric.name();
            if self.metrics.iter().any(|known| known.name == name) {
                continue;
            }
            let (mult, shift) = metric.scale(hz);
            self.metrics.push(MetricDoc {
                name,
                unit: metric.unit().to_owned(),
                mult,
                shift,
                is_value: metric.is_value(),
            });
        }
        Ok(number)
    }

    /// Which of the metrics but the count a column is of.
    pub fn metric_of(&self, column: &ColumnDoc) -> Option<usize> {
        let mut metrics = self.metrics.iter().skip(1);
        metrics.position(|metric| metric.name == column.metric)
    }

    /// The number of the schema of metrics, which is made where there is none yet.
    pub fn schema_of(&mut self, metrics: &[Metric], hz: u64) -> Result<u8, TooMuch> {
        let mut schema = SchemaDoc::default();
        for &metric in metrics {
            let (scale, _) = metric.scale(hz);
            for derived in metric.columns() {
                schema.sources |= match derived {
                    Derived::Growth(number) => 1 << number,
                    Derived::Rest(whole, part) => 1 << whole | 1 << part,
                    Derived::Value(_) | Derived::Negative(_) => 0,
                };
                schema.columns.push(ColumnDoc {
                    metric: metric.name(),
                    derived: derived.encode(),
                    scale,
                });
            }
        }
        if schema.sources != 0 {
            schema.sources |= 1 << source::CLOCK;
        }
        if schema.columns.len() > MAX_COLUMNS {
            return Err(TooMuch::Columns);
        }
        let known = self.schemas.iter().position(|known| *known == schema);
        let number = known.unwrap_or_else(|| {
            self.schemas.push(schema);
            self.schemas.len() - 1
        });
        match number < MAX_SCHEMAS {
            true => Ok(number as u8),
            false => Err(TooMuch::Schemas),
        }
    }
}
