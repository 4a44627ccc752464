//! GNSS receiver on a serial line. A sentence names a second that began some time before the
//! sentence arrives. This lag is unknown, so without a pulse the time is known only to about a
//! second, unless the user specifies the lag.
//!
//! A thread reads the line, to take the arrival time of the first character of each sentence.

mod fixes;
mod frame;
mod leap_seconds;
mod line_reader;
mod sentence;

use std::io;
use std::path::Path;

use horolog_discipline::{PlausibilityReason, PlausibilityRuleParameters};
use horolog_sys::explain::explain;
use horolog_sys::serial::SerialLine;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use crate::reference::{ReferenceClock, ReferenceClockSettings, SentenceLag};
use crate::shm::report_or_refusal;
use crate::{ClockReadings, PollableTimeSource, REPORT_AGE_MAX, SourceError, SourceEstimate};

pub(crate) use fixes::FixStates;
pub(crate) use line_reader::{
    CharacterTransport, CollectedReceiverInput, ReceiverLineReader, RejectedSentence,
};

pub use frame::{SentenceCounts, SentenceFramer};
pub use leap_seconds::{NextLeap, ReceiverLeapReport};
pub use sentence::{NoFix, ParsedSentence, SentenceError, SentenceField, Talker};

/// Validity of a time after its receiver reports that it has no fix: two receivers may share a
/// talker identifier, and sentences and polls have the same interval. Without such a report a time
/// is valid for [`REPORT_AGE_MAX`], since another receiver on the line may be slow or send no time.
const VOID_VALIDITY: Span = Span::from_ns(3 * NS_PER_S);
/// Time without received characters after which a line counts as idle.
const IDLE_TIMEOUT: Span = Span::from_ns(3 * NS_PER_S);

/// Time source that reads the sentences of a GNSS receiver.
pub(crate) struct GnssSource {
    name: String,
    reader: ReceiverLineReader,
    lag: SentenceLag,
    /// UTC of the last accepted sentence; further sentences for the same instant are ignored.
    last: Option<Timestamp<Utc>>,
    /// Instant of the poll with the last accepted sentence, and the talker of that sentence.
    last_taken: Option<(Timestamp<Monotonic>, Talker)>,
    /// True if the receiver of that talker has since reported that it has no fix.
    is_void: bool,
    fixes: FixStates,
    clock: ReferenceClock,
}

impl GnssSource {
    /// Opens the serial line.
    pub(crate) fn open(
        name: String,
        path: &Path,
        speed: u32,
        claim: ReferenceClockSettings,
    ) -> Result<Self, SourceError> {
        Ok(Self::new(name, open_serial(path, speed, false)?, claim))
    }

    fn new(name: String, reader: ReceiverLineReader, claim: ReferenceClockSettings) -> Self {
        let lag = SentenceLag::from_claim(&claim);
        Self {
            name,
            reader,
            lag,
            last: None,
            last_taken: None,
            is_void: false,
            fixes: FixStates::default(),
            clock: ReferenceClock::new(claim),
        }
    }

