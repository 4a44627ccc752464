//! Output of all commands: results on standard output, progress and notes on standard error, result
//! files; and the early end of a measurement by Ctrl-C.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_record::PartPlan;
use horolog_report::table::TableStyle;
use horolog_report::units;
use horolog_sys::explain::explain_line;
use horolog_sys::signal::{BlockedSignals, Signal};
use horolog_sys::undo;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sd_notify::NotifyState;

use crate::failure::CommandFailure;

/// Returns the command line of this process, as recorded in results. Bytes that are not UTF-8 are
/// replaced.
pub(crate) fn command_line() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Returns the style of tables for standard output: colour on a terminal unless `NO_COLOR` is set,
/// and the width of the terminal.
pub(crate) fn table_style() -> TableStyle {
    let terminal = io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let width = columns.filter(|_| terminal).unwrap_or(TableStyle::default().width);
    TableStyle { colour, width }
}

/// Prints one line of a result on standard output. A closed pipe is not an error: the measurement
/// still determines the exit status.
pub(crate) fn print_line(text: &str) -> Result<(), CommandFailure> {
    print_line_to(&mut io::stdout().lock(), text).map(drop)
}

/// Prints one line of an endless output on standard output. Exits the process with status 0 if the
/// pipe is closed.
pub(crate) fn print_stream_line(text: &str) -> Result<(), CommandFailure> {
    let is_read = print_line_to(&mut io::stdout().lock(), text)?;
    if is_read { Ok(()) } else { undo::exit(0) }
}

/// Writes a line; returns false if the reader has closed the pipe.
fn print_line_to(writer: &mut impl Write, text: &str) -> Result<bool, CommandFailure> {
    print_to(writer, format!("{text}\n").as_bytes())
}

/// Writes bytes and flushes them; returns false if the reader has closed the pipe.
fn print_to(writer: &mut impl Write, bytes: &[u8]) -> Result<bool, CommandFailure> {
    match writer.write_all(bytes).and_then(|()| writer.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CommandFailure::environment(format!("standard output: {error}"))),
    }
}

/// Prints a line on standard error. A closed standard error is not an error.
pub(crate) fn print_note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", explain_line(text));
}

/// Prints a line on standard error if that is a terminal.
pub(crate) fn print_terminal_note(text: &str) {
    if io::stderr().is_terminal() {
        print_note(text);
    }
}

/// Sends state notifications to the service manager, if `NOTIFY_SOCKET` is set (`sd_notify(3)`).
pub(crate) fn notify_service_manager(states: &[NotifyState<'_>]) {
    // An error means that the service manager does not listen; the command continues.
    let _ = sd_notify::notify(states);
}

/// Returns true if a path is `-`, which stands for standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// File or standard output for a result, opened before the measurement so that the result is not
/// lost to an error of the file.
pub(crate) struct ResultDestination {
    path: PathBuf,
    writer: Option<DestinationFile>,
}

/// File of a [`ResultDestination`].
enum DestinationFile {
    /// Path of a regular file that is replaced atomically: a temporary file in its directory is
    /// written and renamed.
    AtomicReplace(PathBuf),
    /// Device, pipe or other special file, which is written directly.
    Direct(fs::File),
}

impl ResultDestination {
    /// Verifies that a result can be written to `path`; `-` means standard output.
    pub(crate) fn open(path: &Path) -> Result<Self, CommandFailure> {
        let failed = |error: io::Error| write_failure(path, &error);
        if is_stdout(path) {
            return Ok(Self { path: path.to_owned(), writer: None });
        }
        // Replace the target of a symbolic link, not the link.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let is_special = fs::metadata(&target).is_ok_and(|file| !file.is_file());
        let writer = if is_special {
            DestinationFile::Direct(
                fs::OpenOptions::new().write(true).open(&target).map_err(failed)?,
            )
        } else {
            // This only tests that the directory is writable. The temporary file is removed at
            // once, so that an interrupted measurement leaves none.
            drop(create_temp_file(&target).map_err(failed)?);
            DestinationFile::AtomicReplace(target)
        };
        Ok(Self { path: path.to_owned(), writer: Some(writer) })
    }

    /// Writes a result that is text. Trailing white space is left out on standard output.
    pub(crate) fn write(self, text: &str) -> Result<(), CommandFailure> {
        match self.writer {
            None => print_line(text.trim_end()),
            Some(_) => self.write_bytes(text.as_bytes()),
        }
    }

    /// Writes a binary result.
    pub(crate) fn write_bytes(self, bytes: &[u8]) -> Result<(), CommandFailure> {
        let written = match self.writer {
            None => return print_to(&mut io::stdout().lock(), bytes).map(drop),
            Some(DestinationFile::Direct(mut file)) => file.write_all(bytes),
            Some(DestinationFile::AtomicReplace(target)) => {
                create_temp_file(&target).and_then(|mut file| {
                    file.write_all(bytes)?;
                    file.persist(&target).map(drop).map_err(|error| error.error)
                })
            }
        };
        written.map_err(|error| write_failure(&self.path, &error))
    }
}

/// Returns the failure to write the file `path`. The path of the temporary file, which `tempfile`
/// appends to its errors, is left out.
pub(crate) fn write_failure(path: &Path, error: &io::Error) -> CommandFailure {
    let error = error.to_string();
    let reason = error.split_once(" at path ").map_or(&*error, |(why, _)| why);
    CommandFailure::environment(format!(
        "cannot write {}: {reason}; name another file",
        path.display()
    ))
}

/// Creates a temporary file in the directory of `target`. It is removed when the value is dropped,
/// unless it was persisted.
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

/// True after the first request to end the measurement early.
static STOP_REQUESTED: OnceLock<AtomicBool> = OnceLock::new();

/// Makes SIGINT (Ctrl-C) and SIGTERM end a measurement early, with the result so far. A second
/// signal undoes changes to the host and exits the process with status 130. Call it before any
/// thread is started, because threads inherit the signal mask.
pub(crate) fn install_interrupt_handler() -> Result<(), CommandFailure> {
    let signals = BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate])
        .map_err(CommandFailure::environment)?;
    STOP_REQUESTED.get_or_init(|| AtomicBool::new(false));
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

