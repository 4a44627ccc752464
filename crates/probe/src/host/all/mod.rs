//! All measurements of this host, one after the other, with a joint verdict. Each part runs as with
//! its own command and restores the state of the host. A missing prerequisite of one part does not
//! affect the others.

mod judge;
mod plan;

use std::time::{Duration, Instant};

use horolog_record::{
    Finding, HOST_ALL_SCHEMA, Host, HostAllResult, HostMeasurementKind, HostMeasurementOutcome,
    HostMeasurementState, HostNicResult, HostVerdict, rfc3339_now,
};
use horolog_sys::netlink::{Link, Netlink, NetlinkError};

use super::{clock, delay, interrupt, nic, switch, timer};

/// Options of a measurement of the whole host.
#[derive(Clone, Debug)]
pub struct HostAllOptions {
    /// Approximate total time. At one minute each part takes as long as with the defaults of its
    /// own command.
    pub time: Duration,
    /// Parts to measure.
    pub parts: Vec<HostMeasurementKind>,
    /// Real-time priority of threads that use one; `None` for sched-other threads.
    pub priority: Option<u8>,
    /// True to prevent deep idle states (`/dev/cpu_dma_latency`) while latencies are measured.
    pub hold_awake: bool,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Callbacks of a measurement of the whole host.
#[derive(Clone, Copy)]
pub struct HostAllCallbacks<'a> {
    /// Called with the running part and a description of its current step.
    pub report_step: &'a (dyn Fn(HostMeasurementKind, &str) + Sync),
    /// Called with the outcome of each part, also of one that is not measured; for NICs with one
    /// per interface.
    pub report_outcome: &'a dyn Fn(&HostMeasurementOutcome),
    /// Returns true if the run is to end.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
}

/// Measures the parts of the options one after the other, and adds joint findings and the verdict.
/// Parts that are not in the options, or would start after `is_over` returned true, are only
/// listed.
#[must_use]
pub fn run(options: &HostAllOptions, callbacks: HostAllCallbacks<'_>) -> HostAllResult {
    let mut result = empty_result(options);
    for part in HostMeasurementKind::ALL {
        let before = result.parts.len();
        if !options.parts.contains(&part) {
            result.parts.push(outcome_without_record(
                part,
                HostMeasurementState::Skipped,
                Vec::new(),
            ));
        } else if (callbacks.is_over)() {
            result.parts.push(outcome_without_record(
                part,
                HostMeasurementState::NotBegun,
                Vec::new(),
            ));
        } else {
            measure_part(part, options, callbacks, &mut result);
        }
        result.parts[before..].iter().for_each(callbacks.report_outcome);
    }
    judge::judge(&mut result);
    result
}

/// Returns a result without measurements.
fn empty_result(options: &HostAllOptions) -> HostAllResult {
    HostAllResult {
        schema: HOST_ALL_SCHEMA.to_owned(),
        started: rfc3339_now(),
        command: options.command.clone(),
        host: Host::read(),
        time_ns: u64::try_from(options.time.as_nanos()).unwrap_or(u64::MAX),
        verdict: HostVerdict::Unjudged,
        worst_findings: Vec::new(),
        parts: Vec::new(),
        clock: None,
        delay: None,
        timer: None,
        switch: None,
        interrupt: None,
        nics: Vec::new(),
        limits: Vec::new(),
        findings: Vec::new(),
    }
}

/// Returns an outcome without interface and with a duration of 0; `why` is its reason.
fn outcome_without_record(
    part: HostMeasurementKind,
    state: HostMeasurementState,
    why: Vec<String>,
) -> HostMeasurementOutcome {
    HostMeasurementOutcome { part, interface: None, state, reason: why, duration_ns: 0 }
}

fn measure_part(
    part: HostMeasurementKind,
    options: &HostAllOptions,
    callbacks: HostAllCallbacks<'_>,
    result: &mut HostAllResult,
) {
    let report_step = |what: &str| (callbacks.report_step)(part, what);
    let report_repetitions =
        |done: u64, all: u64| report_step(&format!("{done} of {all} repetitions"));
    let report_seconds = |done: Duration, all: Duration| {
        report_step(&format!("{} of {} s", done.as_secs(), all.as_secs()));
    };
    let is_over = callbacks.is_over;
    let running_part = RunningHostMeasurement { part, started_at: Instant::now() };
    report_step("begins");
    let outcome = match part {
        HostMeasurementKind::Clock => {
            let record =
                Ok::<_, NetlinkError>(clock::measure(plan::clock_options(options), &is_over));
            running_part.store_outcome(record, |one| &one.findings, &mut result.clock)
        }
        HostMeasurementKind::Delay => {
            let record = delay::measure(plan::delay_options(options), &report_step, is_over);
            running_part.store_outcome(
                Ok::<_, NetlinkError>(record),
                |one| &one.findings,
                &mut result.delay,
            )
        }
        HostMeasurementKind::Timer => {
            let record = timer::run(plan::timer_options(options), &report_seconds, &is_over);
            running_part.store_outcome(record, |one| &one.findings, &mut result.timer)
        }
        HostMeasurementKind::Switch => {
            let record = switch::run(plan::switch_options(options), &report_repetitions, &is_over);
            running_part.store_outcome(record, |one| &one.findings, &mut result.switch)
        }
        HostMeasurementKind::Interrupt => {
            let record = interrupt::run(plan::interrupt_options(options), &report_step, &is_over);
            running_part.store_outcome(record, |one| &one.findings, &mut result.interrupt)
        }
        HostMeasurementKind::Nic => return inspect_nics(options, result),
    };
    result.parts.push(outcome);
}

