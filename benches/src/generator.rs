//! Accuracy and cost of the generator: whether it sends at the intended rate and at the intended
//! send times, the maximum rate of the packet engine, and the set-up time of a trial.

use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_load::mix::RequestMix;
use horolog_load::ptp::{PtpRequestKind, PtpRequestOptions};
use horolog_load::{LoadOptions, LoadProcedure, LoadRun, ramp::Ramp};
use horolog_record::{LoadEngineKind, LoadResult, LoadSeriesPoint, RunObserver, Trial};
use horolog_wire::ethernet::MacAddress;

use crate::capacity::{PTP_DELAY, PTP_MONITOR};
use crate::figure::{Figure, Goal};
use crate::servers::{self, Server};

/// Intended rates per second.
const RATES: [f64; 5] = [1e3, 10e3, 100e3, 1e6, 4e6];

const SINK: &str = "sink";
const SINK_HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// MAC address of no host in the lab.
const UNUSED_MAC: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 0x99]);

/// Measures all metrics `rounds` times.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
    // The server accepts frames at any rate.
    let _started = servers::start(Server::Xdp, lab.server(), binary)?;
    let mut figures = Vec::new();
    for rate in RATES {
        let trials = trials(&lab, rate, rounds)?;
        let name = format!("xdp engine at {:.0} k/s", rate / 1e3);
        let errors = trials.iter().map(|t| 100.0 * (t.achieved_rate / rate - 1.0).abs()).collect();
        figures.push(
            Figure::new(format!("{name}: error of the rate"), "%", errors).with(Goal::Below(0.1)),
        );
        let p99 = |trial: &Trial| {
            let lateness = trial.lateness_ns.as_ref().context("no send lateness")?;
            Ok(lateness.p99 as f64 / 1e3)
        };
        let runs = trials.iter().map(p99).collect::<Result<_>>()?;
        let lateness = Figure::new(format!("{name}: lateness p99"), "us", runs);
        figures.push(match rate {
            100e3 => lateness.with(Goal::Below(10.0)),
            1e6 => lateness.with(Goal::Below(50.0)),
            _ => lateness,
        });
    }
    figures.push(set_up_time(&lab, rounds, None)?);
    for (server, ptp) in
        [(Server::PtpReflector, PTP_DELAY), (Server::MonitorReflector, PTP_MONITOR)]
    {
        let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
        let _started = servers::start(server, lab.server(), binary)?;
        figures.push(set_up_time(&lab, rounds, Some(ptp))?);
    }
    figures.extend(packet_engine(rounds)?);
    Ok(figures)
}

/// Measures the maximum send rate of the packet engine on one core: into an interface that drops
/// frames, which shows the cost of sending alone, and into a link whose other end receives and
/// drops them on the same core.
fn packet_engine(rounds: usize) -> Result<Vec<Figure>> {
    let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
    make_sink(&lab)?;
    let flood = |interface: &'static str, target| TrialPlan {
        mac: Some(UNUSED_MAC),
        threads: Some(1),
        interface: Some(interface),
        target: Some(target),
        ..TrialPlan::new(LoadEngineKind::Packet, 3e6)
    };
    let link = lab.server().first_interface().ipv4;
    let (mut sink_rates, mut link_rates) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (plan, rates) in
            [(flood(SINK, SINK_HOST), &mut sink_rates), (flood("veth0", link), &mut link_rates)]
        {
            let (result, _) = plan.run(&lab)?;
            rates.extend(result.trials.iter().map(|trial| trial.achieved_rate));
        }
    }
    Ok(vec![
        Figure::new("packet engine, 1 core, into a sink", "/s", sink_rates)
            .with(Goal::AtLeast(0.8e6)),
        Figure::new("packet engine, 1 core, sending and receiving", "/s", link_rates),
    ])
}

