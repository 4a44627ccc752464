//! Simulated GNSS receiver on a pseudo-terminal. It sends the NMEA sentences of each second when
//! that second begins by its own clock, which is the system clock plus a configured offset.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::clock::ClockRealtime;
use horolog_sys::pseudo_terminal::PseudoTerminal;
use horolog_time::{Clock, NS_PER_S, Span, Timestamp, Utc};

/// Interval at which the thread checks for a new second.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const DAY_S: i64 = 86_400;
const POSITION: &str = "3413.1000,N,10855.2000,E";

/// Send time of the sentences of one second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentenceSendTime {
    /// Second in the sentences, as Unix time.
    pub second: i64,
    /// Send time by the system clock.
    pub at: Timestamp<Utc>,
}

/// Function that formats the sentences of a second (Unix time) for a receiver with or without a
/// fix.
pub type SentenceFormatter = fn(i64, bool) -> String;

/// State of a receiver, shared with its thread.
#[derive(Debug)]
struct GnssReceiverState {
    ahead_ns: AtomicI64,
    has_fix: AtomicBool,
    format_sentences: SentenceFormatter,
    stop: AtomicBool,
    line: Mutex<Option<PseudoTerminal>>,
    last: Mutex<Option<SentenceSendTime>>,
}

/// Simulated GNSS receiver; dropping it closes its line.
#[derive(Debug)]
pub struct SimulatedGnssReceiver {
    state: Arc<GnssReceiverState>,
    thread: Option<JoinHandle<()>>,
}

impl SimulatedGnssReceiver {
    /// Starts a receiver with a clock that is `ahead` of the system clock. `name` becomes a
    /// symbolic link to its terminal, as a device manager creates one.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::reconnect`].
    pub fn start(name: &Path, ahead: Span) -> io::Result<Self> {
        Self::start_with_format(name, ahead, time_sentences)
    }

    /// Starts a receiver with another format of sentences.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::reconnect`].
    pub fn start_with_format(
        name: &Path,
        ahead: Span,
        format_sentences: SentenceFormatter,
    ) -> io::Result<Self> {
        let state = Arc::new(GnssReceiverState {
            ahead_ns: AtomicI64::new(ahead.as_ns()),
            has_fix: AtomicBool::new(true),
            format_sentences,
            stop: AtomicBool::new(false),
            line: Mutex::new(None),
            last: Mutex::new(None),
        });
        let mut receiver = Self { state: Arc::clone(&state), thread: None };
        receiver.reconnect(name)?;
        receiver.thread = Some(thread::spawn(move || state.run()));
        Ok(receiver)
    }

    /// Sets the offset of the receiver's clock from the system clock, positive if it is ahead.
    pub fn set_offset(&self, ahead: Span) {
        self.state.ahead_ns.store(ahead.as_ns(), Ordering::Relaxed);
    }

    /// Sets whether the receiver has a fix.
    pub fn set_fix(&self, has_fix: bool) {
        self.state.has_fix.store(has_fix, Ordering::Relaxed);
    }

    /// Closes the line, as an unplugged receiver does.
    pub fn disconnect(&self) {
        *self.state.line.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the latest second whose sentences were sent, or lost for lack of a line, and the
    /// send time; `None` before the first.
    #[must_use]
    pub fn last_sent(&self) -> Option<SentenceSendTime> {
        *self.state.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a new line and links it under this name, in place of an existing file.
    ///
    /// # Errors
    ///
    /// The system has no more pseudo-terminals, or the link cannot be created.
    pub fn reconnect(&self, name: &Path) -> io::Result<()> {
        let line = PseudoTerminal::open()?;
        // The link may be missing.
        let _ = fs::remove_file(name);
        symlink(line.path(), name)?;
        *self.state.line.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        Ok(())
    }
}

impl Drop for SimulatedGnssReceiver {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has already been printed.
            let _ = thread.join();
        }
    }
}

impl GnssReceiverState {
    fn run(&self) {
        let mut last = None;
        while !self.stop.load(Ordering::Relaxed) {
            let ahead = Span::from_ns(self.ahead_ns.load(Ordering::Relaxed));
            let second = (ClockRealtime.now() + ahead).to_timespec().0;
            if last.is_some_and(|last| last != second) {
                self.send(second);
            }
            last = Some(second);
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn send(&self, second: i64) {
        let text = (self.format_sentences)(second, self.has_fix.load(Ordering::Relaxed));
        let sent = SentenceSendTime { second, at: ClockRealtime.now() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(sent);
        if let Some(line) = &mut *self.line.lock().unwrap_or_else(PoisonError::into_inner) {
            // Without a reader the text is lost, as on a real line.
            let _ = line.write_all(text.as_bytes());
        }
    }
}

/// Returns the RMC and GGA sentences of a second (Unix time), for a receiver with or without a fix.
#[must_use]
pub fn time_sentences(second: i64, has_fix: bool) -> String {
    let (status, fix) = if has_fix { ('A', 1) } else { ('V', 0) };
    let (time, date) = (time_of_day(second), date(second));
    // Consumers other than time servers require a position as well.
    let rmc = format!("GNRMC,{time}.00,{status},{POSITION},0.0,0.0,{date},,,A");
    let gga = format!("GNGGA,{time}.00,{POSITION},{fix},08,1.0,400.0,M,0.0,M,,");
    [rmc, gga].map(|text| format_sentence(&text)).concat()
}

/// Returns the UTC time of day of a second (Unix time), as in sentences: `hhmmss`.
#[must_use]
pub fn time_of_day(second: i64) -> String {
    let (_, [hour, minute, second]) = civil_time(second);
    format!("{hour:02}{minute:02}{second:02}")
}

/// Returns the UTC date of a second (Unix time), as in sentences: `ddmmyy`.
#[must_use]
pub fn date(second: i64) -> String {
    let ([year, month, day], _) = civil_time(second);
    format!("{day:02}{month:02}{:02}", year % 100)
}

/// Returns the sentence with this text: `$`, the text, `*` and its checksum.
#[must_use]
pub fn format_sentence(text: &str) -> String {
    let checksum = text.bytes().fold(0, |sum, byte| sum ^ byte);
    format!("${text}*{checksum:02X}\r\n")
}

/// Converts Unix time to year, month and day, and hour, minute and second.
fn civil_time(seconds: i64) -> ([i64; 3], [i64; 3]) {
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

/// Returns the clock offset of a receiver that is `ahead` of the system clock and whose GPS time is
/// wrong by `times` rollovers of the week number, 1024 weeks each.
#[must_use]
pub fn week_rollover_offset(ahead: Span, times: i64) -> Span {
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
            assert_eq!(civil_time(seconds), expected, "{seconds}");
        }
    }
}