/// Part that is being measured, and when it was started.
struct RunningHostMeasurement {
    part: HostMeasurementKind,
    started_at: Instant,
}

impl RunningHostMeasurement {
    /// Stores the record of the part in `stored`, if there is one, and returns its outcome.
    fn store_outcome<R, E: ToString>(
        &self,
        record: Result<R, E>,
        findings: fn(&R) -> &[Finding],
        stored: &mut Option<R>,
    ) -> HostMeasurementOutcome {
        let (state, why) = match &record {
            Ok(record) => judge::part_state(findings(record)),
            Err(error) => (HostMeasurementState::Failed, vec![error.to_string()]),
        };
        *stored = record.ok();
        let took_ns = u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        HostMeasurementOutcome {
            duration_ns: took_ns,
            ..outcome_without_record(self.part, state, why)
        }
    }
}

/// Inspects the interfaces that [`select_interfaces`] returns and adds an outcome for each; adds
/// one outcome if there are none or they cannot be listed.
fn inspect_nics(options: &HostAllOptions, result: &mut HostAllResult) {
    let links = Netlink::open().and_then(|mut netlink| netlink.links());
    let names = match links {
        Ok(links) => select_interfaces(&links),
        Err(error) => {
            let why = vec![error.to_string()];
            result.parts.push(outcome_without_record(
                HostMeasurementKind::Nic,
                HostMeasurementState::Failed,
                why,
            ));
            return;
        }
    };
    if names.is_empty() {
        let why = vec!["no interface except loopback is up".to_owned()];
        result.parts.push(outcome_without_record(
            HostMeasurementKind::Nic,
            HostMeasurementState::Absent,
            why,
        ));
    }
    for name in names {
        let running_part =
            RunningHostMeasurement { part: HostMeasurementKind::Nic, started_at: Instant::now() };
        let mut stored: Option<HostNicResult> = None;
        let record = nic::inspect(&name, options.command.clone());
        let outcome = running_part.store_outcome(record, |one| &one.findings, &mut stored);
        result.parts.push(HostMeasurementOutcome { interface: Some(name), ..outcome });
        result.nics.extend(stored);
    }
}

/// Returns the interfaces to inspect, of those that are up, without loopback: the NICs; if there
/// are none, as in a container, the virtual interfaces.
fn select_interfaces(links: &[Link]) -> Vec<String> {
    let up: Vec<_> = links.iter().filter(|link| link.operational && link.name != "lo").collect();
    let has_nic = up.iter().any(|link| link.kind.is_none());
    let chosen = up.into_iter().filter(|link| link.kind.is_none() || !has_nic);
    chosen.map(|link| link.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use horolog_sys::netlink::LinkCounters;

    use super::*;

    fn link(name: &str, kind: Option<&str>, operational: bool) -> Link {
        Link {
            index: 1,
            name: name.to_owned(),
            mac: None,
            mtu: 1_500,
            up: true,
            operational,
            peer_index: None,
            peer_nsid: None,
            kind: kind.map(str::to_owned),
            vlan: None,
            num_rx_queues: 1,
            num_tx_queues: 1,
            counters: LinkCounters::default(),
        }
    }

    #[test]
    fn nics_precede_virtual_interfaces() {
        let loopback = link("lo", None, true);
        let virtual_one = link("veth0", Some("veth"), true);
        let container = [loopback.clone(), virtual_one.clone()];
        assert_eq!(select_interfaces(&container), ["veth0"]);
        let unplugged = link("eth1", None, false);
        let host = [loopback.clone(), link("eth0", None, true), unplugged, virtual_one];
        assert_eq!(select_interfaces(&host), ["eth0"]);
        assert!(select_interfaces(&[loopback]).is_empty());
    }

    /// Needs no privilege; inspection of the NICs alone takes no time.
    #[test]
    fn skipped_parts_are_reported() {
        let options = HostAllOptions {
            time: Duration::from_secs(5),
            parts: vec![HostMeasurementKind::Nic],
            priority: None,
            hold_awake: false,
            command: Vec::new(),
        };
        let watch = HostAllCallbacks {
            report_step: &|_, _| (),
            report_outcome: &|_| (),
            is_over: &|| false,
        };
        let result = run(&options, watch);
        let skipped = result.parts.iter().filter(|one| one.state == HostMeasurementState::Skipped);
        assert_eq!((skipped.count(), result.verdict), (5, HostVerdict::Unjudged));
        let reported = result.findings.iter().filter(|one| one.message.contains("was skipped"));
        assert_eq!(reported.count(), 5, "{:?}", result.findings);
        let ended = run(&options, HostAllCallbacks { is_over: &|| true, ..watch });
        assert!(ended.parts.iter().any(|one| one.state == HostMeasurementState::NotBegun));
    }
}
