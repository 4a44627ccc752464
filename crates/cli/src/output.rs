//! What commands share about where their words go: standard output for results, standard error for
//! progress, files for what is kept; and how Ctrl-C ends a measurement.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_report::table::TableStyle;
use horolog_report::units;
use horolog_stats::SearchConfig;
use horolog_sys::signal::{BlockedSignals, Signal};
use horolog_sys::undo;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sd_notify::NotifyState;

use crate::failure::Failure;

/// The command line as it was given, for the record.
pub(crate) fn command_line() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// How tables are to look on this terminal.
pub(crate) fn table_style() -> TableStyle {
    let terminal = io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let width = columns.filter(|_| terminal).unwrap_or(TableStyle::default().width);
    TableStyle { colour, width }
}

/// Prints one line of a result. A reader that went away is no failure: what was measured decides
/// the command's status all the same.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    print_line_to(&mut io::stdout().lock(), text).map(drop)
}

/// Prints one line of those that come until they are no longer wanted: where the reader has gone
/// away, the process ends without complaint.
pub(crate) fn line_of_many(text: &str) -> Result<(), Failure> {
    let is_read = print_line_to(&mut io::stdout().lock(), text)?;
    if is_read { Ok(()) } else { undo::exit(0) }
}

/// Writes a line; says whether its reader is still there.
fn print_line_to(to: &mut impl Write, text: &str) -> Result<bool, Failure> {
    print_to(to, format!("{text}\n").as_bytes())
}

/// Writes; says whether its reader is still there.
fn print_to(to: &mut impl Write, bytes: &[u8]) -> Result<bool, Failure> {
    match to.write_all(bytes).and_then(|()| to.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::environment(format!("standard output: {error}"))),
    }
}

/// Says something on standard error. Nobody may be there to read it.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Says something that only a person at a terminal wants to know.
pub(crate) fn aside(text: &str) {
    if io::stderr().is_terminal() {
        note(text);
    }
}

/// Tells the service manager, where one has asked to be told (`sd_notify(3)`).
pub(crate) fn notify(states: &[NotifyState<'_>]) {
    // Without a service manager this does nothing, and with one that does not listen nothing helps.
    let _ = sd_notify::notify(states);
}

/// Whether a file's name stands for standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// A place for a result, tried before the measurement so that this is not for nothing.
pub(crate) struct Destination {
    path: PathBuf,
    to: Option<Writer>,
}

enum Writer {
    /// A regular file, which appears whole or not at all: what is written first stands beside it.
    Beside(PathBuf),
    /// Something that is no regular file, such as a device or a pipe.
    Through(fs::File),
}

impl Destination {
    /// Sees that a result can be written to `path`; `-` stands for standard output.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| unwritable(path, &error);
        if is_stdout(path) {
            return Ok(Self { path: path.to_owned(), to: None });
        }
        // Where a link leads, the link stays.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let special = fs::metadata(&target).is_ok_and(|file| !file.is_file());
        let to = if special {
            Writer::Through(fs::OpenOptions::new().write(true).open(&target).map_err(failed)?)
        } else {
            // Gone again at once: a measurement that is ended must leave nothing beside its result.
            drop(beside(&target).map_err(failed)?);
            Writer::Beside(target)
        };
        Ok(Self { path: path.to_owned(), to: Some(to) })
    }

    /// Writes the result.
    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        match self.to {
            None => line(text.trim_end()),
            Some(_) => self.write_bytes(text.as_bytes()),
        }
    }

    /// Writes a result that is no text.
    pub(crate) fn write_bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match self.to {
            None => return print_to(&mut io::stdout().lock(), bytes).map(drop),
            Some(Writer::Through(mut file)) => file.write_all(bytes),
            Some(Writer::Beside(target)) => beside(&target).and_then(|mut file| {
                file.write_all(bytes)?;
                file.persist(&target).map(drop).map_err(|error| error.error)
            }),
        };
        written.map_err(|error| unwritable(&self.path, &error))
    }
}

/// Why a result cannot be kept. An error of a temporary file ends with the name of that file, which
/// the user did not give.
pub(crate) fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let error = error.to_string();
    let why = error.split_once(" at path ").map_or(&*error, |(why, _)| why);
    Failure::environment(format!("cannot write {}: {why}; name another file", path.display()))
}

/// A new file in the directory of `target`, which goes with the value unless it is kept.
fn beside(target: &Path) -> io::Result<tempfile::NamedTempFile> {
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".horolog-")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(directory)
}

/// The least time that a search may take; a server that wavers needs more than ten decisive trials.
const SEARCH_BUDGET_MIN: Duration = Duration::from_secs(10);

