//! Pulse devices: PPS, GPIO lines and PTP clocks. Each provides the reading of the system clock at
//! an edge, directly or by conversion.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Duration;

use horolog_sys::clock::realtime_minus_monotonic;
use horolog_sys::external_timestamps::ExternalTimestampChannel;
use horolog_sys::gpio::GpioLine;
use horolog_sys::phc::{PhcDevice, PhcReading};
use horolog_sys::pps::{PpsCaptureMode, PpsDevice, PpsEdge, PpsEdges};
use horolog_time::{Span, Timestamp, Utc};

use super::{PulseEdge, PulseEdgeKind, PulseSource};
use crate::SourceError;

/// Returns an edge that has just arrived, with its monotonic time. If the system clock steps
/// between the edge and this call, the result is wrong by the step, which the servo detects as a
/// jump.
fn pulse_edge(realtime: Timestamp<Utc>, sequence: u32, edge: PulseEdgeKind) -> PulseEdge {
    let ahead = realtime_minus_monotonic().offset;
    let monotonic = Timestamp::from_ns(realtime.as_ns().saturating_sub(ahead.as_ns()));
    PulseEdge { realtime, monotonic, sequence, edge }
}

fn device_error(error: &io::Error) -> SourceError {
    SourceError::NoData(format!("the pulse device failed: {error}"))
}

/// Describes a failed open, naming the device and a hint.
fn open_error(path: &Path, error: &io::Error, default_hint: &str) -> SourceError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "no such device",
        io::ErrorKind::PermissionDenied => "permission denied for this user",
        io::ErrorKind::ResourceBusy => "in use by another program",
        _ => default_hint,
    };
    SourceError::Unusable(format!("{}: {hint}: {error}", path.display()))
}

/// PPS device `/dev/ppsN`.
pub(super) struct PpsPulseSource {
    device: PpsDevice,
    last: Option<PpsEdges>,
    pending: VecDeque<PulseEdge>,
}

impl PpsPulseSource {
    pub(super) fn open(path: &Path, edge: PulseEdgeKind, both: bool) -> Result<Self, SourceError> {
        let capture = PpsCaptureMode {
            assert: both || edge == PulseEdgeKind::Assert,
            clear: both || edge == PulseEdgeKind::Clear,
        };
        let device = PpsDevice::open(path, capture)
            .map_err(|error| open_error(path, &error, "it does not support these pulse edges"))?;
        Ok(Self { device, last: None, pending: VecDeque::new() })
    }
}

/// Returns the edges that are in `now` but not in `last`, in order of arrival.
fn new_edges(last: &PpsEdges, now: &PpsEdges) -> Vec<(PpsEdge, PulseEdgeKind)> {
    let pairs = [
        (last.assert, now.assert, PulseEdgeKind::Assert),
        (last.clear, now.clear, PulseEdgeKind::Clear),
    ];
    let is_new = |(last, now, _): &(PpsEdge, PpsEdge, PulseEdgeKind)| last.sequence != now.sequence;
    let mut edges: Vec<_> =
        pairs.into_iter().filter(is_new).map(|(_, now, edge)| (now, edge)).collect();
    edges.sort_by_key(|(edge, _)| edge.at);
    edges
}

/// Waits for newer edges. The device reports only edges after the start of its wait, so edges
/// before and during the transition are fetched by polling before and after.
fn wait_for_edges(
    last: &PpsEdges,
    wait: Duration,
    mut fetch: impl FnMut(Duration) -> io::Result<Option<PpsEdges>>,
) -> io::Result<Option<PpsEdges>> {
    for wait in [Duration::ZERO, wait, Duration::ZERO] {
        let now = fetch(wait)?;
        if now.is_some_and(|now| !new_edges(last, &now).is_empty()) {
            return Ok(now);
        }
    }
    Ok(None)
}

impl PulseSource for PpsPulseSource {
    fn wait(&mut self, wait: Duration) -> Result<Option<PulseEdge>, SourceError> {
        if let Some(edge) = self.pending.pop_front() {
            return Ok(Some(edge));
        }
        // Edges before the first reading are outdated.
        let last = match self.last {
            Some(last) => last,
            None => match self.device.wait(Duration::ZERO).map_err(|error| device_error(&error))? {
                Some(edges) => edges,
                None => return Ok(None),
            },
        };
        self.last = Some(last);
        let edges = wait_for_edges(&last, wait, |wait| self.device.wait(wait));
        if let Some(now) = edges.map_err(|error| device_error(&error))? {
            self.last = Some(now);
            let edges = new_edges(&last, &now).into_iter();
            self.pending.extend(edges.map(|(edge, kind)| pulse_edge(edge.at, edge.sequence, kind)));
        }
        Ok(self.pending.pop_front())
    }
}

/// GPIO line as a pulse device.
pub(super) struct GpioPulseSource(GpioLine);

impl GpioPulseSource {
    pub(super) fn open(path: &Path, line: u32) -> Result<Self, SourceError> {
        let failed = |error: io::Error| open_error(path, &error, "no such input line");
        GpioLine::open(path, line).map(Self).map_err(failed)
    }
}

impl PulseSource for GpioPulseSource {
    fn wait(&mut self, wait: Duration) -> Result<Option<PulseEdge>, SourceError> {
        let event = self.0.wait(wait).map_err(|error| device_error(&error))?;
        let edge = |is_rising| if is_rising { PulseEdgeKind::Assert } else { PulseEdgeKind::Clear };
        // Rising and falling edges share one sequence and alternate.
        Ok(event.map(|event| pulse_edge(event.at, event.sequence / 2, edge(event.is_rising))))
    }
}

