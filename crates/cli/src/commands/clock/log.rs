//! `horolog clock log`: logs clock offsets, from a comparison of this host's clocks or from the
//! status of a running server, as one line of JSON for each clock at each interval.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use horolog_experiment::clock_log;
use horolog_record::ClockLogLine;
use horolog_server::status;

use super::compare::ClockReadingArgs;
use crate::failure::CommandFailure;
use crate::output;
use crate::values;
use horolog_time::text::Size;

/// Minimum of `--size`, in bytes: the maximum length of a line.
const SIZE_MIN: u64 = horolog_record::CLOCK_LOG_LINE_MAX as u64;

/// Log the offset of the system clock from other clocks of this host, or the clock state that a
/// running server reports, as lines of JSON for 'horolog clock plot'.
///
/// Each line has the offset (positive if the system clock is ahead; from raw and monotonic relative
/// to the first reading), its error bound and, for a server, the frequency and the state. Logging
/// ends when --time has passed or with Ctrl-C.
#[derive(Args, Debug)]
pub(crate) struct ClockLogArgs {
    /// File to append to; '-' for standard output.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    clocks: ClockReadingArgs,
    /// Log, instead of comparisons with CLOCK, the running server's discipline of the clock by a
    /// GNSS receiver, and its sources. Implied by --status-socket.
    #[arg(long, conflicts_with = "clocks")]
    server: bool,
    /// Status socket of the server [default: that of the only running server].
    #[arg(long, value_name = "PATH", conflicts_with = "clocks")]
    status_socket: Option<PathBuf>,
    /// Duration of the log [default: until Ctrl-C].
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration)]
    time: Option<Duration>,
    /// Size at which FILE is renamed to FILE.1, replacing an older one, such as 10M (k and M are
    /// powers of 1024), at least 4096 bytes [default: unlimited].
    #[arg(long, value_name = "BYTES", value_parser = parse_size_limit)]
    size: Option<u64>,
}

fn parse_size_limit(text: &str) -> Result<u64, String> {
    match text.parse::<Size>()?.bytes() {
        small if small < SIZE_MIN => Err(format!("at least {SIZE_MIN} bytes")),
        size => Ok(size),
    }
}

pub(super) fn run(args: ClockLogArgs) -> Result<(), CommandFailure> {
    let time = args.time.unwrap_or(Duration::MAX);
    if args.server || args.status_socket.is_some() {
        let path = args.status_socket.map_or_else(status::find_socket, Ok)?;
        // An unreachable server is an error only at the start; later, each failed request is
        // logged.
        status::fetch_status(&path)?;
        let mut log = ClockLogWriter::open(&args.file, args.size)?;
        output::install_interrupt_handler()?;
        let interval = args.clocks.interval;
        return log.write_all(|write| {
            clock_log::log_server_status(&path, interval, time, write, &is_over);
        });
    }
    let mut comparison = args.clocks.open(time)?;
    let mut log = ClockLogWriter::open(&args.file, args.size)?;
    output::install_interrupt_handler()?;
    log.write_all(|write| clock_log::log_comparison(&mut comparison, write, &is_over))
}

fn is_over() -> bool {
    output::check_stop_request().is_break()
}

/// Writer of log lines to standard output, or to a file that is rotated at a maximum size.
struct ClockLogWriter {
    path: PathBuf,
    /// The file; `None` for standard output.
    file: Option<File>,
    /// Size of the file, in bytes.
    bytes: u64,
    /// Size beyond which the file is rotated, in bytes; `None` if it is unlimited.
    bytes_max: Option<u64>,
}

impl ClockLogWriter {
    fn open(path: &Path, bytes_max: Option<u64>) -> Result<Self, CommandFailure> {
        let mut log = Self { path: path.to_owned(), file: None, bytes: 0, bytes_max };
        if !output::is_stdout(path) {
            log.open_for_append().map_err(|error| log.write_failure(&error))?;
        }
        Ok(log)
    }

    /// Opens the file, or creates it, and reads its size.
    fn open_for_append(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).open(&self.path)?;
        self.bytes = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// Writes the lines that `log_clocks` passes to its argument, up to the first error, which is
    /// returned at the end.
    fn write_all(
        &mut self,
        log_clocks: impl FnOnce(&mut dyn FnMut(&[ClockLogLine])),
    ) -> Result<(), CommandFailure> {
        let mut write_result = Ok(());
        log_clocks(&mut |lines: &[ClockLogLine]| {
            if write_result.is_ok() {
                write_result = lines.iter().try_for_each(|line| self.write_line(line));
            }
        });
        write_result
    }

    fn write_line(&mut self, line: &ClockLogLine) -> Result<(), CommandFailure> {
        // Serialisation cannot fail, as all map keys are strings.
        let text = serde_json::to_string(line).unwrap_or_default();
        if self.file.is_none() {
            return output::print_stream_line(&text);
        }
        self.write_to_file(&(text + "\n")).map_err(|error| self.write_failure(&error))
    }

    /// Writes a line; first renames a full file to `FILE.1` and opens a new one.
    fn write_to_file(&mut self, line: &str) -> io::Result<()> {
        let bytes = line.len() as u64;
        if self.bytes_max.is_some_and(|max| self.bytes > 0 && self.bytes + bytes > max) {
            let mut rotated_path = self.path.clone().into_os_string();
            rotated_path.push(".1");
            fs::rename(&self.path, rotated_path)?;
            self.open_for_append()?;
        }
        self.bytes += bytes;
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(line.as_bytes()))
    }

    fn write_failure(&self, error: &io::Error) -> CommandFailure {
        let path = self.path.display();
        CommandFailure::environment(format!("cannot write {path}: {error}; choose another file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_becomes_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("clock.jsonl");
        let mut log = ClockLogWriter::open(&path, Some(1_000)).unwrap();
        let clock = Some("raw".to_owned());
        let line = ClockLogLine { clock, utc_ns: Some(i64::MAX), ..ClockLogLine::default() };
        for _ in 0..20 {
            log.write_line(&line).unwrap();
        }
        let lengths = ["clock.jsonl", "clock.jsonl.1"]
            .map(|name| fs::metadata(directory.path().join(name)).unwrap().len());
        assert!(lengths.iter().all(|length| (1..=1_000).contains(length)), "{lengths:?}");
    }
}
