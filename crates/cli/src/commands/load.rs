//! `horolog load`: flags to a run, its rows as they come, its result as table, JSON and HTML
//! report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use horolog_load::limit::RequiredFeature;
use horolog_load::ramp::Ramp;
use horolog_load::target::{AddressFamily, RouteHints, TargetName};
use horolog_load::{LoadJob, LoadOptions, LoadRun};
use horolog_record::{LoadEngineKind, RequestSpacing, SearchKind};
use horolog_report::table;
use horolog_stats::{LossGoal, SearchConfig};
use horolog_sys::netlink::Prefix;
use horolog_wire::ethernet::MacAddress;

use crate::failure::CommandFailure;
use crate::{output, values};

mod flags;
mod mix;
pub(crate) mod ntpperf;
mod nts;
mod nts_ke;
mod outputs;
mod profile;
mod ptp;
mod trial_printer;

use flags::{CaptureArgs, ClientArgs, LimitArgs, OffsetArgs, RemoteCounterArgs, TrailerArgs};
use mix::MixArgs;
use nts::LoadNtsArgs;
use nts_ke::NtsKeArgs;
use outputs::{LoadOutputs, OutputArgs};
use profile::{ProfileArgs, RowKind};
use ptp::LoadPtpArgs;
use trial_printer::{LiveOutputs, TrialPrinter};

/// Default highest rate of a search: more than a CPU core can send.
const SEARCH_RATE_MAX: f64 = 20e6;

/// Load a time server, verify every reply and account for every loss.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    mode: ModeArgs,
}

#[derive(Subcommand, Debug)]
enum ModeArgs {
    Ntp(Box<NtpArgs>),
    Ptp(LoadPtpArgs),
    Mix(Box<MixArgs>),
    NtsKe(Box<NtsKeArgs>),
}

/// Send NTP client requests at rising rates, or search for the highest rate that the server answers
/// without loss.
///
/// Latency counts from the intended send time. The engines xdp and packet simulate clients: the
/// server needs a route to the clients' network through this host. The replies require no firewall
/// rule on this host.
#[derive(Args, Debug)]
pub(crate) struct NtpArgs {
    #[command(flatten)]
    run: LoadRunArgs,
    /// NTP version of the requests, 1 to 4.
    #[arg(long, value_name = "N", default_value_t = 4)]
    ntp_version: u8,
    /// Send requests in interleaved mode (RFC 9769): each client refers to the last reply that it
    /// received, and basic and interleaved replies are counted separately.
    #[arg(long, conflicts_with = "random_sources")]
    interleaved: bool,
    #[command(flatten)]
    nts: LoadNtsArgs,
    #[command(flatten)]
    additions: TrailerArgs,
}

