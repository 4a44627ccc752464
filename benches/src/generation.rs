//! Send rate of the generator without replies, counted at the far end of the link by a program that
//! drops every request: for the packet engine on one core, which sends as ntpperf does, and for the
//! in-kernel engine in each of its modes, alternating.

use std::time::Duration;

use anyhow::{Context, Result};
use horolog_lab::{Lab, LabConfig};
use horolog_load::mix::RequestMix;
use horolog_load::ramp::Ramp;
use horolog_load::request_kind::NtpRequestOptions;
use horolog_load::{LoadOptions, LoadProcedure, LoadRun};
use horolog_record::LoadEngineKind;
use horolog_wire::ntp;
use horolog_wire::ptp::EVENT_PORT;
use horolog_xdp::{CountingSink, Interface};

use crate::capacity::{PTP_DELAY, PTP_MONITOR};
use crate::figure::{Figure, Goal};

/// Intended rate per second; exceeds that of any processor, so that the generator never waits.
const RATE: f64 = 20e6;
const DURATION: Duration = Duration::from_millis(500);
/// Wait for late replies, of which there are none.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Goal of the ratio of the in-kernel engine to the packet engine on one core.
const RATIO_GOAL: f64 = 10.0;

/// Name of a kind of request, its destination port, and the requests.
type Mode = (&'static str, u16, fn() -> RequestMix);

const MODES: [Mode; 4] = [
    ("basic", ntp::PORT, RequestMix::default),
    ("interleaved", ntp::PORT, || RequestMix::only(NtpRequestOptions::interleaved())),
    ("PTP delay", EVENT_PORT, || RequestMix::only(PTP_DELAY)),
    ("PTP NetSync Monitor", EVENT_PORT, || RequestMix::only(PTP_MONITOR)),
];

/// Measures all modes `rounds` times.
pub(crate) fn measure(rounds: usize) -> Result<Vec<Figure>> {
    let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
    let mut packet = Vec::new();
    let mut runs = MODES.map(|_| Vec::new());
    for round in 1..=rounds {
        let (_, port, _) = MODES[0];
        packet.push(arrival_rate(&lab, port, |options| {
            options.engine = Some(LoadEngineKind::Packet);
            options.threads = Some(1);
        })?);
        for ((name, port, requests), runs) in MODES.iter().zip(&mut runs) {
            let rate = arrival_rate(&lab, *port, |options| {
                options.engine = Some(LoadEngineKind::Xdp);
                options.requests = requests();
            })?;
            eprintln!("round {round} of {rounds}: {name}: {rate:.0}/s");
            runs.push(rate);
        }
    }
    let packet = Figure::new("generation alone: packet engine, 1 thread as ntpperf", "/s", packet);
    let mut figures = vec![packet.clone()];
    for ((name, ..), runs) in MODES.iter().zip(runs) {
        let figure =
            Figure::new(format!("generation alone: xdp engine, all cores, {name}"), "/s", runs);
        let ratio =
            Figure::ratio(format!("generation: xdp to packet engine, {name}"), &figure, &packet);
        figures.extend([figure, ratio.with(Goal::AtLeast(RATIO_GOAL))]);
    }
    Ok(figures)
}

/// Returns the rate at which requests arrive, per second of sending.
fn arrival_rate(lab: &Lab, port: u16, change: impl FnOnce(&mut LoadOptions) + Send) -> Result<f64> {
    let server = lab.server().first_interface();
    let interface = Interface { index: server.index, name: server.name.clone() };
    let sink = lab.server().run(|| CountingSink::attach(&interface, port))??;
    let target = server.ipv4.to_string().parse()?;
    let ramp = Ramp { min: RATE, max: RATE, multiplier: 2.0, duration: DURATION };
    let mut options = LoadOptions::new(target, LoadProcedure::Ramp(ramp));
    options.reply_timeout = TIMEOUT;
    change(&mut options);
    let result = lab.client().run(|| LoadRun::prepare(options)?.run(&mut ()))??;
    let trial = result.trials.first().context("the result has no trial")?;
    Ok(trial.achieved_rate * sink.frames() as f64 / trial.sent.max(1) as f64)
}
