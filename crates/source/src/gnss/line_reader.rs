//! Thread that reads a receiver's line, and its input so far. It judges nothing except the framing
//! of sentences.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::clock::{MonotonicClock, Realtime};
use horolog_sys::serial::SerialLine;
use horolog_time::{Clock, Monotonic, Timestamp};

use super::LeapReport;
use super::fix_note::FixNote;
use super::frame::{FrameCounts, Framer};
use super::report_lines::ReportLines;
use super::sentence::{ParsedSentence, SentenceError};

/// Wait for characters before the thread checks for its end.
const WAIT: Duration = Duration::from_millis(100);
/// Waits between two attempts to open a line that has ended.
const RETRY: u32 = 20;
/// Maximum number of stored sentences: more than come in a second.
const SENTENCES_MAX: usize = 64;

/// Transport that carries characters.
pub(crate) trait CharacterTransport: Send {
    /// Waits for characters and reads the available ones; `None` if none arrived.
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>>;

    /// Returns the message for its end.
    fn end(error: &io::Error) -> String {
        format!("its line was closed: {error}")
    }

    /// Returns true if reports of gpsd come between the sentences.
    fn has_reports(&self) -> bool {
        false
    }
}

impl CharacterTransport for SerialLine {
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        Self::read(self, buffer, wait)
    }
}

/// Sentence that names the time, or the reason for which it names none, and its start.
pub(crate) type TimedSentence = (Result<ParsedSentence, SentenceError>, Timestamp<Monotonic>);

/// Sentence that was rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RejectedSentence {
    /// Reject reason.
    why: &'static str,
    /// Its text between `$` and `*`: printable ASCII, and no longer than a sentence.
    text: String,
}

impl std::fmt::Display for RejectedSentence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ${}", self.why, self.text)
    }
}

/// Input of the line since the last call.
#[derive(Clone, Default, Debug)]
pub(crate) struct LineInput {
    /// Sentences that name the time, or should, each with the instant at which it began.
    pub(crate) sentences: VecDeque<TimedSentence>,
    /// Fix reports of sentences without a date, each with the instant at which it began.
    pub(crate) fixes: VecDeque<(FixNote, Timestamp<Monotonic>)>,
    /// Reports of leap seconds.
    pub(crate) leaps: VecDeque<LeapReport>,
    /// Last rejected sentence, with the reason.
    pub(crate) rejected: Option<RejectedSentence>,
    /// Counts since the line was opened, now and at the last of `sentences`.
    pub(crate) counts: FrameCounts,
    pub(crate) counts_then: FrameCounts,
    /// Arrival of the last characters.
    pub(crate) last_received_at: Option<Timestamp<Monotonic>>,
    /// End of the line with its reason, while it is not open again.
    pub(crate) ended: Option<String>,
}

/// Reader thread, which starts at the first call and ends when this is dropped.
pub(crate) struct LineReader {
    input: Arc<Mutex<LineInput>>,
    stop: Arc<AtomicBool>,
    begin: Option<Box<dyn FnOnce() + Send>>,
    thread: Option<JoinHandle<()>>,
}

impl LineReader {
    /// Prepares to read `line`; when that ends, `open` is retried until it succeeds.
    pub(crate) fn new<L: CharacterTransport + 'static>(
        line: L,
        open: impl FnMut() -> io::Result<L> + Send + 'static,
    ) -> Self {
        Self::of(Ok(line), open)
    }

    /// Prepares to read a line that may not be open yet: after an error, `open` is retried as after
    /// an end.
    pub(crate) fn of<L: CharacterTransport + 'static>(
        line: io::Result<L>,
        open: impl FnMut() -> io::Result<L> + Send + 'static,
    ) -> Self {
        let (input, stop) = (Arc::<Mutex<LineInput>>::default(), Arc::<AtomicBool>::default());
        let ear = ReaderThread { input: Arc::clone(&input), stop: Arc::clone(&stop) };
        Self { input, stop, begin: Some(Box::new(move || ear.run(line, open))), thread: None }
    }

    /// Returns the input since the last call. The first call starts a thread with the privileges of
    /// the caller.
    pub(crate) fn take(&mut self) -> io::Result<LineInput> {
        if let Some(begin) = self.begin.take() {
            self.thread = Some(thread::Builder::new().name("gnss".into()).spawn(begin)?);
        }
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = LineInput {
            sentences: VecDeque::new(),
            fixes: VecDeque::new(),
            leaps: VecDeque::new(),
            ..input.clone()
        };
        Ok(std::mem::replace(&mut *input, rest))
    }
}