/// Makes an interface that drops frames: an intermediate functional block without redirections to
/// it (Linux, ifb).
fn make_sink(lab: &Lab) -> Result<()> {
    for arguments in [
        ["link", "add", SINK, "type", "ifb"].as_slice(),
        &["link", "set", SINK, "up"],
        &["address", "add", "198.51.100.1/24", "dev", SINK],
    ] {
        let status =
            lab.client().command("ip").args(arguments).status().context("cannot run ip")?;
        ensure!(status.success(), "ip {} failed", arguments.join(" "));
    }
    Ok(())
}

/// Measures the time that a run takes besides sending, per trial.
fn set_up_time(lab: &Lab, rounds: usize, ptp: Option<PtpRequestOptions>) -> Result<Figure> {
    const DURATION: Duration = Duration::from_millis(50);
    let plan = TrialPlan {
        duration: DURATION,
        trials: 10,
        ptp,
        ..TrialPlan::new(LoadEngineKind::Xdp, 10e3)
    };
    let mut runs = Vec::new();
    for _ in 0..rounds {
        let (result, took) = plan.run(lab)?;
        let per_trial = (took / result.trials.len() as u32).saturating_sub(DURATION);
        runs.push(per_trial.as_secs_f64() * 1e3);
    }
    let what = match ptp.map(|ptp| ptp.kind) {
        None => "",
        Some(PtpRequestKind::Nsm) => ", NetSync Monitor",
        Some(_) => ", PTP delay",
    };
    let name = format!("xdp engine: set-up and drain of a trial{what}");
    Ok(Figure::new(name, "ms", runs).with(Goal::Below(50.0)))
}

fn trials(lab: &Lab, rate: f64, rounds: usize) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for _ in 0..rounds {
        trials.extend(TrialPlan::new(LoadEngineKind::Xdp, rate).run(lab)?.0.trials);
    }
    Ok(trials)
}

/// Run of trials at one rate.
#[derive(Clone, Copy)]
struct TrialPlan {
    engine: LoadEngineKind,
    rate: f64,
    duration: Duration,
    trials: usize,
    threads: Option<usize>,
    mac: Option<MacAddress>,
    /// Interface; by default that of the link to the server.
    interface: Option<&'static str>,
    /// Address of the target; by default that of the server.
    target: Option<Ipv4Addr>,
    /// PTP requests instead of NTP.
    ptp: Option<PtpRequestOptions>,
}

impl TrialPlan {
    fn new(engine: LoadEngineKind, rate: f64) -> Self {
        let duration = Duration::from_secs(1);
        Self {
            engine,
            rate,
            duration,
            trials: 1,
            threads: None,
            mac: None,
            interface: None,
            target: None,
            ptp: None,
        }
    }

    /// Runs the trials, and returns the result and the time of all trials, without the preparation.
    fn run(&self, lab: &Lab) -> Result<(LoadResult, Duration)> {
        let (min, duration) = (self.rate, self.duration);
        // The ramp rises so slowly that all trials are at the rate.
        let ramp = Ramp { min, max: min * 1.001, multiplier: 1.0001, duration };
        let target = self.target.unwrap_or(lab.server().first_interface().ipv4);
        let mut options = LoadOptions::new(target.to_string().parse()?, LoadProcedure::Ramp(ramp));
        options.requests = self.ptp.map_or_else(RequestMix::default, RequestMix::only);
        options.engine = Some(self.engine);
        options.threads = self.threads;
        options.hints.mac = self.mac;
        options.hints.interface = self.interface.map(str::to_owned);
        let mut count = TrialLimit(self.trials);
        lab.client().run(|| {
            let load = LoadRun::prepare(options)?;
            let begun = Instant::now();
            let result = load.run(&mut count)?;
            Ok((result, begun.elapsed()))
        })?
    }
}

/// Observer that ends a run after this number of trials.
struct TrialLimit(usize);

impl RunObserver<Trial, LoadSeriesPoint> for TrialLimit {
    fn part_ended(&mut self, _: usize, _: &Trial) {
        self.0 = self.0.saturating_sub(1);
    }

    fn flow(&self) -> ControlFlow<()> {
        if self.0 > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}
