//! GNSS receiver on a serial line, whose sentences name the second that began some time before they
//! arrive. The lag is unknown, so without a pulse the time is known to a second, or better if the
//! user specifies the lag of the sentences.
//!
//! A thread reads the line, because the arrival of the first character is what counts.

mod fix_note;
mod fixes;
mod frame;
mod leap_seconds;
mod line_reader;
mod report_lines;
mod sentence;

use std::io;
use std::path::Path;

use horolog_discipline::{Plausibility, Support};
use horolog_sys::explain::explain;
use horolog_sys::serial::SerialLine;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use crate::reference::{ReferenceClaim, ReferenceClock, SentenceLag};
use crate::shm::answer;
use crate::{ClockReadings, STALE, SourceError, SourceEstimate, TimeSource};

pub(crate) use fixes::Fixes;
pub(crate) use line_reader::{CharacterTransport, LineInput, LineReader, RejectedSentence};

pub use frame::{FrameCounts, Framer};
pub use leap_seconds::{LeapReport, NextLeap};
pub use sentence::{NoFix, ParsedSentence, SentenceError, SentenceField, Talker};

/// Validity of a named time when its own receiver reports that it has no fix: sentences and polls
/// have the same interval, and two receivers may have one talker. Otherwise it is valid as long as
/// a report: the other receivers on a line may name nothing, and one may be slow.
const HOLDS: Span = Span::from_ns(3 * NS_PER_S);
/// Time without characters after which a line counts as idle.
const QUIET: Span = Span::from_ns(3 * NS_PER_S);

/// Time source by the sentences of a receiver.
pub(crate) struct Gnss {
    name: String,
    reader: LineReader,
    lag: SentenceLag,
    /// Instant named by the last sentence that was taken: others name it as well.
    last: Option<Timestamp<Utc>>,
    /// Poll in which a sentence was last taken, and its talker.
    taken: Option<(Timestamp<Monotonic>, Talker)>,
    /// True if that talker has reported since that it has no fix.
    is_void: bool,
    fixes: Fixes,
    clock: ReferenceClock,
}

impl Gnss {
    /// Opens the line.
    pub(crate) fn open(
        name: String,
        path: &Path,
        speed: u32,
        claim: ReferenceClaim,
    ) -> Result<Self, SourceError> {
        Ok(Self::new(name, serial(path, speed, false)?, claim))
    }

    fn new(name: String, reader: LineReader, claim: ReferenceClaim) -> Self {
        let lag = SentenceLag::of(&claim);
        Self {
            name,
            reader,
            lag,
            last: None,
            taken: None,
            is_void: false,
            fixes: Fixes::default(),
            clock: ReferenceClock::new(claim),
        }
    }

    /// Takes all input; returns true if a sentence named the time, and the reason for which the
    /// last other one did not.
    fn take_all(&mut self, readings: &ClockReadings, input: &LineInput) -> (bool, Option<String>) {
        input.fixes.iter().for_each(|(note, at)| self.fixes.report(*note, *at));
        let (mut is_taken, mut why) = (false, None);
        for (sentence, began) in &input.sentences {
            let has_fix = self.fixes.take(sentence, *began);
            match sentence {
                Ok(sentence) if has_fix => {
                    if self.take(readings, sentence, *began) {
                        is_taken = true;
                        self.taken = Some((readings.monotonic, sentence.talker));
                        self.is_void = false;
                    }
                    continue;
                }
                Ok(_) => why = Some(NoFix::Void.to_string()),
                Err(error) if error.rejection().is_some() => {
                    why = Some(format!("{error}{}", input.last_rejected()));
                }
                Err(error) => why = Some(error.to_string()),
            }
            let talker = match sentence {
                Ok(sentence) => Some(sentence.talker),
                Err(SentenceError::NoFix(talker, _)) => Some(*talker),
                Err(_) => None,
            };
            self.is_void |= self.taken.is_some_and(|(_, taken)| talker == Some(taken));
        }
        (is_taken, why)
    }

    /// Returns true if the last named time still holds.
    fn holds(&self, now: Timestamp<Monotonic>) -> bool {
        let holds = if self.is_void { HOLDS } else { STALE };
        self.taken.is_some_and(|(taken, _)| now - taken < holds)
    }