impl Drop for LineReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic of the thread has already been reported on stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// State of the thread itself.
struct ReaderThread {
    input: Arc<Mutex<LineInput>>,
    stop: Arc<AtomicBool>,
}

impl ReaderThread {
    fn run<L: CharacterTransport>(
        &self,
        line: io::Result<L>,
        mut open: impl FnMut() -> io::Result<L>,
    ) {
        let mut line = line;
        loop {
            let Err(error) = line.and_then(|line| self.listen(line)) else { return };
            self.note(|input| input.ended = Some(L::end(&error)));
            let Some(again) = self.reopen(&mut open) else { return };
            line = Ok(again);
            self.note(|input| (input.ended, input.counts_then) = (None, FrameCounts::default()));
        }
    }

    /// Reopens the line as soon as possible; `None` at the end of the thread.
    fn reopen<L: CharacterTransport>(&self, open: &mut impl FnMut() -> io::Result<L>) -> Option<L> {
        loop {
            for _ in 0..RETRY {
                if self.stop.load(Ordering::Relaxed) {
                    return None;
                }
                thread::sleep(WAIT);
            }
            match open() {
                Ok(line) => return Some(line),
                Err(error) => self.note(|input| input.ended = Some(L::end(&error))),
            }
        }
    }

    /// Reads until the end of the thread, or an error of the line.
    fn listen<L: CharacterTransport>(&self, mut line: L) -> io::Result<()> {
        let mut framer = Framer::default();
        let mut reports = line.has_reports().then(ReportLines::default);
        let mut buffer = [0; 256];
        while !self.stop.load(Ordering::Relaxed) {
            let Some(length) = line.read(&mut buffer, WAIT)? else { continue };
            let now = MonotonicClock.now();
            self.note(|input| {
                input.last_received_at = Some(now);
                for &byte in &buffer[..length] {
                    input.take(&mut framer, byte, now);
                    if let Some(report) = reports.as_mut().and_then(|lines| lines.take(byte)) {
                        input.leaps.extend(LeapReport::of_gpsd(&report, Realtime.now()));
                    }
                }
                keep_last(&mut input.leaps);
                keep_last(&mut input.fixes);
                keep_last(&mut input.sentences);
            });
        }
        Ok(())
    }

    fn note(&self, change: impl FnOnce(&mut LineInput)) {
        change(&mut self.input.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl LineInput {
    /// Returns the last rejected sentence, for the end of a message.
    pub(super) fn last_rejected(&self) -> String {
        let last = |rejected: &RejectedSentence| format!("; the last was ${}", rejected.text);
        self.rejected.as_ref().map(last).unwrap_or_default()
    }

    /// Takes a character that arrived at `now`.
    fn take(&mut self, framer: &mut Framer, byte: u8, now: Timestamp<Monotonic>) {
        let read = framer.take(byte, now).map(|(text, began)| {
            self.leaps.extend(LeapReport::of_sentence(text));
            self.fixes.extend(FixNote::read(text).map(|note| (note, began)));
            (ParsedSentence::read(text), began)
        });
        let before = std::mem::replace(&mut self.counts, framer.counts());
        let damaged = self.counts.since(&before);
        let why = match &read {
            Some((Some(Err(error)), _)) => error.rejection(),
            _ if damaged.checksum > 0 => Some("a wrong checksum"),
            _ if damaged.no_checksum > 0 => Some("no checksum"),
            _ => None,
        };
        if let Some(why) = why {
            self.rejected = Some(RejectedSentence { why, text: framer.text().to_owned() });
        }
        if let Some((Some(sentence), began)) = read {
            self.sentences.push_back((sentence, began));
            self.counts_then = self.counts;
        }
    }
}

fn keep_last<T>(queue: &mut VecDeque<T>) {
    queue.drain(..queue.len().saturating_sub(SENTENCES_MAX));
}
