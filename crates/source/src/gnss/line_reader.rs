//! Thread that reads a receiver's line and collects its input. It only frames and parses sentences.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_sys::serial::SerialLine;
use horolog_time::{Clock, Monotonic, Timestamp};

use super::ReceiverLeapReport;
use super::fixes::TalkerFixStatus;
use super::frame::{SentenceCounts, SentenceFramer};
use super::sentence::{ParsedSentence, SentenceError};

/// Longest wait for characters before the thread checks whether it should stop.
const READ_TIMEOUT: Duration = Duration::from_millis(100);
/// Number of [`READ_TIMEOUT`] periods between two attempts to reopen a closed line.
const REOPEN_WAITS: u32 = 20;
/// Most stored sentences: more than arrive in a second.
const SENTENCES_MAX: usize = 64;

/// Transport that carries characters.
pub(crate) trait CharacterTransport: Send {
    /// Waits for characters and reads the available ones; `None` if none arrived.
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>>;

    /// Describes why the line was closed, for messages.
    fn end_message(error: &io::Error) -> String {
        format!("its line was closed: {error}")
    }

    /// Returns true if JSON reports of gpsd arrive between the sentences.
    fn has_reports(&self) -> bool {
        false
    }
}

impl CharacterTransport for SerialLine {
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        Self::read(self, buffer, wait)
    }
}

/// Sentence with a time, or the reason why it has none, and the arrival of its first character.
pub(crate) type TimestampedSentence = (Result<ParsedSentence, SentenceError>, Timestamp<Monotonic>);

/// Malformed sentence, with the reject reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RejectedSentence {
    /// Reject reason.
    reason: &'static str,
    /// Text between `$` and `*`: printable ASCII of limited length.
    text: String,
}

impl std::fmt::Display for RejectedSentence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ${}", self.reason, self.text)
    }
}

/// Input of the receiver's line since the last [`ReceiverLineReader::take_input`].
#[derive(Clone, Default, Debug)]
pub(crate) struct CollectedReceiverInput {
    /// Sentences of kinds that contain a time.
    pub(crate) sentences: VecDeque<TimestampedSentence>,
    /// Fix reports in sentences without a date, with the arrival of their first character.
    pub(crate) fixes: VecDeque<(TalkerFixStatus, Timestamp<Monotonic>)>,
    /// Reports of leap seconds.
    pub(crate) leaps: VecDeque<ReceiverLeapReport>,
    /// Last rejected sentence, with the reason; `None` before the first.
    pub(crate) rejected: Option<RejectedSentence>,
    /// Counts since the line was opened: now, and at the last of `sentences`.
    pub(crate) counts: SentenceCounts,
    pub(crate) counts_at_sentence: SentenceCounts,
    /// Arrival of the last characters; `None` before the first.
    pub(crate) last_received_at: Option<Timestamp<Monotonic>>,
    /// Reason why the line is closed; `None` while it is open.
    pub(crate) ended: Option<String>,
}

/// Reader thread of a line: started by the first [`ReceiverLineReader::take_input`], stopped on
/// drop.
pub(crate) struct ReceiverLineReader {
    input: Arc<Mutex<CollectedReceiverInput>>,
    stop: Arc<AtomicBool>,
    begin: Option<Box<dyn FnOnce() + Send>>,
    thread: Option<JoinHandle<()>>,
}

impl ReceiverLineReader {
    /// Prepares to read `line`; after an error, `open` is retried until it succeeds.
    pub(crate) fn new<L: CharacterTransport + 'static>(
        line: L,
        open: impl FnMut() -> io::Result<L> + Send + 'static,
    ) -> Self {
        Self::prepare(Ok(line), open)
    }

    /// Prepares to read a line that may not be open yet: after an error, `open` is retried until it
    /// succeeds.
    pub(crate) fn prepare<L: CharacterTransport + 'static>(
        line: io::Result<L>,
        open: impl FnMut() -> io::Result<L> + Send + 'static,
    ) -> Self {
        let (input, stop) =
            (Arc::<Mutex<CollectedReceiverInput>>::default(), Arc::<AtomicBool>::default());
        let reader_thread =
            ReceiverLineReaderThread { input: Arc::clone(&input), stop: Arc::clone(&stop) };
        Self {
            input,
            stop,
            begin: Some(Box::new(move || reader_thread.run(line, open))),
            thread: None,
        }
    }

    /// Returns the input since the last call. The first call starts a thread with the privileges of
    /// the caller.
    pub(crate) fn take_input(&mut self) -> io::Result<CollectedReceiverInput> {
        if let Some(begin) = self.begin.take() {
            self.thread = Some(thread::Builder::new().name("gnss".into()).spawn(begin)?);
        }
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let remaining = CollectedReceiverInput {
            sentences: VecDeque::new(),
            fixes: VecDeque::new(),
            leaps: VecDeque::new(),
            ..input.clone()
        };
        Ok(std::mem::replace(&mut *input, remaining))
    }
}

impl Drop for ReceiverLineReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic of the thread has already been reported on stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// State owned by the thread.
struct ReceiverLineReaderThread {
    input: Arc<Mutex<CollectedReceiverInput>>,
    stop: Arc<AtomicBool>,
}

impl ReceiverLineReaderThread {
    fn run<L: CharacterTransport>(
        &self,
        line: io::Result<L>,
        mut open: impl FnMut() -> io::Result<L>,
    ) {
        let mut line = line;
        loop {
            let Err(error) = line.and_then(|line| self.read_line(line)) else { return };
            self.update_input(|input| input.ended = Some(L::end_message(&error)));
            let Some(reopened) = self.reopen(&mut open) else { return };
            line = Ok(reopened);
            self.update_input(|input| {
                (input.ended, input.counts_at_sentence) = (None, SentenceCounts::default());
            });
        }
    }

