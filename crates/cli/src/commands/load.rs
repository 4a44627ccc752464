//! `horolog load`: flags to load options, a table printed as trials end, and the result as JSON and
//! HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use horolog_load::limit::MetricPrerequisite;
use horolog_load::mix::RequestMix;
use horolog_load::ramp::Ramp;
use horolog_load::request_kind::{NtpRequestOptions, RequestKind};
use horolog_load::target::{AddressFamily, RouteHints, TargetName};
use horolog_load::{LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{CapacitySearchGoal, LoadEngineKind, RequestSpacing};
use horolog_report::{RenderableResult as _, table};
use horolog_stats::{GoalLossRatio, SearchConfig};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::prefix::Prefix;

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

use flags::{
    LoadMetricLimitArgs, PacketCaptureArgs, PerClientMeasurementArgs, RemoteCounterArgs,
    TimestampOffsetMeasurementArgs, TrailerArgs,
};
use mix::LoadMixArgs;
use nts::RequestNtsArgs;
use nts_ke::LoadNtsKeArgs;
use outputs::{LoadOutputArgs, LoadOutputs};
use profile::{LoadProfileArgs, LoadRowKind};
use ptp::LoadPtpArgs;
use trial_printer::{LiveOutputs, TrialPrinter};

/// Default highest rate of a search, in requests per second: more than a CPU core can send.
const SEARCH_RATE_MAX: f64 = 20e6;

/// Load a time server, verify every reply and account for every loss.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    command: LoadCommand,
}

#[derive(Subcommand, Debug)]
enum LoadCommand {
    Ntp(Box<LoadNtpArgs>),
    Ptp(LoadPtpArgs),
    Mix(Box<LoadMixArgs>),
    NtsKe(Box<LoadNtsKeArgs>),
}

/// Send NTP client requests at rising rates, or search for the highest rate that the server answers
/// without loss.
///
/// Latency is measured from the intended send time. The engines xdp and packet simulate clients:
/// the server needs a route to the clients' network through this host. No firewall rule on this
/// host is needed for the replies.
#[derive(Args, Debug)]
pub(crate) struct LoadNtpArgs {
    #[command(flatten)]
    run: LoadCommonArgs,
    /// NTP version of the requests, 1 to 4.
    #[arg(long, value_name = "N", default_value_t = 4)]
    ntp_version: u8,
    /// Send requests in interleaved mode (RFC 9769): each client refers to the last reply that it
    /// received, and basic and interleaved replies are counted separately.
    #[arg(long, conflicts_with = "random_sources")]
    interleaved: bool,
    #[command(flatten)]
    nts: RequestNtsArgs,
    #[command(flatten)]
    trailer: TrailerArgs,
}