/// Requests the early end of the measurement, as Ctrl-C does; the second request exits the process.
pub(crate) fn request_stop() {
    if STOP_REQUESTED.get_or_init(|| AtomicBool::new(false)).swap(true, Ordering::Relaxed) {
        undo::exit(130);
    }
    if LIVE_VIEW_ACTIVE.load(Ordering::Relaxed) {
        return; // the view shows it, and would be overdrawn
    }
    print_note("horolog: ending early; once more ends at once");
}

/// True while a live view occupies the terminal of standard error.
static LIVE_VIEW_ACTIVE: AtomicBool = AtomicBool::new(false);

/// Sets whether a live view occupies the terminal of standard error. Notes on Ctrl-C are then not
/// printed.
pub(crate) fn set_live_view_active(is_active: bool) {
    LIVE_VIEW_ACTIVE.store(is_active, Ordering::Relaxed);
}

/// Returns `Break` once the early end of the measurement was requested.
pub(crate) fn check_stop_request() -> ControlFlow<()> {
    let is_requested = STOP_REQUESTED.get().is_some_and(|ending| ending.load(Ordering::Relaxed));
    if is_requested { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Progress line on standard error, hidden unless that is a terminal.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    prefix: String,
    /// First failure to print a result line on standard output.
    print_failure: OnceLock<CommandFailure>,
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self::with_prefix(String::new())
    }

    /// Creates a progress line with a prefix before every message.
    pub(crate) fn with_prefix(prefix: String) -> Self {
        // Hidden if standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // The constant template always parses; the default style satisfies the type checker.
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, prefix, print_failure: OnceLock::new() }
    }

    /// Sets the current activity, in words.
    pub(crate) fn set_message(&self, what: &str) {
        self.bar.set_message(format!("{}{what}", self.prefix));
    }

    /// Shows the progress as "`done` of `total` `what`", such as "3 of 10 rows".
    pub(crate) fn set_count(&self, done: u64, total: u64, what: &str) {
        self.set_message(&format!("{done} of {total} {what}"));
    }

    /// Shows the intended rate, in requests per second, and the duration of the trial that starts.
    pub(crate) fn show_trial(&self, plan: &PartPlan) {
        let rate = units::human_rate(plan.intended_rate.unwrap_or_default());
        let seconds = plan.duration_s.unwrap_or_default();
        self.set_message(&format!("{rate} requests/s for {seconds:.1} s"));
    }

    /// Prints a line on standard error above the progress line, unless that is hidden.
    pub(crate) fn print_above(&self, text: &str) {
        self.bar.println(text);
    }

    /// Prints a line of the result on standard output, above the progress line. An error is
    /// returned by [`Self::finish_printing`].
    pub(crate) fn print_result_line(&self, text: &str) {
        // The measurement continues without this output, since the result is also written to files.
        if let Err(failure) = self.bar.suspend(|| print_line(text)) {
            // Only the first failure is stored.
            let _ = self.print_failure.set(failure);
        }
    }

    /// Removes the progress line. Returns the first failure to print a result line above it.
    pub(crate) fn finish_printing(mut self) -> Result<(), CommandFailure> {
        let print_failure = self.print_failure.take();
        self.finish();
        print_failure.map_or(Ok(()), Err)
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
