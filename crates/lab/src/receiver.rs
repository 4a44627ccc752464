//! A GNSS receiver played at the far end of a pseudo-terminal: it sends the sentences of each
//! second when that begins by its own clock, which is the system clock and as much as it is told.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::clock::Realtime;
use horolog_sys::pseudo_terminal::PseudoTerminal;
use horolog_time::{Clock, NS_PER_S, Span, Timestamp, Utc};

/// How often it looks whether a second has begun.
const STEP: Duration = Duration::from_millis(1);
const DAY_S: i64 = 86_400;
const PLACE: &str = "3413.1000,N,10855.2000,E";

/// Sentences that were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The second that they tell, in Unix time.
    pub second: i64,
    /// When they were sent, by the system clock.
    pub at: Timestamp<Utc>,
}

/// What the receiver says.
#[derive(Debug)]
struct Says {
    ahead_ns: AtomicI64,
    has_fix: AtomicBool,
    stop: AtomicBool,
    line: Mutex<Option<PseudoTerminal>>,
    last: Mutex<Option<Sent>>,
}

/// A receiver; its line ends with it.
#[derive(Debug)]
pub struct Receiver {
    says: Arc<Says>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Begins to send, so far ahead of the system clock. `name` becomes a link to the line, as
    /// device managers make one.
    ///
    /// # Errors
    ///
    /// As for [`Self::plug_in`].
    pub fn start(name: &Path, ahead: Span) -> io::Result<Self> {
        let says = Arc::new(Says {
            ahead_ns: AtomicI64::new(ahead.as_ns()),
            has_fix: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            line: Mutex::new(None),
            last: Mutex::new(None),
        });
        let mut receiver = Self { says: Arc::clone(&says), thread: None };
        receiver.plug_in(name)?;
        receiver.thread = Some(thread::spawn(move || says.run()));
        Ok(receiver)
    }

    /// How far its clock is ahead of the system clock from here on.
    pub fn say(&self, ahead: Span) {
        self.says.ahead_ns.store(ahead.as_ns(), Ordering::Relaxed);
    }

    /// Whether it knows the time from here on.
    pub fn set_fix(&self, has_fix: bool) {
        self.says.has_fix.store(has_fix, Ordering::Relaxed);
    }

    /// Ends the line.
    pub fn pull_out(&self) {
        *self.says.line.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What it sent last, if that was anything.
    #[must_use]
    pub fn last(&self) -> Option<Sent> {
        *self.says.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new line under the old name.
    ///
    /// # Errors
    ///
    /// When the system has no more pseudo-terminals, or there can be no link of this name.
    pub fn plug_in(&self, name: &Path) -> io::Result<()> {
        let line = PseudoTerminal::open()?;
        // Not there is as good.
        let _ = fs::remove_file(name);
        symlink(line.path(), name)?;
        *self.says.line.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        Ok(())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.says.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

impl Says {
    fn run(&self) {
        let mut last = None;
        while !self.stop.load(Ordering::Relaxed) {
            let ahead = Span::from_ns(self.ahead_ns.load(Ordering::Relaxed));
            let second = (Realtime.now() + ahead).to_timespec().0;
            if last.is_some_and(|last| last != second) {
                self.send(second);
            }
            last = Some(second);
            thread::sleep(STEP);
        }
    }

    fn send(&self, second: i64) {
        let text = sentences(second, self.has_fix.load(Ordering::Relaxed));
        let sent = Sent { second, at: Realtime.now() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(sent);
        if let Some(line) = &mut *self.line.lock().unwrap_or_else(PoisonError::into_inner) {
            // Who does not read has lost it, as on a real line.
            let _ = line.write_all(text.as_bytes());
        }
    }
}

/// What a receiver with a fix, or without, sends of a second since 1970.
#[must_use]
pub fn sentences(second: i64, has_fix: bool) -> String {
    let (status, fix) = if has_fix { ('A', 1) } else { ('V', 0) };
    let ([year, month, day], [hour, minute, second]) = civil(second);
    let time = format!("{hour:02}{minute:02}{second:02}.00");
    let year = year % 100;
    // Who wants more than the time wants a place as well.
    let date = format!("{day:02}{month:02}{year:02}");
    let rmc = format!("GNRMC,{time},{status},{PLACE},0.0,0.0,{date},,,A");
    let gga = format!("GNGGA,{time},{PLACE},{fix},08,1.0,400.0,M,0.0,M,,");
    [rmc, gga].map(|text| sentence(&text)).concat()
}

/// The sentence with this text.
fn sentence(text: &str) -> String {
    let checksum = text.bytes().fold(0, |sum, byte| sum ^ byte);
    format!("${text}*{checksum:02X}\r\n")
}

/// Year, month and day, and hour, minute and second.
fn civil(seconds: i64) -> ([i64; 3], [i64; 3]) {
    let (mut day, of_day) = (seconds.div_euclid(DAY_S), seconds.rem_euclid(DAY_S));
    let mut year = 1970;
    while day >= year_days(year) {
        day -= year_days(year);
        year += 1;
    }
    let february = year_days(year) - 337;
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for days in months {
        if day < days {
            break;
        }
        (day, month) = (day - days, month + 1);
    }
    ([year, month, day + 1], [of_day / 3_600, of_day / 60 % 60, of_day % 60])
}

const fn year_days(year: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if is_leap { 366 } else { 365 }
}

/// What the clock of a receiver shows that is so far ahead of the system clock and counts the weeks
/// of GPS wrong by as many times 1024.
#[must_use]
pub fn miscounted(ahead: Span, times: i64) -> Span {
    ahead + Span::from_ns(times * 1024 * 7 * DAY_S * NS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn civil_dates_are_right_around_the_ends_of_months_and_years() {
        let known = [
            (1_551_255_173, ([2019, 2, 27], [8, 12, 53])),
            (1_709_164_799, ([2024, 2, 28], [23, 59, 59])),
            (1_709_164_800, ([2024, 2, 29], [0, 0, 0])),
            (1_709_251_200, ([2024, 3, 1], [0, 0, 0])),
            (1_735_689_599, ([2024, 12, 31], [23, 59, 59])),
            (1_735_689_600, ([2025, 1, 1], [0, 0, 0])),
        ];
        for (seconds, expected) in known {
            assert_eq!(civil(seconds), expected, "{seconds}");
        }
    }
}