// Options common to all kinds of requests. No doc comment: it would be a help text.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct LoadCommonArgs {
    /// Server: ADDRESS, ADDRESS:PORT, [IPV6]:PORT, NAME or NAME:PORT; a link-local address as
    /// IPV6%INTERFACE or [IPV6%INTERFACE]:PORT.
    #[arg(required_unless_present = "address")]
    target: Option<TargetName>,
    /// Server, instead of TARGET (as in ntpperf).
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
    #[arg(short, long, value_name = "MAC", value_parser = parse_mac)]
    mac: Option<MacAddress>,
    /// Requests per second: one rate, or the lowest and highest of a ramp or search, such as 1k-4M
    /// [default: 1k-1M; 1k-20M in a search].
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
    /// Duration of each rate of a ramp; in a search, of the trials that determine the result (the
    /// first ones are shorter) [default: 2s; 1s in a search].
    #[arg(short = 't', long, value_name = "TIME", value_parser = values::positive_duration)]
    time: Option<Duration>,
    /// Send at exponentially distributed intervals (Poisson arrivals), as independent clients do.
    #[arg(short, long)]
    exponential: bool,
    /// Simulated clients, up to 1000000; sockets in the udp engine [default: 16384; in the udp
    /// engine 16, or 1 for PTP].
    #[arg(short, long, value_name = "N", value_parser = values::count)]
    clients: Option<u32>,
    /// Send from all addresses of the clients' network in pseudo-random order, as a flood with
    /// forged addresses does, instead of from --clients addresses.
    ///
    /// An address repeats only after all were used, or in a larger network after 2^27 requests of a
    /// thread.
    #[arg(long)]
    random_sources: bool,
    /// Engine that sends and receives. xdp: in the kernel; packet: raw frames (AF_PACKET); udp:
    /// ordinary sockets; auto: the first of these that works.
    #[arg(long, value_enum, default_value_t = LoadEngineArg::Auto)]
    engine: LoadEngineArg,
    /// Sending threads [default: one for each core; for a target on this host, for every second
    /// one].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    offset: TimestampOffsetMeasurementArgs,
    #[command(flatten)]
    remote_counters: RemoteCounterArgs,
    #[command(flatten)]
    capture: PacketCaptureArgs,
    /// Timeout of a reply, 1ms to 60s. A request without a reply by then is lost; a later reply is
    /// counted as late, and its request remains lost.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "1s")]
    timeout: Duration,
    /// Search for the highest rate, to within 1%. ndr (non-drop rate): without loss; pdr (partial
    /// drop rate): with a loss of at most 0.5%.
    #[arg(long, value_enum, value_name = "KIND")]
    search: Option<SearchArg>,
    /// Loss ratio that a search permits, such as 0.01% [default: 0 for ndr, 0.5% for pdr].
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, requires = "search")]
    loss_ratio: Option<f64>,
    #[command(flatten)]
    profile: LoadProfileArgs,
    #[command(flatten)]
    client_measurements: PerClientMeasurementArgs,
    #[command(flatten)]
    limits: LoadMetricLimitArgs,
    /// Use only IPv4 addresses of a name.
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6 addresses of a name.
    #[arg(short = '6')]
    ipv6: bool,
    /// Confirm that a target with a public address is yours; without this it is refused.
    #[arg(long)]
    i_own_this_target: bool,
    #[command(flatten)]
    output: LoadOutputArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LoadEngineArg {
    Auto,
    Udp,
    Packet,
    Xdp,
}

impl LoadEngineArg {
    /// Returns the selected engine; `None` for `auto`.
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
    /// Returns the kind of the search and its loss goal, in which `loss_ratio` (0 to 1) replaces
    /// the default of the kind.
    fn goal(
        self,
        loss_ratio: Option<f64>,
    ) -> Result<(CapacitySearchGoal, GoalLossRatio), CommandFailure> {
        let (kind, goal) = match self {
            Self::Ndr => (CapacitySearchGoal::Ndr, GoalLossRatio::NDR),
            Self::Pdr => (CapacitySearchGoal::Pdr, GoalLossRatio::PDR),
        };
        Ok((kind, loss_ratio.map_or(Ok(goal), GoalLossRatio::new).map_err(CommandFailure::usage)?))
    }
}

fn parse_mac(text: &str) -> Result<MacAddress, String> {
    text.parse()
        .map_err(|_| "write six pairs of hexadecimal digits, such as 02:00:5e:10:00:01".into())
}

impl LoadNtpArgs {
    fn resolve(self) -> Result<(LoadOptions, LoadOutputs), CommandFailure> {
        let (version, interleaved) = (self.ntp_version, self.interleaved);
        let nts = self.nts;
        let trailer = self.trailer.resolve()?;
        let imported = nts.imported_session()?;
        let (mut options, outputs) = self.run.resolve()?;
        options.command = nts.redact_command(options.command);
        let nts = nts.resolve(&options.target, imported)?;
        let requests = NtpRequestOptions { version, interleaved, trailer };
        options.requests = RequestMix::only(RequestKind::ntp(requests, nts)?);
        Ok((options, outputs))
    }
}

