use std::sync::atomic::Ordering::Relaxed;

use abi::schema::{Derived, source};
use abi::segment::{Column, INLINE_BUCKETS};

use super::super::raw::RawMetric;
use super::*;
use crate::metric::Metric;
use crate::segment::{Document, MetricDoc, Shape};
use ipath_target::process::{Pid, Process};

/// Timers, which the test changes so that each call has a number in them.
const TIMERS: [Metric; 2] = [Metric::Wall, Metric::Cpu];

/// A segment with one record of `timers` timers, which have counted `closed` calls.
fn segment(start_time: u64, timers: usize, closed: u64) -> (Segment, Document) {
    let process = Process {
        pid: Pid(std::process::id() as i32),
        start_time,
    };
    let shape = Shape {
        max_paths: 10,
        columns: timers,
        keeps_single: false,
    };
    let mut document = Document {
        metrics: vec![MetricDoc::default()],
        ..Document::default()
    };
    let schema = document.measure(&TIMERS[..timers], None, 1).expect("room");
    for column in &mut document.schemas[usize::from(schema)].columns {
        column.derived = Derived::Growth(source::CLOCK as u8).encode();
    }
    let (segment, _) = Segment::create(&process, &shape).expect("created");
    segment.remove_name();
    segment.header().records_used.store(1, Relaxed);
    let head = segment.record(0).expect("there");
    head.path.store(10, Relaxed);
    head.schema.store(schema, Relaxed);
    head.entered.store(closed + 2, Relaxed);
    head.closed.store(closed, Relaxed);
    for number in 0..timers {
        let timer = segment.column(0, number).expect("there");
        timer.buckets[3].store(closed as u16, Relaxed);
        timer.sum.store(closed * 8, Relaxed);
    }
    (segment, document)
}

fn timer(segment: &Segment, number: usize) -> &Column {
    segment.column(0, number).expect("there")
}

/// The contents of the record.
fn raw(segment: &Segment, document: &Document) -> Raw {
    let schemas = Schemas::of(document);
    let mut raw = Raw::empty(document.metrics.len() - 1);
    Reader::new(segment, &schemas).read(0, false, &mut raw);
    raw
}

/// The record as it is read: closed calls, open calls, and the number of calls in each histogram.
fn read((segment, document): &(Segment, Document)) -> (u64, u64, Vec<u64>) {
    let raw = raw(segment, document);
    let held = |m: &RawMetric| m.positive.histogram.held();
    let held = raw.metrics.iter().map(held).collect();
    (raw.closed, raw.open(), held)
}

#[test]
fn a_writer_that_stands_still_leaves_no_histogram_of_other_calls() {
    for timers in 1..=2 {
        let both = segment(800 + timers as u64, timers, 5);
        assert_eq!(read(&both), (5, 2, vec![5; timers]));
        let segment = &both.0;
        let head = segment.record(0).expect("there");
        head.sequence.store(7, Relaxed);
        // The quick way counts the bucket first, and the compiled way the call.
        timer(segment, 0).buckets[4].store(1, Relaxed);
        let (closed, open, held) = read(&both);
        assert_eq!(held, vec![closed; timers]);
        assert_eq!(closed + open, 7, "a call is open or closed");
        head.closed.store(6, Relaxed);
        let (closed, open, held) = read(&both);
        assert_eq!(held, vec![closed; timers]);
        assert_eq!(closed + open, 7);
    }
}

