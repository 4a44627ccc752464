//! Output shared by the commands: standard output for results, standard error for progress, files
//! for stored results; and the effect of Ctrl-C on a measurement.

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
use horolog_sys::explain::explain_line;
use horolog_sys::signal::{BlockedSignals, Signal};
use horolog_sys::undo;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sd_notify::NotifyState;

use crate::failure::CommandFailure;

/// The command line of this process, for the record.
pub(crate) fn command_line() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// The style of tables on this terminal.
pub(crate) fn table_style() -> TableStyle {
    let terminal = io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let width = columns.filter(|_| terminal).unwrap_or(TableStyle::default().width);
    TableStyle { colour, width }
}

/// Prints one line of a result. A closed reader is not a failure: the measurement still determines
/// the command's status.
pub(crate) fn line(text: &str) -> Result<(), CommandFailure> {
    print_line_to(&mut io::stdout().lock(), text).map(drop)
}

/// Prints one line of a stream that ends when its reader closes: the process then ends without an
/// error.
pub(crate) fn line_of_many(text: &str) -> Result<(), CommandFailure> {
    let is_read = print_line_to(&mut io::stdout().lock(), text)?;
    if is_read { Ok(()) } else { undo::exit(0) }
}

/// Writes a line; returns false if its reader has closed.
fn print_line_to(to: &mut impl Write, text: &str) -> Result<bool, CommandFailure> {
    print_to(to, format!("{text}\n").as_bytes())
}

/// Writes bytes; returns false if the reader has closed.
fn print_to(to: &mut impl Write, bytes: &[u8]) -> Result<bool, CommandFailure> {
    match to.write_all(bytes).and_then(|()| to.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CommandFailure::environment(format!("standard output: {error}"))),
    }
}

/// Prints a line on standard error. A closed standard error is not an error.
pub(crate) fn print_note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", explain_line(text));
}

/// Prints a line that is only of interest to a person at a terminal.
pub(crate) fn print_status(text: &str) {
    if io::stderr().is_terminal() {
        print_note(text);
    }
}

/// Notifies the service manager, if it requested that (`sd_notify(3)`).
pub(crate) fn notify(states: &[NotifyState<'_>]) {
    // Without a service manager this does nothing; if one does not listen, nothing can be done.
    let _ = sd_notify::notify(states);
}

/// Returns true if a file's name means standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Destination of a result, tested before the measurement so that the work is not lost.
pub(crate) struct ResultDestination {
    path: PathBuf,
    to: Option<OutputWriter>,
}

enum OutputWriter {
    /// A regular file, which appears whole or not at all: data is first written to a file next to
    /// it.
    TempFile(PathBuf),
    /// Another kind of file, such as a device or a pipe.
    Direct(fs::File),
}

impl ResultDestination {
    /// Verifies that a result can be written to `path`; `-` means standard output.
    pub(crate) fn open(path: &Path) -> Result<Self, CommandFailure> {
        let failed = |error: io::Error| unwritable(path, &error);
        if is_stdout(path) {
            return Ok(Self { path: path.to_owned(), to: None });
        }
        // If the path is a link, the link stays.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let special = fs::metadata(&target).is_ok_and(|file| !file.is_file());
        let to = if special {
            OutputWriter::Direct(fs::OpenOptions::new().write(true).open(&target).map_err(failed)?)
        } else {
            // Removed at once: an interrupted measurement must leave no file next to its result.
            drop(create_temp_file(&target).map_err(failed)?);
            OutputWriter::TempFile(target)
        };
        Ok(Self { path: path.to_owned(), to: Some(to) })
    }

    /// Writes the result.
    pub(crate) fn write(self, text: &str) -> Result<(), CommandFailure> {
        match self.to {
            None => line(text.trim_end()),
            Some(_) => self.write_bytes(text.as_bytes()),
        }
    }

    /// Writes a binary result.
    pub(crate) fn write_bytes(self, bytes: &[u8]) -> Result<(), CommandFailure> {
        let written = match self.to {
            None => return print_to(&mut io::stdout().lock(), bytes).map(drop),
            Some(OutputWriter::Direct(mut file)) => file.write_all(bytes),
            Some(OutputWriter::TempFile(target)) => {
                create_temp_file(&target).and_then(|mut file| {
                    file.write_all(bytes)?;
                    file.persist(&target).map(drop).map_err(|error| error.error)
                })
            }
        };
        written.map_err(|error| unwritable(&self.path, &error))
    }
}

/// The reason why a result cannot be written. An error of a temporary file ends with the name of
/// that file, which the user did not specify.
pub(crate) fn unwritable(path: &Path, error: &io::Error) -> CommandFailure {
    let error = error.to_string();
    let why = error.split_once(" at path ").map_or(&*error, |(why, _)| why);
    CommandFailure::environment(format!(
        "cannot write {}: {why}; name another file",
        path.display()
    ))
}

/// A new file in the directory of `target`, which is removed with the value unless it is persisted.
fn create_temp_file(target: &Path) -> io::Result<tempfile::NamedTempFile> {
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".horolog-")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(directory)
}