/// External timestamp channel of a PTP clock, which timestamps one kind of edges.
pub(super) struct ExternalTimestampPulseSource {
    timestamps: ExternalTimestampChannel,
    clock: PhcDevice,
    edge: PulseEdgeKind,
    sequence: u32,
}

impl ExternalTimestampPulseSource {
    pub(super) fn open(
        path: &Path,
        channel: u32,
        pin: Option<u32>,
        edge: PulseEdgeKind,
    ) -> Result<Self, SourceError> {
        let failed = |error: io::Error| {
            open_error(path, &error, "no such channel or pin, or not for these edges")
        };
        let timestamps =
            ExternalTimestampChannel::open(path, channel, pin, edge == PulseEdgeKind::Assert);
        let timestamps = timestamps.map_err(failed)?;
        let clock = PhcDevice::open(path).map_err(failed)?;
        Ok(Self { timestamps, clock, edge, sequence: 0 })
    }
}

/// Converts a PTP clock reading to the system clock, by a later reading of both.
fn system_at(reading: &PhcReading, phc_ns: i64) -> Timestamp<Utc> {
    let half = Span::from_ns((reading.after - reading.before).as_ns() / 2);
    reading.before + half - Span::from_ns(reading.phc_ns.saturating_sub(phc_ns))
}

impl PulseSource for ExternalTimestampPulseSource {
    fn wait(&mut self, wait: Duration) -> Result<Option<PulseEdge>, SourceError> {
        let Some(event) = self.timestamps.wait(wait).map_err(|error| device_error(&error))? else {
            return Ok(None);
        };
        let reading = self.clock.read().map_err(|error| device_error(&error))?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(Some(pulse_edge(system_at(&reading, event.phc_ns), self.sequence, self.edge)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_that_are_new_come_in_their_order() {
        let edge = |sequence, ms: i64| PpsEdge { sequence, at: Timestamp::from_ns(ms * 1_000_000) };
        let before = PpsEdges { assert: edge(1, 1_000), clear: edge(1, 1_100) };
        assert_eq!(new_edges(&before, &before), []);
        let assert = PpsEdges { assert: edge(2, 2_000), ..before };
        assert_eq!(new_edges(&before, &assert), [(edge(2, 2_000), PulseEdgeKind::Assert)]);
        let both = PpsEdges { clear: edge(2, 1_900), ..assert };
        let expected =
            [(edge(2, 1_900), PulseEdgeKind::Clear), (edge(2, 2_000), PulseEdgeKind::Assert)];
        assert_eq!(new_edges(&before, &both), expected);
    }

    #[test]
    fn an_edge_between_two_waits_is_not_lost() {
        const WAIT: Duration = Duration::from_millis(100);
        let edge = |sequence, ms: i64| PpsEdge { sequence, at: Timestamp::from_ns(ms * 1_000_000) };
        let last = PpsEdges { assert: edge(1, 1_000), clear: edge(0, 0) };
        let next = PpsEdges { assert: edge(2, 2_000), ..last };
        // The edge comes after so many questions; a wait ends by an edge that comes meanwhile.
        let newer_after = |after: usize| {
            let mut waits = Vec::new();
            let found = wait_for_edges(&last, WAIT, |wait| {
                waits.push(wait);
                let has_come = waits.len() > after;
                let has_edges = wait.is_zero() || waits.len() == after + 1;
                Ok(has_edges.then_some(if has_come { next } else { last }))
            });
            (found.unwrap().map(|edges| edges.assert.sequence), waits.len())
        };
        assert_eq!(
            [0, 1, 2, 3].map(newer_after),
            [(Some(2), 1), (Some(2), 2), (Some(2), 3), (None, 3)]
        );
    }

    #[test]
    fn a_hardware_clock_s_time_becomes_the_system_s() {
        let reading = PhcReading {
            before: Timestamp::from_ns(5_000),
            phc_ns: 1_700_000_037_000_000_900,
            after: Timestamp::from_ns(5_200),
        };
        assert_eq!(system_at(&reading, 1_700_000_037_000_000_000).as_ns(), 5_100 - 900);
    }

    #[test]
    fn an_edge_has_its_instant_on_both_clocks() {
        let realtime = Timestamp::from_ns(realtime_minus_monotonic().offset.as_ns() + 7_000);
        let edge = pulse_edge(realtime, 3, PulseEdgeKind::Clear);
        assert!((edge.monotonic.as_ns() - 7_000).abs() < 10_000_000, "{edge:?}");
    }

    #[test]
    fn what_is_not_there_is_named() {
        let none = Path::new("/dev/there-is-none");
        let faults = [
            PpsPulseSource::open(none, PulseEdgeKind::Assert, false).err(),
            GpioPulseSource::open(none, 1).err(),
            ExternalTimestampPulseSource::open(none, 0, None, PulseEdgeKind::Assert).err(),
        ];
        for fault in faults {
            let text = fault.unwrap().to_string();
            assert!(text.starts_with("/dev/there-is-none: no such device"), "{text}");
        }
        let null =
            PpsPulseSource::open(Path::new("/dev/null"), PulseEdgeKind::Clear, true).err().unwrap();
        assert!(null.to_string().contains("does not support these pulse edges"), "{null}");
    }
}
