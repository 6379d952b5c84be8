//! stub
use crate::profile::Profile;
use std::time::{Duration, Instant};
pub struct Sample { pub profile: Profile, pub ended: Option<String> }
pub trait Source { fn sample(&mut self) -> Result<Sample, String>; fn add(&mut self, p:&str)->Result<String,String>; fn remove(&mut self, f: usize)->Result<String,String>; }
pub fn run(_s: &mut dyn Source, _i: Duration, _d: Option<Instant>) -> Result<(), String> { Ok(()) }
