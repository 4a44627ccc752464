//! A simulated GNSS receiver at the far end of a pseudo-terminal. It sends the sentences of each
//! second when that second begins by its own clock, which is the system clock plus a set offset.

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

/// Interval at which the start of a new second is checked.
const STEP: Duration = Duration::from_millis(1);
const DAY_S: i64 = 86_400;
const POSITION: &str = "3413.1000,N,10855.2000,E";

/// Sentences that were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentSentences {
    /// The second in the sentences, in Unix time.
    pub second: i64,
    /// Send time, by the system clock.
    pub at: Timestamp<Utc>,
}

/// Function that returns the sentences of a second of a receiver with or without a fix.
pub type Form = fn(i64, bool) -> String;

/// State of the receiver, shared with its thread.
#[derive(Debug)]
struct ReceiverState {
    ahead_ns: AtomicI64,
    has_fix: AtomicBool,
    form: Form,
    stop: AtomicBool,
    line: Mutex<Option<PseudoTerminal>>,
    last: Mutex<Option<SentSentences>>,
}

/// A receiver; its line ends with it.
#[derive(Debug)]
pub struct LabReceiver {
    state: Arc<ReceiverState>,
    thread: Option<JoinHandle<()>>,
}

impl LabReceiver {
    /// Starts to send, with a clock that is `ahead` of the system clock. `name` becomes a link to
    /// the line, as device managers create one.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::reconnect`].
    pub fn start(name: &Path, ahead: Span) -> io::Result<Self> {
        Self::start_as(name, ahead, sentences)
    }

    /// Starts to send sentences of another form.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::reconnect`].
    pub fn start_as(name: &Path, ahead: Span, form: Form) -> io::Result<Self> {
        let state = Arc::new(ReceiverState {
            ahead_ns: AtomicI64::new(ahead.as_ns()),
            has_fix: AtomicBool::new(true),
            form,
            stop: AtomicBool::new(false),
            line: Mutex::new(None),
            last: Mutex::new(None),
        });
        let mut receiver = Self { state: Arc::clone(&state), thread: None };
        receiver.reconnect(name)?;
        receiver.thread = Some(thread::spawn(move || state.run()));
        Ok(receiver)
    }

    /// Sets the offset of its clock from the system clock, positive if ahead.
    pub fn set_offset(&self, ahead: Span) {
        self.state.ahead_ns.store(ahead.as_ns(), Ordering::Relaxed);
    }

    /// Sets whether it has a fix.
    pub fn set_fix(&self, has_fix: bool) {
        self.state.has_fix.store(has_fix, Ordering::Relaxed);
    }

    /// Ends the line.
    pub fn disconnect(&self) {
        *self.state.line.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The sentences sent last; `None` before the first.
    #[must_use]
    pub fn last(&self) -> Option<SentSentences> {
        *self.state.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a new line under the old name.
    ///
    /// # Errors
    ///
    /// If the system has no more pseudo-terminals, or a link of this name cannot be created.
    pub fn reconnect(&self, name: &Path) -> io::Result<()> {
        let line = PseudoTerminal::open()?;
        // A missing link is fine.
        let _ = fs::remove_file(name);
        symlink(line.path(), name)?;
        *self.state.line.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        Ok(())
    }
}

impl Drop for LabReceiver {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

impl ReceiverState {
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
        let text = (self.form)(second, self.has_fix.load(Ordering::Relaxed));
        let sent = SentSentences { second, at: Realtime.now() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(sent);
        if let Some(line) = &mut *self.line.lock().unwrap_or_else(PoisonError::into_inner) {
            // Without a reader the text is lost, as on a real line.
            let _ = line.write_all(text.as_bytes());
        }
    }
}

/// The sentences that a receiver with or without a fix sends in a second since 1970.
#[must_use]
pub fn sentences(second: i64, has_fix: bool) -> String {
    let (status, fix) = if has_fix { ('A', 1) } else { ('V', 0) };
    let (time, date) = (time_of_day(second), date(second));
    // A consumer of more than the time wants a position as well.
    let rmc = format!("GNRMC,{time}.00,{status},{POSITION},0.0,0.0,{date},,,A");
    let gga = format!("GNGGA,{time}.00,{POSITION},{fix},08,1.0,400.0,M,0.0,M,,");
    [rmc, gga].map(|text| sentence(&text)).concat()
}

/// The time of day of a second, in the form of sentences: `hhmmss`.
#[must_use]
pub fn time_of_day(second: i64) -> String {
    let (_, [hour, minute, second]) = civil(second);
    format!("{hour:02}{minute:02}{second:02}")
}

/// The date of a second: `ddmmyy`.
#[must_use]
pub fn date(second: i64) -> String {
    let ([year, month, day], _) = civil(second);
    format!("{day:02}{month:02}{:02}", year % 100)
}

/// The sentence with this text.
#[must_use]
pub fn sentence(text: &str) -> String {
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

/// Clock offset of a receiver that is `ahead` of the system clock and whose GPS week number is
/// wrong by `times` times 1024.
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
