//! Everything that is measured of this host, part by part, each as its own command does it: a part
//! that lacks something says so and the others run. Then what they come to together. A part leaves
//! the machine as it was before the next one begins.

mod judge;
mod plan;

use std::time::{Duration, Instant};

use horolog_record::{
    Finding, HOST_ALL_SCHEMA, Host, HostAllResult, HostNicResult, HostPart, HostPartOutcome,
    HostPartState, HostVerdict, rfc3339_now,
};
use horolog_sys::netlink::{Link, Netlink, NetlinkError};

use super::{clock, delay, interrupt, nic, switch, timer};

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct HostAllOptions {
    /// About how long all parts together take; at a minute each is as long as by itself.
    pub time: Duration,
    /// The parts.
    pub parts: Vec<HostPart>,
    /// The real-time priority of threads that are to have one; `None` for ordinary ones.
    pub priority: Option<u8>,
    /// Whether deep idle states are held off while wake-ups, switches and handlers are measured.
    pub hold_awake: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// How a run is watched, and ended.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Told which part is at what.
    pub doing: &'a (dyn Fn(HostPart, &str) + Sync),
    /// Told what became of a part.
    pub done: &'a dyn Fn(&HostPartOutcome),
    /// Whether the run is to end.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
}

/// Measures all parts and judges them.
#[must_use]
pub fn run(options: &HostAllOptions, watch: Watch<'_>) -> HostAllResult {
    let mut result = empty(options);
    for part in HostPart::ALL {
        let before = result.parts.len();
        if !options.parts.contains(&part) {
            result.parts.push(without(part, HostPartState::Skipped, Vec::new()));
        } else if (watch.is_over)() {
            result.parts.push(without(part, HostPartState::NotBegun, Vec::new()));
        } else {
            measure(part, options, watch, &mut result);
        }
        result.parts[before..].iter().for_each(watch.done);
    }
    judge::judge(&mut result);
    result
}

