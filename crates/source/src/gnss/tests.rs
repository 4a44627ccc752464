//! A receiver as a source: sentences by a line of memory, and everything that a line can do.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic};
use horolog_time::Clock;

use super::frame::tests::sentence;
use super::*;
use crate::reference::tests::CLAIM;

/// A line of which a test has the other end; it ends with that.
struct Memory(Receiver<Vec<u8>>);

impl Line for Memory {
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        match self.0.recv_timeout(wait) {
            Ok(bytes) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Ok(Some(bytes.len()))
            }
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn look() -> Look {
    Look {
        monotonic: MonotonicClock.now(),
        realtime_minus_monotonic: realtime_minus_monotonic().offset,
        kernel: None,
        leaps_s: 0,
        leaps: crate::KnownLeaps::default(),
    }
}

fn gnss() -> (Gnss, Sender<Vec<u8>>) {
    let (sender, line) = mpsc::channel();
    let gone = || Err(io::ErrorKind::NotFound.into());
    let claim = Claim { offset: Span::ZERO, uncertainty: Span::ZERO, ..CLAIM };
    (Gnss::new("gnss".into(), Reader::new(Memory(line), gone), claim), sender)
}

/// The sentence of an instant that is so many seconds from now.
fn zda(ahead_s: i64) -> String {
    let (seconds, _) = look().realtime().to_timespec();
    let time = chrono::DateTime::from_timestamp(seconds + ahead_s, 0).unwrap();
    sentence(&time.format("GPZDA,%H%M%S.00,%d,%m,%Y,00,00").to_string())
}

/// Polls until it says something else than that nothing has come.
fn poll(gnss: &mut Gnss) -> Result<Option<Report>, Fault> {
    let started = Instant::now();
    loop {
        let answer = gnss.poll(&look());
        let nothing = Err(Fault::Silent("nothing comes over its line".into()));
        if answer != nothing || started.elapsed() > Duration::from_secs(5) {
            return answer;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sentence_becomes_a_report() {
    let (mut gnss, line) = gnss();
    line.send(zda(100).into()).unwrap();
    let report = poll(&mut gnss).unwrap().unwrap();
    let off = report.offset - Span::from_ns(100 * NS_PER_S);
    assert!(off.as_ns().abs() < 2 * NS_PER_S, "{report:?}");
    assert!(report.uncertainty >= UNCERTAINTY, "{report:?}");
    // The same instant once more, as receivers with several kinds of sentences have it.
    let (seconds, _) = (look().realtime() + Span::from_ns(100 * NS_PER_S)).to_timespec();
    gnss.last = Some(Timestamp::from_timespec(seconds + 1, 0));
    line.send(zda(101).into()).unwrap();
    assert_eq!(poll(&mut gnss), Ok(None));
}

#[test]
fn what_is_wrong_with_a_line_is_named() {
    let said = |bytes: &str| {
        let (mut gnss, line) = gnss();
        line.send(bytes.into()).unwrap();
        poll(&mut gnss).unwrap_err().to_string()
    };
    assert_eq!(said(&sentence("GNRMC,081253.00,V,,,,,,,270219,,,N")), "the receiver has no fix");
    assert!(said(&sentence("GNRMC,,V,,,,,,,,,,N")).contains("does not know the time yet"));
    assert!(said(&sentence("GNRMC,99")).contains("cannot be read"));
    assert!(said(&sentence("GNGGA,1")).contains("RMC or ZDA"));
    assert!(said("\u{1}\u{2}noise").contains("speed"));
    assert!(said(&zda(0).replace("ZDA", "ZDB")).contains("broken"));
    let (mut gnss, line) = gnss();
    drop(line);
    let ended = poll(&mut gnss).unwrap_err().to_string();
    assert!(ended.contains("line has ended"), "{ended}");
}

#[test]
fn miscounted_weeks_are_named() {
    for times in [-1, 1, -2] {
        let (mut gnss, line) = gnss();
        line.send(zda(times * 1024 * 7 * 86_400).into()).unwrap();
        let fault = poll(&mut gnss).unwrap_err().to_string();
        assert!(fault.contains(&format!("{times} times 1024 weeks")), "{fault}");
    }
    assert_eq!(rollovers(Span::from_ns(400 * 86_400 * NS_PER_S)), None);
    assert_eq!(rollovers(Span::ZERO), None);
}

#[test]
fn a_leap_second_is_passed_over() {
    let (mut gnss, line) = gnss();
    line.send(sentence("GPZDA,235960.00,31,12,2016,00,00").into()).unwrap();
    assert_eq!(poll(&mut gnss), Ok(None));
}

#[test]
fn a_line_that_ended_is_opened_again() {
    let (first, line) = mpsc::channel();
    let (second, next) = mpsc::channel();
    let mut next = Some(Memory(next));
    let open = move || next.take().ok_or_else(|| io::ErrorKind::NotFound.into());
    let mut gnss = Gnss::new("gnss".into(), Reader::new(Memory(line), open), CLAIM);
    drop(first);
    assert!(poll(&mut gnss).is_err());
    second.send(zda(0).into()).unwrap();
    let started = Instant::now();
    while gnss.poll(&look()).is_err() {
        assert!(started.elapsed() < Duration::from_secs(20), "it is not opened again");
        thread::sleep(Duration::from_millis(50));
    }
}
