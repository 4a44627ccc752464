//! A GNSS receiver on a serial line, whose sentences name the second that began some time before
//! they come. How long before is the receiver's secret, so without a pulse the time is known to
//! about half a second, or better where the user says how late the sentences are.
//!
//! A thread reads the line, because what counts is when a sentence began to come.

mod frame;
mod leap_seconds;
mod reader;
mod report_lines;
mod sentence;

use std::io;
use std::path::Path;

use horolog_sys::serial::SerialLine;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use crate::reference::{Claim, ReferenceClock};
use crate::shm::answer;
use crate::{Fault, Look, Report, Source};

pub(crate) use reader::{Heard, Line, Reader};

pub use frame::{FrameCounts, Framer};
pub use leap_seconds::{LeapReport, NextLeap};
pub use sentence::{Sentence, SentenceError};

/// How far the beginning of a sentence may be from the instant that it names, unless the user knows
/// better: receivers send it within the second.
const UNCERTAINTY: Span = Span::from_ms(500);
/// GPS counts weeks modulo 1024, and a receiver that has lost count is wrong by as many.
const ROLLOVER: Span = Span::from_ns(1024 * 7 * 86_400 * NS_PER_S);
/// How far from that the difference may be: system clocks are wrong by less.
const ROLLOVER_DOUBT: Span = Span::from_ns(86_400 * NS_PER_S);

/// The source.
pub(crate) struct Gnss {
    name: String,
    reader: Reader,
    uncertainty: Span,
    /// The instant that the last sentence named which was taken: others name it as well.
    last: Option<Timestamp<Utc>>,
    clock: ReferenceClock,
}

impl Gnss {
    /// Opens the line.
    pub(crate) fn open(name: String, path: &Path, speed: u32, claim: Claim) -> Result<Self, Fault> {
        Ok(Self::new(name, serial(path, speed)?, claim))
    }

    fn new(name: String, reader: Reader, claim: Claim) -> Self {
        // Whoever knows how far it may be wrong has said so.
        let uncertainty = if claim.uncertainty > Span::ZERO { Span::ZERO } else { UNCERTAINTY };
        Self { name, reader, uncertainty, last: None, clock: ReferenceClock::new(claim) }
    }

    /// Takes a sentence; says whether it told the time.
    fn take(&mut self, look: &Look, sentence: &Sentence, began: Timestamp<Monotonic>) -> bool {
        // One sentence for each instant, and none of a second that other clocks do not have.
        if self.last == Some(sentence.utc) || sentence.is_leap_second {
            return false;
        }
        self.last = Some(sentence.utc);
        let system = Timestamp::<Utc>::from_ns(began.as_ns()) + look.realtime_minus_monotonic;
        self.clock.take(look, system, sentence.utc, self.uncertainty);
        true
    }
}

/// What reads a serial line.
pub(crate) fn serial(path: &Path, speed: u32) -> Result<Reader, Fault> {
    let own = path.to_owned();
    let open = move || SerialLine::open(&own, speed);
    let failed = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "there is no such line",
            io::ErrorKind::PermissionDenied => {
                "it may not be read by this user (its group is mostly 'dialout')"
            }
            _ => "it is no serial line of this speed",
        };
        Fault::Unusable(format!("{}: {hint}: {error}", path.display()))
    };
    Ok(Reader::new(open().map_err(failed)?, open))
}

/// How many times the weeks of GPS were miscounted, where that is what is wrong.
pub(crate) fn rollovers(difference: Span) -> Option<i64> {
    let times = (difference.as_seconds() / ROLLOVER.as_seconds()).round() as i64;
    let rest = difference - Span::from_ns(ROLLOVER.as_ns().checked_mul(times)?);
    (times != 0 && rest.as_ns().abs() < ROLLOVER_DOUBT.as_ns()).then_some(times)
}

/// Why nothing that came tells the time.
pub(crate) fn silence(heard: &Heard) -> Fault {
    if let Some(reason) = &heard.ended {
        return Fault::Silent(reason.clone());
    }
    if let Some(error) = heard.wrong {
        return Fault::Unusable(error.to_string());
    }
    let bad = heard.counts.damaged();
    Fault::Silent(match (heard.characters, heard.counts.good, bad) {
        (0, ..) => "nothing comes over its line".to_owned(),
        (_, 0, 0) => "what comes over its line is no sentence; is its speed right?".to_owned(),
        (_, 0, _) => format!("{bad} sentences were broken and none whole; is its speed right?"),
        _ => "none of its sentences tells the time; have it send RMC or ZDA".to_owned(),
    })
}

impl Source for Gnss {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, look: &Look) -> Result<Option<Report>, Fault> {
        let heard = self.reader.take().map_err(|error| {
            Fault::Silent(format!("the thread that reads it cannot be started: {error}"))
        })?;
        let is_void = heard.sentences.iter().any(|(sentence, _)| sentence.is_valid == Some(false));
        if is_void {
            return Err(Fault::Unusable("the receiver has no fix".into()));
        }
        let mut some = false;
        for (sentence, began) in &heard.sentences {
            let difference = sentence.utc - look.realtime();
            if let Some(times) = rollovers(difference) {
                return Err(Fault::Unusable(format!(
                    "it is {times} times 1024 weeks off, as a receiver that has miscounted the \
                     weeks of GPS"
                )));
            }
            some |= self.take(look, sentence, *began);
        }
        match (some, heard.sentences.is_empty()) {
            (true, _) => answer(&mut self.clock, look),
            (false, false) => Ok(None),
            (false, true) => Err(silence(&heard)),
        }
    }
}

#[cfg(test)]
mod tests;