/// Gives the decisive trials of a search another length, and its time in proportion.
pub(crate) fn scale_search(config: &mut SearchConfig, final_duration: Duration) {
    let factor = final_duration.as_secs_f64() / config.final_duration.as_secs_f64();
    config.final_duration = final_duration;
    config.initial_duration = config.initial_duration.min(final_duration);
    config.duration_sum = config.duration_sum.mul_f64(factor);
    config.time_budget = config.time_budget.mul_f64(factor).max(SEARCH_BUDGET_MIN);
}

static ENDING: OnceLock<AtomicBool> = OnceLock::new();

/// Lets Ctrl-C and SIGTERM end a measurement early, with the result so far; a second one ends the
/// process, with what it changed on the machine put back. Call it before any thread is started.
pub(crate) fn end_gently() -> Result<(), Failure> {
    let signals = BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate])
        .map_err(Failure::environment)?;
    ENDING.get_or_init(|| AtomicBool::new(false));
    let wait = move || {
        loop {
            if let Ok(Some(_)) = signals.wait(Duration::from_hours(1)) {
                end();
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map_err(Failure::environment)?;
    Ok(())
}

/// Ends the measurement early, as Ctrl-C does, whose second one ends the process.
pub(crate) fn end() {
    if ENDING.get_or_init(|| AtomicBool::new(false)).swap(true, Ordering::Relaxed) {
        undo::exit(130);
    }
    if VIEWED.load(Ordering::Relaxed) {
        return; // the view says so, and would be drawn over
    }
    note("horolog: ending early; once more ends at once");
}

/// Whether a view has standard error's terminal.
static VIEWED: AtomicBool = AtomicBool::new(false);

/// Says whether a view has standard error's terminal, on which nothing else is to be drawn.
pub(crate) fn set_viewed(is_viewed: bool) {
    VIEWED.store(is_viewed, Ordering::Relaxed);
}

/// Whether to go on with the next trial.
pub(crate) fn flow() -> ControlFlow<()> {
    let ending = ENDING.get().is_some_and(|ending| ending.load(Ordering::Relaxed));
    if ending { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// What is going on, on a terminal's standard error.
pub(crate) struct Progress {
    bar: ProgressBar,
    prefix: String,
    /// Why lines above it could not be printed, if that failed.
    refused: OnceLock<Failure>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self::named(String::new())
    }

    /// With words in front of every message.
    pub(crate) fn named(prefix: String) -> Self {
        // Hidden where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // A constant template that is known to parse; the plain style does as well.
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, prefix, refused: OnceLock::new() }
    }

    /// What is going on, in words.
    pub(crate) fn doing(&self, what: &str) {
        self.bar.set_message(format!("{}{what}", self.prefix));
    }

    /// So many of all are done, of rows, readings or whatever else is counted.
    pub(crate) fn counted(&self, done: u64, total: u64, what: &str) {
        self.doing(&format!("{done} of {total} {what}"));
    }

    /// A trial begins.
    pub(crate) fn trial(&self, rate: f64, duration: Duration) {
        let (rate, seconds) = (units::human_rate(rate), duration.as_secs_f64());
        self.doing(&format!("{rate} requests/s for {seconds:.1} s"));
    }

    /// Keeps a line above what is going on, where that is shown.
    pub(crate) fn keep(&self, text: &str) {
        self.bar.println(text);
    }

    /// Prints a line of the result above the progress.
    pub(crate) fn print(&self, text: &str) {
        // What nobody sees is not worth ending a measurement for: the result still goes to its
        // files.
        if let Err(failure) = self.bar.suspend(|| line(text)) {
            // The first reason is enough.
            let _ = self.refused.set(failure);
        }
    }

    /// Ends it, and says whether the lines above it could be printed.
    pub(crate) fn finish_printing(mut self) -> Result<(), Failure> {
        let refused = self.refused.take();
        self.finish();
        refused.map_or(Ok(()), Err)
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing, for this reason.
    struct Refusing(io::ErrorKind);

    impl Write for Refusing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_and_a_full_disk_is_one() {
        assert!(matches!(print_line_to(&mut Vec::new(), "text"), Ok(true)));
        assert!(matches!(
            print_line_to(&mut Refusing(io::ErrorKind::BrokenPipe), "text"),
            Ok(false)
        ));
        let full = print_line_to(&mut Refusing(io::ErrorKind::StorageFull), "text");
        assert!(
            matches!(full, Err(Failure::Environment(why)) if why.starts_with("standard output: "))
        );
    }
}
