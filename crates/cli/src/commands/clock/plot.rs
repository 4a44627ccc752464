//! `horolog clock plot`: a clock's error log as text, JSON and HTML report.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use horolog_record::{CLOCK_LOG_LINE_MAX, ClockLogReader, ClockLogResult};

use crate::failure::CommandFailure;
use crate::files::ResultFiles;

/// Plot the log of 'horolog clock log' or of 'horolog serve --clock-error-log': offsets over time
/// with accepted and rejected pulses, the frequency and its corrections, states and steps.
#[derive(Args, Debug)]
pub(crate) struct ClockPlotArgs {
    /// Log file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the summary with every point to FILE as JSON; '-' writes it to standard output instead
    /// of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report with plots to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(args: &ClockPlotArgs) -> Result<(), CommandFailure> {
    let result = read_clock_log(&args.file)?;
    let files = ResultFiles::open([("--json", &args.json), ("--html", &args.html)])?;
    files.write(&result)
}

fn read_clock_log(path: &Path) -> Result<ClockLogResult, CommandFailure> {
    let name = path.display();
    let unreadable = |error: io::Error| {
        CommandFailure::environment(format!("cannot read {name}: {error}; give a clock log"))
    };
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut reader = ClockLogReader::default();
    let mut line = Vec::new();
    // One byte more than the longest line with its newline, so that a longer line is detected.
    let line_bytes_max = CLOCK_LOG_LINE_MAX as u64 + 2;
    while file.by_ref().take(line_bytes_max).read_until(b'\n', &mut line).map_err(unreadable)? > 0 {
        let complete_line = line.strip_suffix(b"\n");
        let read_result = reader.read_line(complete_line.unwrap_or(&line));
        match read_result {
            // The writer of the log may be in the middle of its last line.
            Err(_) if complete_line.is_none() && line.len() <= CLOCK_LOG_LINE_MAX => break,
            read_result => {
                read_result.map_err(|why| CommandFailure::usage(format!("{name}: {why}")))?;
            }
        }
        line.clear();
    }
    let result = reader.result(name.to_string());
    if result.lines == 0 {
        return Err(CommandFailure::usage(format!("{name}: no clock log lines")));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use horolog_discipline::{ClockErrorLogEntry, PulseVerdict, SynchronisationState};

    use super::*;

    fn read_text(text: &str) -> Result<ClockLogResult, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read_clock_log(file.path()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn what_a_server_writes_is_read() {
        let entry = ClockErrorLogEntry {
            monotonic_ns: 5_000_000_123,
            utc_ns: Some(1_800_000_000_000_000_000),
            measured_ns: Some(-120),
            innovation_ns: Some(-15.25),
            verdict: PulseVerdict::Accepted,
            offset_ns: Some(-107),
            uncertainty_ns: Some(31.5),
            frequency_ppb: Some(19_998.125),
            noise_ns: 101.5,
            command_ppb: Some(-19_985.5),
            step_ns: None,
            state: SynchronisationState::Locked,
        };
        let result = read_text(&(entry.to_json() + "\n")).unwrap();
        let clock = &result.clocks[0];
        assert_eq!(clock.states[0].state, SynchronisationState::Locked.to_string());
        let figures = [&clock.offsets, &clock.believed, &clock.corrections];
        let figures = figures.map(|points| points[0].value.to_string());
        assert_eq!(figures, ["-107", "-120", "-19985.5"]);
        assert_eq!(clock.verdicts.get(PulseVerdict::Accepted.name()), Some(&1));
    }

    #[test]
    fn lines_are_read_and_the_bad_one_is_named() {
        let line = "{\"monotonic_ns\":5,\"offset_ns\":7}\n";
        assert_eq!(read_text(&line.repeat(3)).unwrap().lines, 3);
        assert_eq!(read_text(&format!("{line}{{\"monotonic")).unwrap().lines, 1, "half a line");
        let long = format!("{line}{}\n", " ".repeat(2 * CLOCK_LOG_LINE_MAX));
        for wrong in [format!("{line}nonsense\n"), long, format!("{line}{}", "x".repeat(9_000))] {
            let error = read_text(&wrong).unwrap_err();
            assert!(error.contains(": line 2: "), "{error}");
        }
        let error = read_text(&format!("{line}{{\"monotonic_ns\":x}}\n")).unwrap_err();
        assert!(error.ends_with(": line 2: expected value at column 17"), "{error}");
        assert!(read_text("").unwrap_err().contains("no clock log lines"));
        assert!(matches!(
            read_clock_log(Path::new("/nowhere/at.all")),
            Err(CommandFailure::Environment(_))
        ));
    }
}