/// The compiled way counts the call, then its time, then its CPU time.
#[test]
fn a_writer_between_two_timers_leaves_none_without_its_call() {
    let (segment, mut document) = segment(805, 2, 5);
    let cpu = Derived::Growth(source::CPU as u8).encode();
    let schema = segment.record(0).expect("there").schema.load(Relaxed);
    // Elapsed time and CPU time, without the column of steady calls.
    let columns = &mut document.schemas[usize::from(schema)].columns;
    columns.remove(0);
    columns[1].derived = cpu;
    let both = (segment, document);
    let head = both.0.record(0).expect("there");
    head.sequence.store(7, Relaxed);
    head.closed.store(6, Relaxed);
    timer(&both.0, 0).buckets[4].store(1, Relaxed);
    assert_eq!(read(&both), (6, 1, vec![6, 6]));
    // A call whose CPU time is unknown has none.
    head.sequence.store(8, Relaxed);
    assert_eq!(read(&both), (6, 1, vec![6, 5]));
}

#[test]
fn buckets_that_are_being_moved_are_not_missed() {
    let both = segment(810, 1, 1000);
    let segment = &both.0;
    segment.record(0).expect("there").sequence.store(1, Relaxed);
    timer(segment, 0).buckets[3].store(0, Relaxed);
    timer(segment, 0).buckets[4].store(20, Relaxed);
    assert_eq!(read(&both), (1000, 2, vec![1000]));
    timer(segment, 0).buckets[4].store(0, Relaxed);
    assert_eq!(read(&both), (1000, 2, vec![1000]));
    for bucket in 0..INLINE_BUCKETS {
        timer(segment, 0).buckets[bucket].store(400, Relaxed);
    }
    assert_eq!(read(&both), (1000, 2, vec![1000]));
}

#[test]
fn a_number_left_odd_by_a_jump_does_not_matter() {
    let both = segment(820, 1, 5);
    let segment = &both.0;
    segment.record(0).expect("there").sequence.store(8, Relaxed);
    timer(segment, 0).buckets[4].store(1, Relaxed);
    let (closed, _, held) = read(&both);
    assert_eq!(held, [closed]);
}

#[test]
fn steady_calls_have_their_time_as_cpu_time_and_are_not_blocked() {
    let process = Process {
        pid: Pid(std::process::id() as i32),
        start_time: 830,
    };
    let shape = Shape {
        max_paths: 10,
        columns: 4,
        keeps_single: false,
    };
    let mut document = Document {
        metrics: vec![MetricDoc::default()],
        ..Document::default()
    };
    let metrics = [Metric::Wall, Metric::Cpu, Metric::Blocked];
    let schema = document.measure(&metrics, None, 1).expect("room");
    let (segment, _) = Segment::create(&process, &shape).expect("created");
    segment.remove_name();
    segment.header().records_used.store(1, Relaxed);
    let head = segment.record(0).expect("there");
    head.path.store(10, Relaxed);
    head.schema.store(schema, Relaxed);
    head.entered.store(7, Relaxed);
    head.closed.store(7, Relaxed);
    // Five calls of 8 ticks, and two of 16 ticks in which the thread had its processor for 4.
    let columns = [(5, 3, 8), (2, 4, 16), (2, 2, 4), (2, 3, 12)];
    for (number, (calls, bucket, ticks)) in columns.into_iter().enumerate() {
        let column = segment.column(0, number).expect("there");
        column.buckets[bucket].store(calls, Relaxed);
        column.sum.store(u64::from(calls) * ticks, Relaxed);
        column.exclusive.store(u64::from(calls) * ticks, Relaxed);
        column.min.store(ticks, Relaxed);
        column.max.store(ticks, Relaxed);
    }
    let raw = raw(&segment, &document);
    let said = |number: usize| {
        let column = &raw.metrics[number].positive;
        let buckets: Vec<(u8, u64)> = column.histogram.iter().collect();
        (
            column.sum,
            column.min,
            column.max,
            column.exclusive,
            buckets,
        )
    };
    assert_eq!(said(0), (72, 8, 16, 72, vec![(3, 5), (4, 2)]));
    assert_eq!(said(1), (48, 4, 8, 48, vec![(2, 2), (3, 5)]));
    assert_eq!(said(2), (24, 0, 12, 24, vec![(0, 5), (3, 2)]));
}
