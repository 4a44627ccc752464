//! Log of clock offsets: lines of a comparison of this host's clocks, or of the status of a running
//! server, for each interval. Writes no file.

use std::io;
use std::path::Path;
use std::time::Duration;

use horolog_probe::clocks::{ClockCompareRun, SlotReadings, run_each_interval};
use horolog_record::{ClockLogLine, ClockSample};
use horolog_server::{ServerStatus, status};
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_sys::explain::explain_line;
use horolog_time::Clock;

/// Logs each slot of a comparison: passes its lines to `write`.
pub fn log_comparison(
    comparison: &mut ClockCompareRun,
    write: &mut dyn FnMut(&[ClockLogLine]),
    is_over: &dyn Fn() -> bool,
) {
    let names: Vec<_> = comparison.names().map(str::to_owned).collect();
    comparison.read_slots(|_, readings| write(&comparison_lines(&names, readings)), is_over);
}

/// Returns the lines of one slot of a comparison: an offset or an error for each clock, none for a
/// clock without a new reading.
fn comparison_lines(names: &[String], readings: SlotReadings) -> Vec<ClockLogLine> {
    let line = |(name, reading): (&String, io::Result<_>)| match reading {
        Ok(None) => None,
        Ok(Some(sample)) => {
            let sample: ClockSample = sample;
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

/// Logs the status of a server at each interval, or the reason why it could not be fetched, for
/// `duration`: passes the lines of each interval to `write`.
pub fn log_server_status(
    socket: &Path,
    interval: Duration,
    duration: Duration,
    write: &mut dyn FnMut(&[ClockLogLine]),
    is_over: &dyn Fn() -> bool,
) {
    let count = duration.as_nanos() / interval.as_nanos();
    let count = u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1);
    run_each_interval(interval, count, is_over, |_| {
        let lines = match status::fetch_status(socket) {
            Ok(status) => status_lines(&status),
            Err(error) => {
                let reason = explain_line(&error.to_string().replace('\n', " ")).into_owned();
                vec![ClockLogLine { reason: Some(reason), ..clock_line_now("server") }]
            }
        };
        write(&lines);
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_status() -> ServerStatus {
        let path = concat!(env!("HOROLOG_REPOSITORY"), "crates/server/samples/status.json");
        ServerStatus::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

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
    fn a_device_that_fails_leaves_its_reason() {
        let readings: SlotReadings = vec![Ok(None), Err(io::ErrorKind::TimedOut.into())];
        let lines = comparison_lines(&["/dev/pps0".to_owned(), "/dev/ptp0".to_owned()], readings);
        assert_eq!((lines.len(), lines[0].clock.as_deref()), (1, Some("/dev/ptp0")));
        assert!(lines[0].reason.is_some() && lines[0].offset_ns.is_none());
    }
}