    /// Processes all input; returns true if a sentence was accepted, and the reason why the last
    /// sentence without a usable time has none.
    fn apply_input(
        &mut self,
        readings: &ClockReadings,
        input: &CollectedReceiverInput,
    ) -> (bool, Option<String>) {
        input.fixes.iter().for_each(|(note, at)| self.fixes.apply_report(*note, *at));
        let (mut is_taken, mut why) = (false, None);
        for (sentence, began) in &input.sentences {
            let has_fix = self.fixes.apply_sentence(sentence, *began);
            match sentence {
                Ok(sentence) if has_fix => {
                    if self.apply_sentence(readings, sentence, *began) {
                        is_taken = true;
                        self.last_taken = Some((readings.monotonic, sentence.talker));
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
            self.is_void |= self.last_taken.is_some_and(|(_, taken)| talker == Some(taken));
        }
        (is_taken, why)
    }

    /// Returns true if the last accepted time is still valid.
    fn is_valid(&self, now: Timestamp<Monotonic>) -> bool {
        let validity = if self.is_void { VOID_VALIDITY } else { REPORT_AGE_MAX };
        self.last_taken.is_some_and(|(taken, _)| now - taken < validity)
    }

    /// Processes a sentence with a time; returns true if it is accepted.
    fn apply_sentence(
        &mut self,
        readings: &ClockReadings,
        sentence: &ParsedSentence,
        began: Timestamp<Monotonic>,
    ) -> bool {
        // Accepts one sentence for each instant, and none for second 60, which other clocks do not
        // have.
        if self.last == Some(sentence.utc) || sentence.is_leap_second {
            return false;
        }
        self.last = Some(sentence.utc);
        let system = Timestamp::<Utc>::from_ns(began.as_ns()) + readings.realtime_minus_monotonic;
        self.clock.push_sample(readings, system, sentence.utc + self.lag.middle, self.lag.bound);
        true
    }
}

/// Opens the reader of a serial line. If `may_be_absent`, a failure to open the line is no error,
/// and opening is retried.
pub(crate) fn open_serial(
    path: &Path,
    speed: u32,
    may_be_absent: bool,
) -> Result<ReceiverLineReader, SourceError> {
    let owned_path = path.to_owned();
    let open = move || SerialLine::open(&owned_path, speed);
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
        Err(error) if may_be_absent => Ok(ReceiverLineReader::prepare(Err(error), open)),
        line => Ok(ReceiverLineReader::new(line.map_err(failed)?, open)),
    }
}

/// Returns the reason why the input up to `now` contains no time, for input without a sentence that
/// reports a reason itself.
pub(crate) fn no_time_reason(
    input: &CollectedReceiverInput,
    now: Timestamp<Monotonic>,
) -> SourceError {
    if let Some(reason) = &input.ended {
        return SourceError::NoData(reason.clone());
    }
    if input.last_received_at.is_none_or(|received_at| now - received_at > IDLE_TIMEOUT) {
        return SourceError::NoData("no data on its line".to_owned());
    }
    let counts = input.counts.since(&input.counts_at_sentence);
    SourceError::Unusable(no_time_message(&counts, &input.last_rejected()))
}

/// Describes why sentences contain no time; `last` is the text of the last malformed one.
fn no_time_message(counts: &SentenceCounts, last: &str) -> String {
    let SentenceCounts { good, checksum, no_checksum, .. } = *counts;
    let bad = counts.damaged();
    let line = "check its speed and line";
    let (count, what, alternative, remedy) = if no_checksum > bad / 2 {
        (no_checksum, "arrived without a checksum", "with one", "enable checksums on it")
    } else if checksum > bad / 2 {
        (checksum, "arrived with a wrong checksum", "with a right one", line)
    } else {
        (bad, if bad == 1 { "was damaged" } else { "were damaged" }, "whole", line)
    };
    let count = sentence_count(count);
    match (good, bad) {
        (0, 0) => "the data on its line are not sentences; check its speed".to_owned(),
        (0, _) => format!("{count} {what} and none {alternative}; {remedy}{last}"),
        (_, 0) => "none of its sentences contains the time; enable RMC or ZDA".to_owned(),
        _ => format!(
            "none of its intact sentences contains the time, and {count} {what}; enable RMC or \
             ZDA, and {remedy}{last}"
        ),
    }
}

/// Formats a number of sentences.
fn sentence_count(count: u64) -> String {
    if count == 1 { "1 sentence".to_owned() } else { format!("{count} sentences") }
}

impl PollableTimeSource for GnssSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        let input = self.reader.take_input().map_err(|error| {
            SourceError::NoData(format!("cannot start the thread that reads it: {error}"))
        })?;
        let (is_taken, why) = self.apply_input(readings, &input);
        if is_taken {
            return report_or_refusal(&mut self.clock, readings);
        }
        match why {
            _ if self.is_valid(readings.monotonic) && input.ended.is_none() => Ok(None),
            Some(why) => Err(SourceError::Unusable(why)),
            None if input.sentences.is_empty() => Err(no_time_reason(&input, readings.monotonic)),
            None => Ok(None),
        }
    }

    fn judge_by(&mut self, basis: PlausibilityRuleParameters) {
        self.clock.judge_by(basis);
    }

    fn vouch(&mut self, ahead: Span, support: PlausibilityReason) {
        self.clock.vouch(ahead, support);
    }
}

#[cfg(test)]
mod tests;
