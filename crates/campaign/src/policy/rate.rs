//! How many packets or requests a job sends in a second at most, whichever option says so.

use std::time::Duration;

use crate::role::{Given, OptionSpec, RoleKind};

/// From one exchange of `horolog query` to the next, where it is not told; public servers are asked
/// less often.
const QUERY_INTERVAL: Duration = Duration::from_millis(200);
/// The rate of one flow whose requests wait for the replies before them. No network is there and
/// back within less than 10 microseconds.
const FLOW_RATE: f64 = 100_000.0;

/// The option that bounds a job's rate, and the rate: 0 for what sends nothing by itself.
pub(super) fn of(kind: RoleKind, read: &[(&OptionSpec, Vec<Given>)]) -> (&'static str, f64) {
    let values = |name: &str| {
        let found = read.iter().find(|(spec, _)| spec.name == name);
        found.map_or(&[][..], |(_, values)| values.as_slice())
    };
    let rate = values("rate").iter().find_map(|given| match given {
        Given::Rate(rate) => Some(*rate),
        _ => None,
    });
    match kind {
        RoleKind::Query => {
            let interval = match values("interval") {
                [Given::Time(interval)] => *interval,
                _ => QUERY_INTERVAL,
            };
            ("interval", values("target").len() as f64 / interval.as_secs_f64())
        }
        RoleKind::PathUdp => {
            let flows = match values("flows") {
                [Given::Number(flows)] => *flows as f64,
                _ => 1.0,
            };
            // A rate is of all flows together.
            rate.map_or(("flows without a rate", flows * FLOW_RATE), |rate| ("rate", rate))
        }
        // A relay sends each packet to every child, and answers for what it takes.
        RoleKind::RelayRun => ("rate", rate.unwrap_or(0.0) * values("child").len().max(1) as f64),
        RoleKind::LoadNtp | RoleKind::LoadPtpDelay => ("rate", rate.unwrap_or(0.0)),
        RoleKind::Serve
        | RoleKind::PathServe
        | RoleKind::PathTcp
        | RoleKind::HostTimer
        | RoleKind::CycleLead
        | RoleKind::CycleJoin => ("rate", 0.0),
    }
}