// Options common to all kinds of requests. No doc comment: it would be a help text.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct LoadRunArgs {
    /// Server: ADDRESS, ADDRESS:PORT, [IPV6]:PORT, NAME or NAME:PORT; a link-local address as
    /// IPV6%INTERFACE or [IPV6%INTERFACE]:PORT.
    #[arg(required_unless_present = "address")]
    target: Option<TargetName>,
    /// Server, instead of TARGET (the flag of ntpperf).
    #[arg(short = 'd', value_name = "ADDR", conflicts_with = "target")]
    address: Option<TargetName>,
    /// Interface to send from [default: by the route].
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// Network of the simulated clients: private, link-local, documentation or loopback [default:
    /// an unused private one].
    #[arg(short = 's', long, value_name = "NETWORK/BITS")]
    source: Option<Prefix>,
    /// MAC address to send to [default: that of the server or its router, from the neighbour
    /// table].
    #[arg(short, long, value_name = "MAC", value_parser = mac)]
    mac: Option<MacAddress>,
    /// Requests per second: one rate, or the lowest and highest of a ramp or search, such as 1k-4M
    /// [default: 1k-1M; up to 20M in a search].
    #[arg(short, long, value_name = "RATE[-RATE]", value_parser = values::rates)]
    rate: Option<(f64, f64)>,
    /// Rate multiplier of a ramp.
    #[arg(
        short = 'x',
        long,
        value_name = "MULT",
        default_value_t = 1.5,
        conflicts_with = "search"
    )]
    multiplier: f64,
    /// Duration of each rate of a ramp; in a search, of its full-length trials [default: 2; 1 in a
    /// search].
    #[arg(short = 't', long, value_name = "TIME", value_parser = values::positive_duration)]
    time: Option<Duration>,
    /// Space requests exponentially, as independent clients would.
    #[arg(short, long)]
    exponential: bool,
    /// Simulated clients, up to 1000000; sockets in the udp engine [default: 16384; 16 in the udp
    /// engine].
    #[arg(short, long, value_name = "N", value_parser = values::count)]
    clients: Option<u32>,
    /// Use every address of the network, in pseudo-random order; an address repeats only after all
    /// were used (or after 2^27 requests of a thread).
    #[arg(long)]
    random_sources: bool,
    /// Engine that sends and receives. xdp: in the kernel; packet: raw frames (AF_PACKET); udp:
    /// ordinary sockets; auto: the first of these that works.
    #[arg(long, value_enum, default_value_t = LoadEngineArg::Auto)]
    engine: LoadEngineArg,
    /// Sending threads [default: one for each core].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    offset: OffsetArgs,
    #[command(flatten)]
    page: RemoteCounterArgs,
    #[command(flatten)]
    capture: CaptureArgs,
    /// Timeout of a reply, 1ms to 60s; later replies count as late, not as received.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "1s")]
    timeout: Duration,
    /// Search for the highest rate, to within 1%. ndr (no-drop rate): without loss; pdr
    /// (partial-drop rate): with a loss of at most 0.5%.
    #[arg(long, value_enum, value_name = "KIND")]
    search: Option<SearchArg>,
    /// Loss that a search permits, such as 0.01% [default: 0 for ndr, 0.5% for pdr].
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, requires = "search")]
    loss_ratio: Option<f64>,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    apart: ClientArgs,
    #[command(flatten)]
    limits: LimitArgs,
    /// Use only IPv4 addresses of a name.
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6 addresses of a name.
    #[arg(short = '6')]
    ipv6: bool,
    /// Confirm that a target with a public address is yours.
    #[arg(long)]
    i_own_this_target: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LoadEngineArg {
    Auto,
    Udp,
    Packet,
    Xdp,
}