    /// Takes a sentence; returns true if it named the time.
    fn take(
        &mut self,
        readings: &ClockReadings,
        sentence: &ParsedSentence,
        began: Timestamp<Monotonic>,
    ) -> bool {
        // One sentence for each instant, and none of a second that other clocks do not have.
        if self.last == Some(sentence.utc) || sentence.is_leap_second {
            return false;
        }
        self.last = Some(sentence.utc);
        let system = Timestamp::<Utc>::from_ns(began.as_ns()) + readings.realtime_minus_monotonic;
        self.clock.take(readings, system, sentence.utc + self.lag.middle, self.lag.bound);
        true
    }
}

/// Returns the reader of a serial line, which must be present unless it may come later.
pub(crate) fn serial(
    path: &Path,
    speed: u32,
    may_come_later: bool,
) -> Result<LineReader, SourceError> {
    let own = path.to_owned();
    let open = move || SerialLine::open(&own, speed);
    let failed = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "no such serial line",
            io::ErrorKind::PermissionDenied => {
                "permission denied for this user (its group is usually 'dialout')"
            }
            _ => "not a serial line of this speed",
        };
        SourceError::Unusable(format!("{}: {hint}: {}", path.display(), explain(&error)))
    };
    match open() {
        Err(error) if may_come_later => Ok(LineReader::of(Err(error), open)),
        line => Ok(LineReader::new(line.map_err(failed)?, open)),
    }
}

/// Returns the reason for which the input by `now` does not name the time, if no sentence reports
/// one itself.
pub(crate) fn no_time_reason(input: &LineInput, now: Timestamp<Monotonic>) -> SourceError {
    if let Some(reason) = &input.ended {
        return SourceError::NoData(reason.clone());
    }
    if input.last_received_at.is_none_or(|received_at| now - received_at > QUIET) {
        return SourceError::NoData("no data on its line".to_owned());
    }
    let counts = input.counts.since(&input.counts_then);
    SourceError::Unusable(no_time(&counts, &input.last_rejected()))
}

/// Returns the reject reason of sentences none of which names the time; `last` names the last
/// broken one.
fn no_time(counts: &FrameCounts, last: &str) -> String {
    let FrameCounts { good, checksum, no_checksum, .. } = *counts;
    let bad = counts.damaged();
    let line = "check its speed and line";
    let (count, what, other, cure) = if no_checksum > bad / 2 {
        (no_checksum, "arrived without a checksum", "with one", "enable checksums on it")
    } else if checksum > bad / 2 {
        (checksum, "arrived with a wrong checksum", "with a right one", line)
    } else {
        (bad, if bad == 1 { "was damaged" } else { "were damaged" }, "whole", line)
    };
    let count = sentences(count);
    match (good, bad) {
        (0, 0) => "the data on its line are not sentences; check its speed".to_owned(),
        (0, _) => format!("{count} {what} and none {other}; {cure}{last}"),
        (_, 0) => "none of its sentences contains the time; enable RMC or ZDA".to_owned(),
        _ => format!(
            "none of its intact sentences contains the time, and {count} {what}; enable RMC or \
             ZDA, and {cure}{last}"
        ),
    }
}

/// Returns a number of sentences in words.
fn sentences(count: u64) -> String {
    if count == 1 { "1 sentence".to_owned() } else { format!("{count} sentences") }
}

impl TimeSource for Gnss {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        let input = self.reader.take().map_err(|error| {
            SourceError::NoData(format!("cannot start the thread that reads it: {error}"))
        })?;
        let (is_taken, why) = self.take_all(readings, &input);
        if is_taken {
            return answer(&mut self.clock, readings);
        }
        match why {
            _ if self.holds(readings.monotonic) && input.ended.is_none() => Ok(None),
            Some(why) => Err(SourceError::Unusable(why)),
            None if input.sentences.is_empty() => Err(no_time_reason(&input, readings.monotonic)),
            None => Ok(None),
        }
    }

    fn judge_by(&mut self, basis: Plausibility) {
        self.clock.judge_by(basis);
    }

    fn vouch(&mut self, ahead: Span, support: Support) {
        self.clock.vouch(ahead, support);
    }
}

#[cfg(test)]
mod tests;