    /// Tries to reopen the line after every [`REOPEN_WAITS`] periods of [`READ_TIMEOUT`], until it
    /// succeeds; `None` if the thread should stop.
    fn reopen<L: CharacterTransport>(&self, open: &mut impl FnMut() -> io::Result<L>) -> Option<L> {
        loop {
            for _ in 0..REOPEN_WAITS {
                if self.stop.load(Ordering::Relaxed) {
                    return None;
                }
                thread::sleep(READ_TIMEOUT);
            }
            match open() {
                Ok(line) => return Some(line),
                Err(error) => self.update_input(|input| input.ended = Some(L::end_message(&error))),
            }
        }
    }

    /// Reads until the thread should stop; an error of the line ends it.
    fn read_line<L: CharacterTransport>(&self, mut line: L) -> io::Result<()> {
        let mut framer = SentenceFramer::default();
        let mut reports = line.has_reports().then(GpsdReportFramer::default);
        let mut buffer = [0; 256];
        while !self.stop.load(Ordering::Relaxed) {
            let Some(length) = line.read(&mut buffer, READ_TIMEOUT)? else { continue };
            let now = ClockMonotonic.now();
            self.update_input(|input| {
                input.last_received_at = Some(now);
                for &byte in &buffer[..length] {
                    input.push_byte(&mut framer, byte, now);
                    if let Some(report) = reports.as_mut().and_then(|lines| lines.push_byte(byte)) {
                        input
                            .leaps
                            .extend(ReceiverLeapReport::from_gpsd(&report, ClockRealtime.now()));
                    }
                }
                truncate_oldest(&mut input.leaps);
                truncate_oldest(&mut input.fixes);
                truncate_oldest(&mut input.sentences);
            });
        }
        Ok(())
    }

    fn update_input(&self, change: impl FnOnce(&mut CollectedReceiverInput)) {
        change(&mut self.input.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl CollectedReceiverInput {
    /// Describes the last malformed sentence, as the end of a message.
    pub(super) fn last_rejected(&self) -> String {
        let last = |rejected: &RejectedSentence| format!("; the last was ${}", rejected.text);
        self.rejected.as_ref().map(last).unwrap_or_default()
    }

    /// Processes a character that arrived at `now`.
    fn push_byte(&mut self, framer: &mut SentenceFramer, byte: u8, now: Timestamp<Monotonic>) {
        let parsed = framer.push_byte(byte, now).map(|(text, began)| {
            self.leaps.extend(ReceiverLeapReport::from_sentence(text));
            self.fixes.extend(TalkerFixStatus::parse(text).map(|note| (note, began)));
            (ParsedSentence::parse(text), began)
        });
        let previous = std::mem::replace(&mut self.counts, framer.counts());
        let damaged = self.counts.since(&previous);
        let reason = match &parsed {
            Some((Some(Err(error)), _)) => error.rejection(),
            _ if damaged.checksum > 0 => Some("a wrong checksum"),
            _ if damaged.no_checksum > 0 => Some("no checksum"),
            _ => None,
        };
        if let Some(why) = reason {
            self.rejected = Some(RejectedSentence { reason: why, text: framer.text().to_owned() });
        }
        if let Some((Some(sentence), began)) = parsed {
            self.sentences.push_back((sentence, began));
            self.counts_at_sentence = self.counts;
        }
    }
}

fn truncate_oldest<T>(queue: &mut VecDeque<T>) {
    queue.drain(..queue.len().saturating_sub(SENTENCES_MAX));
}

/// Longest report in bytes (`gpsd_json(5)`).
const LINE_MAX: usize = 10_240;

/// Assembler of report lines, byte by byte.
#[derive(Clone, Default, Debug)]
pub(super) struct GpsdReportFramer {
    /// Received part of a report; empty outside of one.
    line: Vec<u8>,
    /// True from the limit of an overlong report to its newline.
    is_skipping: bool,
}

impl GpsdReportFramer {
    /// Processes a byte; returns the report that it completes, without the newline, otherwise
    /// `None`. An overlong report is skipped.
    pub(super) fn push_byte(&mut self, byte: u8) -> Option<Vec<u8>> {
        if self.is_skipping {
            self.is_skipping = byte != b'\n';
            return None;
        }
        if self.line.is_empty() && byte != b'{' {
            return None;
        }
        if byte == b'\n' {
            return Some(std::mem::take(&mut self.line));
        }
        self.line.push(byte);
        if self.line.len() > LINE_MAX {
            self.line = Vec::new();
            self.is_skipping = true;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(bytes: &[u8]) -> Vec<String> {
        let mut lines = GpsdReportFramer::default();
        let taken = bytes.iter().filter_map(|byte| lines.push_byte(*byte));
        taken.map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
    }

    #[test]
    fn reports_are_found_between_sentences() {
        let bytes = b"$GPZDA,1*00\r\n{\"class\":\"TPV\"}\r\n$GPRMC,2*00\r\n{\"class\":\"SKY\"}\n{";
        assert_eq!(reports(bytes), ["{\"class\":\"TPV\"}\r", "{\"class\":\"SKY\"}"]);
    }

    #[test]
    fn a_line_that_never_ends_is_discarded() {
        let mut bytes = b"{".to_vec();
        bytes.extend(std::iter::repeat_n(b'x', LINE_MAX));
        bytes.extend(b",{\"rest\":1}\n{\"a\":1}\n");
        assert_eq!(reports(&bytes), ["{\"a\":1}"]);
    }
}