impl LoadEngineArg {
    /// The engine, if one was named.
    const fn kind(self) -> Option<LoadEngineKind> {
        match self {
            Self::Auto => None,
            Self::Udp => Some(LoadEngineKind::Udp),
            Self::Packet => Some(LoadEngineKind::Packet),
            Self::Xdp => Some(LoadEngineKind::Xdp),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SearchArg {
    Ndr,
    Pdr,
}

impl SearchArg {
    /// The goal of the search; a specified loss ratio replaces the default one.
    fn goal(self, loss_ratio: Option<f64>) -> Result<(SearchKind, LossGoal), CommandFailure> {
        let (kind, goal) = match self {
            Self::Ndr => (SearchKind::Ndr, LossGoal::NDR),
            Self::Pdr => (SearchKind::Pdr, LossGoal::PDR),
        };
        Ok((kind, loss_ratio.map_or(Ok(goal), LossGoal::new).map_err(CommandFailure::usage)?))
    }
}

fn mac(text: &str) -> Result<MacAddress, String> {
    text.parse()
        .map_err(|_| "write six pairs of hexadecimal digits, such as 02:00:5e:10:00:01".into())
}

impl NtpArgs {
    fn resolve(self) -> Result<(LoadOptions, LoadOutputs), CommandFailure> {
        let (version, interleaved) = (self.ntp_version, self.interleaved);
        let nts = self.nts;
        let additions = self.additions.resolve()?;
        let sessions = nts.imported_session()?;
        let (mut options, outputs) = self.run.resolve()?;
        options.command = nts.hide(options.command);
        let nts = nts.resolve(&options.target)?;
        Ok((
            LoadOptions { nts, sessions, version, interleaved, trailer: additions, ..options },
            outputs,
        ))
    }
}

impl LoadRunArgs {
    fn job(&self) -> Result<LoadJob, CommandFailure> {
        if let Some(job) = self.profile.job(self.rate, self.search.is_some())? {
            return Ok(job);
        }
        let Some(search) = self.search else {
            let (min, max) = self.rate.unwrap_or((1e3, 1e6));
            let duration = self.time.unwrap_or(Duration::from_secs(2));
            return Ok(LoadJob::Ramp(Ramp { min, max, multiplier: self.multiplier, duration }));
        };
        let (kind, goal) = search.goal(self.loss_ratio)?;
        let (min, max) = self.rate.unwrap_or((1e3, SEARCH_RATE_MAX));
        let mut config = SearchConfig::new(goal, min, max);
        if let Some(time) = self.time {
            output::scale_search(&mut config, time);
        }
        Ok(LoadJob::Search { kind, config })
    }

    fn resolve(self) -> Result<(LoadOptions, LoadOutputs), CommandFailure> {
        let job = self.job()?;
        // One of the two is present: the parser ensures it.
        let target =
            self.target.or(self.address).ok_or_else(|| CommandFailure::usage("no target"))?;
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(AddressFamily::V4),
            (_, true) => Some(AddressFamily::V6),
            _ => None,
        };
        let search = match &job {
            LoadJob::Search { kind, .. } => Some(*kind),
            _ => None,
        };
        let surge = self.profile.overload(self.time, search.is_some());
        let rows = self.profile.rows();
        let does = [
            search.map(RequiredFeature::Search),
            self.offset.takes_any().then_some(RequiredFeature::Offsets),
            self.apart.compliant_clients().map(|_| RequiredFeature::CompliantClients),
        ];
        let limits = self.limits.resolve(&does.into_iter().flatten().collect::<Vec<_>>())?;
        let counters = self.page.resolve()?;
        let mut outputs = self.output.open()?;
        outputs.rows = rows;
        let options = LoadOptions {
            family,
            limits,
            remote_counters: counters,
            offset: self.offset.resolve(),
            capture: self.capture.resolve(),
            overload_test: surge,
            fairness: self.apart.fairness(),
            compliant_clients: self.apart.compliant_clients(),
            hints: RouteHints { interface: self.interface, mac: self.mac },
            i_own_this_target: self.i_own_this_target,
            engine: self.engine.kind(),
            source_network: self.source,
            random_sources: self.random_sources,
            clients: self.clients,
            threads: self.threads,
            spacing: if self.exponential {
                RequestSpacing::Exponential
            } else {
                RequestSpacing::Constant
            },
            reply_timeout: self.timeout,
            command: output::command_line(),
            ..LoadOptions::new(target, job)
        };
        Ok((options, outputs))
    }
}

pub(crate) fn run(args: LoadArgs) -> Result<(), CommandFailure> {
    match args.mode {
        ModeArgs::Ntp(args) => {
            let (options, outputs) = args.resolve()?;
            run_load(options, outputs)
        }
        ModeArgs::Ptp(args) => {
            let (options, outputs) = args.resolve()?;
            run_load(options, outputs)
        }
        ModeArgs::Mix(args) => {
            let (options, outputs) = args.resolve()?;
            run_load(options, outputs)
        }
        ModeArgs::NtsKe(args) => nts_ke::run(*args),
    }
}

fn run_load(options: LoadOptions, mut outputs: LoadOutputs) -> Result<(), CommandFailure> {
    let (quiet, kind) = (outputs.quiet, outputs.rows);
    output::install_interrupt_handler()?;
    let load = LoadRun::prepare(options)?;
    let style = output::table_style();
    announce(&load);
    let part_is = if kind == RowKind::Trials { "trial" } else { "phase" };
    let onlookers = LiveOutputs::start(&mut outputs, (title(&load), part_is))?;
    let shown = table::LoadTableOptions { mode: load.mode(), offsets: load.measures_offsets() };
    let mut rows = TrialPrinter::new(style, shown, (kind, quiet), &onlookers);
    rows.header();
    let result = load.run(&mut rows);
    // The terminal is restored before anything is printed on it.
    let web = onlookers.finish(result.as_ref().ok().map(|result| &result.findings[..]));
    let style = rows.finish();
    let result = result?;
    let written = outputs.write(&result, horolog_report::html::load);
    // After the files: a full standard output ends the command here, and the table is complete even
    // if a file could not be written.
    if !quiet {
        output::line(&table::summary(&result, &style))?;
    }
    if let Some(web) = web {
        web.finish();
    }
    written?;
    flags::verdict(&result.findings, &result.limits)
}

fn title(load: &LoadRun) -> String {
    let target = load.target();
    let mode = horolog_report::html::mode_name(load.mode());
    let engine = load.engine().name();
    format!("{mode} to {} port {}, engine {engine}", target.address, target.port)
}

fn announce(load: &LoadRun) {
    let target = load.target();
    let by = target.interface.map(|name| format!(" by {name}")).unwrap_or_default();
    let from = target.source_network.map(|net| format!(", clients from {net}")).unwrap_or_default();
    output::print_note(&format!(
        "horolog: loading {} port {}{by} with engine {}{from}",
        target.address,
        target.port,
        load.engine().name()
    ));
}