/// Least duration of a search; a server that wavers needs more than ten decisive trials.
const SEARCH_BUDGET_MIN: Duration = Duration::from_secs(10);

/// Sets another length of the decisive trials of a search, and its duration in proportion.
pub(crate) fn scale_search(config: &mut SearchConfig, final_duration: Duration) {
    let factor = final_duration.as_secs_f64() / config.final_duration.as_secs_f64();
    config.final_duration = final_duration;
    config.initial_duration = config.initial_duration.min(final_duration);
    config.duration_sum = config.duration_sum.mul_f64(factor);
    config.time_budget = config.time_budget.mul_f64(factor).max(SEARCH_BUDGET_MIN);
}

static ENDING: OnceLock<AtomicBool> = OnceLock::new();

/// Makes Ctrl-C and SIGTERM end a measurement early, with the result so far; a second one ends the
/// process, after changes to the host are undone. Call it before any thread is started.
pub(crate) fn install_interrupt_handler() -> Result<(), CommandFailure> {
    let signals = BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate])
        .map_err(CommandFailure::environment)?;
    ENDING.get_or_init(|| AtomicBool::new(false));
    let wait = move || {
        loop {
            if let Ok(Some(_)) = signals.wait(Duration::from_hours(1)) {
                request_stop();
            }
        }
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(wait)
        .map_err(CommandFailure::environment)?;
    Ok(())
}

/// Ends the measurement early, as Ctrl-C does; a second Ctrl-C ends the process.
pub(crate) fn request_stop() {
    if ENDING.get_or_init(|| AtomicBool::new(false)).swap(true, Ordering::Relaxed) {
        undo::exit(130);
    }
    if VIEWED.load(Ordering::Relaxed) {
        return; // the view shows it, and would be overdrawn
    }
    print_note("horolog: ending early; once more ends at once");
}

/// True if a view has standard error's terminal.
static VIEWED: AtomicBool = AtomicBool::new(false);

/// Sets whether a view has standard error's terminal, on which nothing else may then be drawn.
pub(crate) fn set_viewed(is_viewed: bool) {
    VIEWED.store(is_viewed, Ordering::Relaxed);
}

/// Returns whether to continue with the next trial.
pub(crate) fn flow() -> ControlFlow<()> {
    let ending = ENDING.get().is_some_and(|ending| ending.load(Ordering::Relaxed));
    if ending { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Progress line on a terminal's standard error.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    prefix: String,
    /// Reason why lines above it could not be printed, if that failed.
    refused: OnceLock<CommandFailure>,
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self::named(String::new())
    }

    /// Creates a progress line with a prefix before every message.
    pub(crate) fn named(prefix: String) -> Self {
        // Hidden if standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // A constant template that is known to parse; the plain style would do as well.
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, prefix, refused: OnceLock::new() }
    }

    /// Sets the current activity, in words.
    pub(crate) fn set_message(&self, what: &str) {
        self.bar.set_message(format!("{}{what}", self.prefix));
    }

    /// Shows the number of finished items of the total: rows, readings or others.
    pub(crate) fn counted(&self, done: u64, total: u64, what: &str) {
        self.set_message(&format!("{done} of {total} {what}"));
    }

    /// Shows the start of a trial.
    pub(crate) fn trial(&self, rate: f64, duration: Duration) {
        let (rate, seconds) = (units::human_rate(rate), duration.as_secs_f64());
        self.set_message(&format!("{rate} requests/s for {seconds:.1} s"));
    }

    /// Keeps a line above the progress, if that is shown.
    pub(crate) fn keep(&self, text: &str) {
        self.bar.println(text);
    }

    /// Prints a line of the result above the progress.
    pub(crate) fn print(&self, text: &str) {
        // A line that cannot be shown is no reason to end a measurement: the result still goes to
        // its files.
        if let Err(failure) = self.bar.suspend(|| line(text)) {
            // The first reason is enough.
            let _ = self.refused.set(failure);
        }
    }

    /// Ends it; an error if the lines above it could not be printed.
    pub(crate) fn finish_printing(mut self) -> Result<(), CommandFailure> {
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
            matches!(full, Err(CommandFailure::Environment(why)) if why.starts_with("standard output: "))
        );
    }
}