/// A result of which nothing is measured yet.
fn empty(options: &HostAllOptions) -> HostAllResult {
    HostAllResult {
        schema: HOST_ALL_SCHEMA.to_owned(),
        started: rfc3339_now(),
        command: options.command.clone(),
        host: Host::read(),
        time_ns: u64::try_from(options.time.as_nanos()).unwrap_or(u64::MAX),
        verdict: HostVerdict::Unjudged,
        worst: Vec::new(),
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

/// A part that has no record.
fn without(part: HostPart, state: HostPartState, why: Vec<String>) -> HostPartOutcome {
    HostPartOutcome { part, interface: None, state, why, took_ns: 0 }
}

fn measure(part: HostPart, options: &HostAllOptions, watch: Watch<'_>, result: &mut HostAllResult) {
    let doing = |what: &str| (watch.doing)(part, what);
    let of_all = |done: u64, all: u64| doing(&format!("{done} of {all} repetitions"));
    let of_time = |done: Duration, all: Duration| {
        doing(&format!("{} of {} s", done.as_secs(), all.as_secs()));
    };
    let is_over = watch.is_over;
    let begun = Begun { part, at: Instant::now() };
    doing("begins");
    let outcome = match part {
        HostPart::Clock => {
            let record = Ok::<_, NetlinkError>(clock::look(plan::clock(options), &is_over));
            begun.ended(record, |one| &one.findings, &mut result.clock)
        }
        HostPart::Delay => {
            let record = delay::measure(plan::delay(options), &doing, is_over);
            begun.ended(Ok::<_, NetlinkError>(record), |one| &one.findings, &mut result.delay)
        }
        HostPart::Timer => {
            let record = timer::run(plan::timer(options), &of_time, &is_over);
            begun.ended(record, |one| &one.findings, &mut result.timer)
        }
        HostPart::Switch => {
            let record = switch::run(plan::switch(options), &of_all, &is_over);
            begun.ended(record, |one| &one.findings, &mut result.switch)
        }
        HostPart::Interrupt => {
            let record = interrupt::run(plan::interrupt(options), &doing, &is_over);
            begun.ended(record, |one| &one.findings, &mut result.interrupt)
        }
        HostPart::Nic => return nics(options, result),
    };
    result.parts.push(outcome);
}

/// A part that began.
struct Begun {
    part: HostPart,
    at: Instant,
}

impl Begun {
    /// Keeps the record, where there is one.
    fn ended<R, E: ToString>(
        &self,
        record: Result<R, E>,
        findings: fn(&R) -> &[Finding],
        kept: &mut Option<R>,
    ) -> HostPartOutcome {
        let (state, why) = match &record {
            Ok(record) => judge::state(findings(record)),
            Err(error) => (HostPartState::Failed, vec![error.to_string()]),
        };
        *kept = record.ok();
        let took_ns = u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        HostPartOutcome { took_ns, ..without(self.part, state, why) }
    }
}

/// Looks at each card.
fn nics(options: &HostAllOptions, result: &mut HostAllResult) {
    let links = Netlink::open().and_then(|mut netlink| netlink.links());
    let names = match links {
        Ok(links) => cards(&links),
        Err(error) => {
            let why = vec![error.to_string()];
            result.parts.push(without(HostPart::Nic, HostPartState::Failed, why));
            return;
        }
    };
    if names.is_empty() {
        let why = vec!["no interface but loopback is up".to_owned()];
        result.parts.push(without(HostPart::Nic, HostPartState::Absent, why));
    }
    for name in names {
        let begun = Begun { part: HostPart::Nic, at: Instant::now() };
        let mut kept: Option<HostNicResult> = None;
        let record = nic::look(&name, options.command.clone());
        let outcome = begun.ended(record, |one| &one.findings, &mut kept);
        result.parts.push(HostPartOutcome { interface: Some(name), ..outcome });
        result.nics.extend(kept);
    }
}

/// The interfaces to look at: of those that pass packets now, loopback left out, the cards; where
/// there is none, as in a container, the virtual ones.
fn cards(links: &[Link]) -> Vec<String> {
    let up: Vec<_> = links.iter().filter(|link| link.operational && link.name != "lo").collect();
    let has_card = up.iter().any(|link| link.kind.is_none());
    let chosen = up.into_iter().filter(|link| link.kind.is_none() || !has_card);
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
            num_rx_queues: 1,
            num_tx_queues: 1,
            counters: LinkCounters::default(),
        }
    }

    #[test]
    fn cards_come_before_what_is_virtual() {
        let loopback = link("lo", None, true);
        let virtual_one = link("veth0", Some("veth"), true);
        let container = [loopback.clone(), virtual_one.clone()];
        assert_eq!(cards(&container), ["veth0"]);
        let unplugged = link("eth1", None, false);
        let host = [loopback.clone(), link("eth0", None, true), unplugged, virtual_one];
        assert_eq!(cards(&host), ["eth0"]);
        assert!(cards(&[loopback]).is_empty());
    }

    /// As an ordinary user can; the cards alone take no time.
    #[test]
    fn what_is_left_out_is_told() {
        let options = HostAllOptions {
            time: Duration::from_secs(5),
            parts: vec![HostPart::Nic],
            priority: None,
            hold_awake: false,
            command: Vec::new(),
        };
        let watch = Watch { doing: &|_, _| (), done: &|_| (), is_over: &|| false };
        let result = run(&options, watch);
        let skipped = result.parts.iter().filter(|one| one.state == HostPartState::Skipped);
        assert_eq!((skipped.count(), result.verdict), (5, HostVerdict::Unjudged));
        let told = result.findings.iter().filter(|one| one.message.contains("left out"));
        assert_eq!(told.count(), 5, "{:?}", result.findings);
        let ended = run(&options, Watch { is_over: &|| true, ..watch });
        assert!(ended.parts.iter().any(|one| one.state == HostPartState::NotBegun));
    }
}
