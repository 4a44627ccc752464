//! The thread that reads a receiver's line, and what it has heard. It judges nothing but whether
//! what comes is a sentence.

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
use super::frame::{FrameCounts, Framer};
use super::report_lines::ReportLines;
use super::sentence::{Sentence, SentenceError};

/// How long it waits for characters before it looks whether it is to end.
const WAIT: Duration = Duration::from_millis(100);
/// Waits between two attempts to open a line that has ended.
const RETRY: u32 = 20;
/// Sentences that are kept until they are asked for: more than come in a second.
const SENTENCES_MAX: usize = 64;

/// Something that characters come over.
pub(crate) trait Line: Send {
    /// Waits for characters and reads those that are there; `None` where none came.
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>>;

    /// What is told of its end.
    fn end(error: &io::Error) -> String {
        format!("its line has ended: {error}")
    }

    /// Whether reports of gpsd come between the sentences.
    fn has_reports(&self) -> bool {
        false
    }
}

impl Line for SerialLine {
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        Self::read(self, buffer, wait)
    }
}

/// What came over the line since it was asked last.
#[derive(Clone, Default, Debug)]
pub(crate) struct Heard {
    /// Sentences that tell the time, each with the instant at which it began.
    pub(crate) sentences: VecDeque<(Sentence, Timestamp<Monotonic>)>,
    /// What was said of leap seconds.
    pub(crate) leaps: VecDeque<LeapReport>,
    /// What was wrong with the last one that should have told it, where that could not be read.
    pub(crate) wrong: Option<SentenceError>,
    /// All that came since the line was opened.
    pub(crate) counts: FrameCounts,
    /// Characters that came.
    pub(crate) characters: u64,
    /// That the line has ended and why, while it is not open again.
    pub(crate) ended: Option<String>,
}

/// The thread, which begins when it is first asked, and ends with this.
pub(crate) struct Reader {
    heard: Arc<Mutex<Heard>>,
    stop: Arc<AtomicBool>,
    begin: Option<Box<dyn FnOnce() + Send>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Prepares to read `line`; when that ends, `open` is asked for it again and again.
    pub(crate) fn new<L: Line + 'static>(
        line: L,
        open: impl FnMut() -> io::Result<L> + Send + 'static,
    ) -> Self {
        Self::of(Ok(line), open)
    }

    /// The same with a line that may not be open yet: with its error `open` is asked for it as when
    /// it had ended.
    pub(crate) fn of<L: Line + 'static>(
        line: io::Result<L>,
        open: impl FnMut() -> io::Result<L> + Send + 'static,
    ) -> Self {
        let (heard, stop) = (Arc::<Mutex<Heard>>::default(), Arc::<AtomicBool>::default());
        let ear = Ear { heard: Arc::clone(&heard), stop: Arc::clone(&stop) };
        Self { heard, stop, begin: Some(Box::new(move || ear.run(line, open))), thread: None }
    }

    /// What has come since this was asked last. The first time it begins to read, in a thread that
    /// has the rights of the one that asks.
    pub(crate) fn take(&mut self) -> io::Result<Heard> {
        if let Some(begin) = self.begin.take() {
            self.thread = Some(thread::Builder::new().name("gnss".into()).spawn(begin)?);
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = Heard { counts: heard.counts, ended: heard.ended.clone(), ..Heard::default() };
        Ok(std::mem::replace(&mut *heard, rest))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic of it has said so on stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The thread's own side.
struct Ear {
    heard: Arc<Mutex<Heard>>,
    stop: Arc<AtomicBool>,
}

impl Ear {
    fn run<L: Line>(&self, line: io::Result<L>, mut open: impl FnMut() -> io::Result<L>) {
        let mut line = line;
        loop {
            let Err(error) = line.and_then(|line| self.listen(line)) else { return };
            self.note(|heard| heard.ended = Some(L::end(&error)));
            let Some(again) = self.reopen(&mut open) else { return };
            line = Ok(again);
            self.note(|heard| heard.ended = None);
        }
    }

    /// Opens the line again as soon as that works; `None` when it is to end.
    fn reopen<L: Line>(&self, open: &mut impl FnMut() -> io::Result<L>) -> Option<L> {
        loop {
            for _ in 0..RETRY {
                if self.stop.load(Ordering::Relaxed) {
                    return None;
                }
                thread::sleep(WAIT);
            }
            match open() {
                Ok(line) => return Some(line),
                Err(error) => self.note(|heard| heard.ended = Some(L::end(&error))),
            }
        }
    }

    /// Reads until it is to end, or fails where the line does.
    fn listen<L: Line>(&self, mut line: L) -> io::Result<()> {
        let mut framer = Framer::default();
        let mut reports = line.has_reports().then(ReportLines::default);
        let mut buffer = [0; 256];
        while !self.stop.load(Ordering::Relaxed) {
            let Some(length) = line.read(&mut buffer, WAIT)? else { continue };
            let now = MonotonicClock.now();
            let (mut told, mut leaps) = (Vec::new(), Vec::new());
            for &byte in &buffer[..length] {
                if let Some((text, began)) = framer.take(byte, now) {
                    told.extend(Sentence::read(text).map(|sentence| (sentence, began)));
                    leaps.extend(LeapReport::of_sentence(text));
                }
                if let Some(report) = reports.as_mut().and_then(|lines| lines.take(byte)) {
                    leaps.extend(LeapReport::of_gpsd(&report, Realtime.now()));
                }
            }
            self.note(|heard| {
                heard.counts = framer.counts();
                heard.characters += length as u64;
                for (sentence, began) in told {
                    match sentence {
                        Ok(sentence) => heard.sentences.push_back((sentence, began)),
                        Err(error) => heard.wrong = Some(error),
                    }
                }
                heard.leaps.extend(leaps);
                let surplus = heard.leaps.len().saturating_sub(SENTENCES_MAX);
                heard.leaps.drain(..surplus);
                while heard.sentences.len() > SENTENCES_MAX {
                    heard.sentences.pop_front();
                }
            });
        }
        Ok(())
    }

    fn note(&self, change: impl FnOnce(&mut Heard)) {
        change(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