impl LoadCommonArgs {
    fn job(&self) -> Result<LoadProcedure, CommandFailure> {
        if let Some(job) = self.profile.job(self.rate, self.search.is_some())? {
            return Ok(job);
        }
        let Some(search) = self.search else {
            let (min, max) = self.rate.unwrap_or((1e3, 1e6));
            let duration = self.time.unwrap_or(Duration::from_secs(2));
            return Ok(LoadProcedure::Ramp(Ramp {
                min,
                max,
                multiplier: self.multiplier,
                duration,
            }));
        };
        let (kind, goal) = search.goal(self.loss_ratio)?;
        let (min, max) = self.rate.unwrap_or((1e3, SEARCH_RATE_MAX));
        let mut config = SearchConfig::new(goal, min, max);
        if let Some(time) = self.time {
            config.scale(time);
        }
        Ok(LoadProcedure::Search { kind, config })
    }

    fn resolve(self) -> Result<(LoadOptions, LoadOutputs), CommandFailure> {
        let job = self.job()?;
        // The argument parser requires one of the two.
        let target =
            self.target.or(self.address).ok_or_else(|| CommandFailure::usage("no target"))?;
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(AddressFamily::V4),
            (_, true) => Some(AddressFamily::V6),
            _ => None,
        };
        let search = match &job {
            LoadProcedure::Search { kind, .. } => Some(*kind),
            _ => None,
        };
        let overload_test = self.profile.overload_test(self.time, search.is_some());
        let row_kind = self.profile.row_kind();
        let features = [
            search.map(MetricPrerequisite::Search),
            self.offset.is_measured().then_some(MetricPrerequisite::Offsets),
            self.client_measurements
                .compliant_clients()
                .map(|_| MetricPrerequisite::CompliantClients),
        ];
        let limits = self.limits.resolve(&features.into_iter().flatten().collect::<Vec<_>>())?;
        let remote_counters = self.remote_counters.resolve()?;
        let mut outputs = self.output.open()?;
        outputs.row_kind = row_kind;
        let options = LoadOptions {
            family,
            limits,
            remote_counters,
            offset: self.offset.resolve(),
            capture: self.capture.resolve(),
            overload_test,
            fairness: self.client_measurements.has_fairness(),
            compliant_clients: self.client_measurements.compliant_clients(),
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
    match args.command {
        LoadCommand::Ntp(args) => {
            let (options, outputs) = args.resolve()?;
            run_load(options, outputs)
        }
        LoadCommand::Ptp(args) => {
            let (options, outputs) = args.resolve()?;
            run_load(options, outputs)
        }
        LoadCommand::Mix(args) => {
            let (options, outputs) = args.resolve()?;
            run_load(options, outputs)
        }
        LoadCommand::NtsKe(args) => nts_ke::run(*args),
    }
}

fn run_load(options: LoadOptions, mut outputs: LoadOutputs) -> Result<(), CommandFailure> {
    let (quiet, row_kind) = (outputs.quiet, outputs.row_kind);
    output::install_interrupt_handler()?;
    let load = LoadRun::prepare(options)?;
    let style = output::table_style();
    announce(&load);
    let part_kind = if row_kind == LoadRowKind::Trials { "trial" } else { "phase" };
    let live_outputs = LiveOutputs::start(&mut outputs, (title(&load), part_kind))?;
    let table_options =
        table::LoadTableOptions { mode: load.mode(), offsets: load.measures_offsets() };
    let mut trial_printer =
        TrialPrinter::new(style, table_options, (row_kind, quiet), &live_outputs);
    trial_printer.print_header();
    let result = load.run(&mut trial_printer);
    // Restores the terminal before anything is printed on it.
    let web = live_outputs.finish(result.as_ref().ok().map(|result| &result.findings[..]));
    let style = trial_printer.finish();
    let result = result?;
    let written = outputs.write(&result);
    // Printed after the files are written, because a failed write to standard output ends the
    // command here. An error of the files is returned last, so that the table is complete in any
    // case.
    if !quiet {
        output::print_line(&result.summary(&style))?;
    }
    if let Some(web) = web {
        web.finish();
    }
    written?;
    flags::check_findings_and_limits(&result.findings, &result.limits)
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
