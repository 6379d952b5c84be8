//! Read-only access to a session and its target.

use std::sync::Arc;

use patcher::Avma;

use super::runtime_memory::own_mappings;
use super::{SessionError, symbol};
use crate::segment::{Document, Segment};
use ipath_target::process::{Extent, Memory, Process, Space};

/// A session and the address space of its target. The document and the lock cannot be changed
/// through it.
#[derive(Clone, Copy)]
pub(super) struct View<'s> {
    pub(super) process: &'s Process,
    pub(super) segment: &'s Segment,
    pub(super) document: &'s Document,
    pub(super) space: &'s Arc<Space>,
}

impl View<'_> {
    /// The address of a symbol of the runtime. Fails if the runtime has no such symbol.
    pub(super) fn symbol(&self, name: &str) -> Result<Avma, SessionError> {
        symbol(self.document, name)
    }

    /// The mappings that the runtime has made for itself. Fails if the target's memory cannot be
    /// read.
    pub(super) fn own_mappings(&self, memory: &Memory) -> Result<Vec<Extent>, SessionError> {
        own_mappings(self.document, memory)
    }
}
