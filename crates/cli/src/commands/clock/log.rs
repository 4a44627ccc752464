//! `horolog clock log`: logs clock offsets, from a comparison of this host's clocks or from the
//! status of a running server, as one line of JSON for each clock at each interval.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use horolog_probe::clocks::{SlotReadings, run_each_interval};
use horolog_record::ClockLogLine;
use horolog_server::{ServerStatus, status};
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_time::Clock;

use super::compare::ClockReadingArgs;
use crate::failure::CommandFailure;
use crate::output;
use crate::values;

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
    match values::size(text)? {
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
        return log_server_status(&path, args.clocks.interval, time, &mut log);
    }
    let mut comparison = args.clocks.open(time)?;
    let names: Vec<_> = comparison.names().map(str::to_owned).collect();
    let mut log = ClockLogWriter::open(&args.file, args.size)?;
    output::install_interrupt_handler()?;
    let mut write_result = Ok(());
    comparison.read_slots(
        |_, readings| log.write_lines(&comparison_lines(&names, readings), &mut write_result),
        &|| output::check_stop_request().is_break(),
    );
    write_result
}

/// Returns the lines of one slot of a comparison: an offset or an error for each clock, none for a
/// clock without a new reading.
fn comparison_lines(names: &[String], readings: SlotReadings) -> Vec<ClockLogLine> {
    let line = |(name, reading): (&String, io::Result<_>)| match reading {
        Ok(None) => None,
        Ok(Some(sample)) => {
            let sample: horolog_record::ClockSample = sample;
            Some(ClockLogLine {
                utc_ns: Some(sample.at_ns),
                offset_ns: Some(sample.offset_ns),
                uncertainty_ns: sample.error_bound_ns.map(|bound_ns| bound_ns as f64),
                ..clock_line_now(name)
            })
        }
        Err(error) => {
            Some(ClockLogLine { reason: Some(error.to_string()), ..clock_line_now(name) })
        }
    };
    names.iter().zip(readings).filter_map(line).collect()
}

/// Logs the status of a server at each interval, or the reason why it could not be fetched.
fn log_server_status(
    path: &Path,
    interval: Duration,
    time: Duration,
    log: &mut ClockLogWriter,
) -> Result<(), CommandFailure> {
    let count = time.as_nanos() / interval.as_nanos();
    let count = u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1);
    let mut write_result = Ok(());
    run_each_interval(interval, count, &|| output::check_stop_request().is_break(), |_| {
        let lines = match status::fetch_status(path) {
            Ok(status) => status_lines(&status),
            Err(error) => {
                let reason = CommandFailure::from(error).to_string();
                vec![ClockLogLine { reason: Some(reason), ..clock_line_now("server") }]
            }
        };
        log.write_lines(&lines, &mut write_result);
    });
    write_result
}

/// Returns a line for the calibration and for each source in a server's status; a line for the
/// system clock if the server has neither.
fn status_lines(status: &ServerStatus) -> Vec<ClockLogLine> {
    let calibration = status.calibration.as_ref().map(|calibration| ClockLogLine {
        offset_ns: calibration.offset_ns,
        uncertainty_ns: calibration.uncertainty_ns,
        frequency_ppb: calibration.frequency_ppb,
        state: Some(calibration.state.to_string()),
        reason: calibration.reason.clone(),
        ..clock_line_now("calibration")
    });
    let sources = status.sources.iter().map(|source| ClockLogLine {
        offset_ns: source.offset_ns,
        uncertainty_ns: source.uncertainty_ns.map(|ns| ns as f64),
        state: Some(source.state.to_string()),
        reason: source.reason.clone(),
        ..clock_line_now(&source.name)
    });
    let has_no_source = status.sources.is_empty() && calibration.is_none();
    calibration
        .into_iter()
        .chain(sources)
        .chain(has_no_source.then(|| system_clock_line(status)))
        .collect()
}

/// Returns the line of a server without sources, which serves its system clock unchecked.
fn system_clock_line(status: &ServerStatus) -> ClockLogLine {
    let state = if status.synchronised { "synchronised" } else { "not synchronised" };
    ClockLogLine {
        state: Some(state.to_owned()),
        reason: Some("served unchecked: no source reports its offset".to_owned()),
        ..clock_line_now("system clock")
    }
}

/// Returns a line with the name of a clock and the current time, to be completed with values.
fn clock_line_now(clock: &str) -> ClockLogLine {
    ClockLogLine {
        monotonic_ns: ClockMonotonic.now().as_ns(),
        utc_ns: Some(ClockRealtime.now().as_ns()),
        clock: Some(clock.to_owned()),
        ..ClockLogLine::default()
    }
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

    /// Writes lines and stores the first error in `write_result`; does nothing if it has one.
    fn write_lines(
        &mut self,
        lines: &[ClockLogLine],
        write_result: &mut Result<(), CommandFailure>,
    ) {
        if write_result.is_ok() {
            *write_result = lines.iter().try_for_each(|line| self.write_line(line));
        }
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
    use crate::commands::status::sample_status;

    #[test]
    fn a_servers_calibration_and_sources_have_lines_with_one_sign() {
        let lines = status_lines(&sample_status());
        let clocks: Vec<_> = lines.iter().filter_map(|line| line.clock.as_deref()).collect();
        assert_eq!(clocks, ["calibration", "gnss", "system clock with a long name", "phc"]);
        assert_eq!(
            (lines[0].offset_ns, lines[1].offset_ns, lines[3].offset_ns),
            (Some(250), Some(250), None)
        );
        assert_eq!(
            (lines[0].frequency_ppb, lines[0].state.as_deref()),
            (Some(19_998.125), Some("holdover"))
        );
        assert_eq!(lines[3].state.as_deref(), Some("unusable"));
        assert_eq!(lines[3].reason.as_deref(), Some("/dev/ptp0: it is no PTP clock"));
    }

    #[test]
    fn a_server_without_sources_has_a_line_of_its_system_clock() {
        let sources = Vec::new();
        let status = ServerStatus { sources, calibration: None, ..sample_status() };
        let lines = status_lines(&status);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(line.clock.as_deref(), Some("system clock"));
        assert_eq!((line.state.as_deref(), line.offset_ns), (Some("synchronised"), None));
        assert!(line.reason.is_some());
    }

    #[test]
    fn a_full_file_becomes_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("clock.jsonl");
        let mut log = ClockLogWriter::open(&path, Some(1_000)).unwrap();
        for _ in 0..20 {
            log.write_line(&clock_line_now("raw")).unwrap();
        }
        let lengths = ["clock.jsonl", "clock.jsonl.1"]
            .map(|name| fs::metadata(directory.path().join(name)).unwrap().len());
        assert!(lengths.iter().all(|length| (1..=1_000).contains(length)), "{lengths:?}");
    }

    #[test]
    fn a_device_that_fails_leaves_its_reason() {
        let readings: SlotReadings = vec![Ok(None), Err(io::ErrorKind::TimedOut.into())];
        let lines = comparison_lines(&["/dev/pps0".to_owned(), "/dev/ptp0".to_owned()], readings);
        assert_eq!((lines.len(), lines[0].clock.as_deref()), (1, Some("/dev/ptp0")));
        assert!(lines[0].reason.is_some() && lines[0].offset_ns.is_none());
    }
}
