//! What has been found out about return addresses in files, for all sessions of this command: the processes of a job run the same
//! files, and of one that has run for a millisecond nothing is to be read anew.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use patcher::Svma;

use crate::images::OpenImage;
use crate::profile::Frame;

/// Frames that are kept; with more, it begins anew.
const MOST: usize = 1 << 16;

#[derive(Default)]
struct Described {
    /// By file and address.
    frames: HashMap<(usize, Svma), Frame>,
    /// How many debug files had come.
    arrived: u64,
}

static DESCRIBED: Mutex<Option<Described>> = Mutex::new(None);

fn described(arrived: u64) -> MutexGuard<'static, Option<Described>> {
    let mut known = DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_old = |known: &Described| known.arrived != arrived || known.frames.len() >= MOST;
    if known.as_ref().is_none_or(is_old) {
        *known = Some(Described {
            arrived,
            ..Described::default()
        });
    }
    known
}

/// A file, which is opened once and stays.
fn key(image: &'static OpenImage, at: Svma) -> (usize, Svma) {
    (std::ptr::from_ref(image).addr(), at)
}

/// The frame of a call in a file, where it is known by what had come by then.
pub(super) fn find(image: &'static OpenImage, at: Svma, arrived: u64) -> Option<Frame> {
    let known = described(arrived);
    known.as_ref()?.frames.get(&key(image, at)).cloned()
}

/// Keeps it.
pub(super) fn keep(image: &'static OpenImage, at: Svma, arrived: u64, frame: &Frame) {
    if let Some(known) = described(arrived).as_mut() {
        known.frames.insert(key(image, at), frame.clone());
    }
}
